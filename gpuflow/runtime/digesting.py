"""`gpuflow-run digest PATH`: what `digest:` of an input must say, of a copy of the data on this machine."""

from __future__ import annotations

import os
import sys

from gpuflow.runtime import artifacts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuflow.runtime.records import File

USAGE = "usage: gpuflow-run digest PATH"


def main(words: Sequence[str]) -> int:
    """Print `sha256:…`; 2 for what has none."""
    if len(words) != 1 or words[0].startswith("-"):
        print(USAGE, file=sys.stderr)
        return 0 if list(words) in (["--help"], ["-h"]) else 2
    try:
        print(f"sha256:{digest(words[0])}")
        return 0
    except (OSError, artifacts.NotKept) as refusal:
        print(f"gpuflow-run: {refusal}", file=sys.stderr)
        return 2


def digest(path: str) -> str:
    """The sum of what lies at a path."""
    if not os.path.lexists(path):
        raise FileNotFoundError(f"there is no {path}: digest takes a path on this machine")
    return of_files("directory" if os.path.isdir(path) else "file", artifacts.measured(path))


def of_files(kind: str, files: Sequence[File]) -> str:
    """Of a file the hash of its bytes. Of a directory that over its files and links: a bucket has no folders."""
    if kind == "file":
        return files[0].sha256 or ""
    return artifacts.kept(kind, [file for file in files if not file.directory], None, None).sha256
