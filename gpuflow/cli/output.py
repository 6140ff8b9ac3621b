"""Files written whole or not at all, and compared instead of written when asked."""

from __future__ import annotations

import contextlib
import difflib
import os
import tempfile
from pathlib import Path

from gpuflow.errors import EnvironmentFailure, Finding, Where


def write_files(files: dict[Path, str]) -> None:
    """Write every file, each by renaming a finished one over it, so that nobody ever reads half of it.

    A link is followed, and a pipe or a device is written to: renaming over /dev/stdout would take it from everybody.
    """
    for name, text in files.items():
        path = Path(os.path.realpath(name))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if _is_stream(name):
                with open(name, "a", encoding="utf-8", newline="\n") as stream:
                    stream.write(text)
                continue
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        except OSError as refusal:
            raise _cannot(name, refusal) from None
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as stream:
                stream.write(text)
            os.chmod(temporary, _mode(path))
            os.replace(temporary, path)
        except OSError as refusal:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise _cannot(name, refusal) from None


def _is_stream(path: Path) -> bool:
    """Whether what stands there is a pipe or a device, or leads to an open file as /dev/stdout does."""
    if not path.exists():
        return False
    leads_to_open_file = path.parts[:2] in (("/", "dev"), ("/", "proc")) and path.parts[2:3] != ("shm",)
    return leads_to_open_file or not (path.is_file() or path.is_dir())


def _mode(path: Path) -> int:
    """The permissions a plain `open(path, "w")` would give."""
    if path.exists():
        return path.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _cannot(path: Path, refusal: OSError) -> EnvironmentFailure:
    reason = refusal.strerror
    if isinstance(refusal, FileExistsError | NotADirectoryError):
        file = next((folder for folder in path.parents if folder.is_file()), path.parent)
        reason = f"{file} is a file, not a folder"
    return EnvironmentFailure(
        Finding("GF906", f"{path} cannot be written: {reason}", Where(str(path)), "choose another path")
    )


def stale(files: dict[Path, str]) -> list[str]:
    """A unified diff for every file that is not what it should be."""
    diffs = []
    for path, text in files.items():
        try:
            present = path.read_text(encoding="utf-8") if path.exists() else ""
        except (OSError, UnicodeDecodeError):
            present = ""
        if present != text:
            lines = difflib.unified_diff(
                present.splitlines(keepends=True), text.splitlines(keepends=True), str(path), f"{path} (compiled now)"
            )
            diffs.append("".join(lines))
    return diffs


def repository_of(path: Path) -> Path | None:
    """The root of the Git repository a path lies in."""
    for folder in (path.resolve(), *path.resolve().parents):
        if (folder / ".git").exists():
            return folder
    return None


def shown_source(source: str | None, output: Path | None) -> str:
    """How an artifact names its source: relative to the output's repository, or by its bare name."""
    if source is None:
        return "<memory>"
    root = repository_of(output) if output is not None else None
    if root is not None and Path(source).resolve().is_relative_to(root):
        return Path(source).resolve().relative_to(root).as_posix()
    return Path(source).name
