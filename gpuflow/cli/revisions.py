"""A file as it was: another file, or the same path in another Git revision."""

from __future__ import annotations

import subprocess
from pathlib import Path

from gpuflow.cli.output import repository_of
from gpuflow.errors import Finding, Where, fail
from gpuflow.spec.loading import load, loads
from gpuflow.spec.pipeline import Pipeline

REVISION = "git:"
"""Says that a revision is meant, whatever files there are: a repository may hold a file called origin/main."""


def earlier(file: str, other: str, *, allow_python: bool = True) -> Pipeline | Finding:
    """The pipeline to compare with: `other` is a file, or a Git revision of `file`; `git:REV` is never a file.

    A finding (GF912) where the revision has none: the pipeline is new, or it is Python and is not run again.
    """
    if not other.startswith(REVISION) and Path(other).is_file():
        return load(other, allow_python=allow_python)
    other = other.removeprefix(REVISION)
    root = repository_of(Path(file))
    if root is None:
        raise fail("GF908", f'"{other}" is not a file, and {file} is not in a Git repository', where=Where(file))
    path = Path(file).resolve().relative_to(root).as_posix()
    if other.startswith("-"):
        raise fail("GF908", f'"{other}" is not a revision', where=Where(file))
    if path.endswith(".py"):
        text = f"{file} is not compared with {other}: a Python pipeline is not run at another revision"
        return Finding("GF912", text, Where(file), "compare with a file instead", "note")
    # The plain bytes: no filter, pager or program that a setting of the repository may name has a part in it.
    # Nor are files of the tree taken for a repository, where .git is empty: its settings would be a stranger's.
    git = ["git", "--no-pager", "-c", "safe.bareRepository=explicit", "-C", str(root)]
    found = _asked([*git, "cat-file", "blob", f"{other}:{path}"])
    if not found.returncode:
        return loads(found.stdout, file)
    # The commit is there, and its tree can be read, but has no such path.
    tree = _asked([*git, "ls-tree", "--name-only", "--full-tree", "-z", f"{other}^{{commit}}", "--", path])
    if not tree.returncode and not tree.stdout:
        return Finding("GF912", f"{file} is new: {other} does not have it", Where(file), None, "note")
    reason = found.stderr.decode(errors="replace").strip().splitlines()
    raise fail(
        "GF908",
        f"{file} cannot be read at {other}: {reason[0] if reason else 'git failed'}",
        where=Where(file),
        hint="name a file, or a revision such as HEAD~1 or origin/main",
    )


def _asked(command: list[str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, capture_output=True, check=False, stdin=subprocess.DEVNULL)
