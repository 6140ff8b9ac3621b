"""A file as it was: another file, or the same path in another Git revision."""

from __future__ import annotations

import subprocess
from pathlib import Path

from gpuflow.cli.output import repository_of
from gpuflow.errors import Where, fail
from gpuflow.spec.loading import load, loads
from gpuflow.spec.pipeline import Pipeline


def earlier(file: str, other: str) -> Pipeline:
    """The pipeline to compare with: `other` is a file, or a Git revision of `file`."""
    if Path(other).is_file():
        return load(other)
    root = repository_of(Path(file))
    if root is None:
        raise fail("GF908", f'"{other}" is not a file, and {file} is not in a Git repository', where=Where(file))
    path = Path(file).resolve().relative_to(root).as_posix()
    if other.startswith("-"):
        raise fail("GF908", f'"{other}" is not a revision', where=Where(file))
    done = subprocess.run(["git", "-C", str(root), "show", f"{other}:{path}"], capture_output=True, check=False)
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
