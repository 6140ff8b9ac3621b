"""A file as it was: another file, or the same path in another Git revision."""

from __future__ import annotations

import subprocess
from pathlib import Path

from gpuflow.cli.output import repository_of
from gpuflow.errors import Where, fail
from gpuflow.spec.loading import load, loads
from gpuflow.spec.pipeline import Pipeline

REVISION = "git:"
"""Says that a revision is meant, whatever files there are: a repository may hold a file called origin/main."""


def earlier(file: str, other: str, *, allow_python: bool = True) -> Pipeline:
    """The pipeline to compare with: `other` is a file, or a Git revision of `file`; `git:REV` is never a file."""
    if not other.startswith(REVISION) and Path(other).is_file():
        return load(other, allow_python=allow_python)
    other = other.removeprefix(REVISION)
    root = repository_of(Path(file))
    if root is None:
        raise fail("GF908", f'"{other}" is not a file, and {file} is not in a Git repository', where=Where(file))
    path = Path(file).resolve().relative_to(root).as_posix()
    if other.startswith("-"):
        raise fail("GF908", f'"{other}" is not a revision', where=Where(file))
    # The plain bytes: no filter, pager or program that a setting of the repository may name has a part in it.
    # Nor are files of the tree taken for a repository, where .git is empty: its settings would be a stranger's.
    git = ["git", "--no-pager", "-c", "safe.bareRepository=explicit", "-C", str(root)]
    command = [*git, "cat-file", "blob", f"{other}:{path}"]
    done = subprocess.run(command, capture_output=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip().splitlines()
        raise fail(
            "GF908",
            f"{file} cannot be read at {other}: {reason[0] if reason else 'git failed'}",
            where=Where(file),
            hint="name a file, or a revision such as HEAD~1 or origin/main",
        )
    if path.endswith(".py"):
        raise fail(
            "GF908",
            "a Python pipeline is not run at another revision",
            where=Where(file),
            hint="compare with a file instead",
        )
    return loads(done.stdout, file)
