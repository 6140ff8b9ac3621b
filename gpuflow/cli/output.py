"""Files written whole or not at all, and compared instead of written when asked."""

from __future__ import annotations

import contextlib
import difflib
import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from gpuflow.cli.terminal import paint, print_text, put
from gpuflow.core.errors import EnvironmentFailure, Finding, GpuflowError, Where, fail
from gpuflow.core.files import OutsideBounds, read_at_most, resolve_within
from gpuflow.core.printable import line

MAX_BYTES = 64 * 1024 * 1024
"""Compiled files are read up to this size; what engines accept is far below it."""
HEADER_MARK = "# Made by gpuflow"
"""How every compiled file begins."""


def write_files(files: dict[Path, str], *, folder: Path | None = None, follow_links: bool | None = None) -> None:
    """Write every file, each by renaming a finished one over it, so that nobody ever reads half of it.

    `folder`: what the user named, if it is a folder; see `refuse_links`. A path that the user named itself may be a
    link within its repository, or a pipe or a device: renaming over /dev/stdout would take it from everybody.
    """
    refuse_links(files, folder=folder, follow_links=follow_links)
    for name, text in files.items():
        # A link that has come since it was asked for is replaced, not followed.
        is_ours = folder is not None and not follow_links
        path = Path(os.path.realpath(name.parent)) / name.name if is_ours else Path(os.path.realpath(name))
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


def write_output(text: str, output: str | None) -> int:
    """One text to the file at -o, or to standard output."""
    if output in (None, "-"):
        put(text)
        return 0
    write_files({Path(output): text})
    show_written([output])
    return 0


def show_written(paths: Iterable[object]) -> None:
    """Say which files were written."""
    for path in paths:
        print_text(f"{paint('wrote', 'green', stream=sys.stderr)} {line(str(path))}\n", sys.stderr)


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


def refuse_links(files: Iterable[Path], *, folder: Path | None, follow_links: bool | None) -> None:
    """GF909 for a file that is not an ordinary one, or that a link takes elsewhere; nothing of it is shown.

    A link in a repository may be a stranger's, who would have gpuflow show or change what it leads to. Below a folder
    no link is followed; a path that the user names may be a link within its repository. `follow_links`: the user says
    so; None where there is no such option.
    """
    if follow_links:
        return
    findings = []
    for path in files:
        if folder is None and _is_device(path):
            continue
        if (reason := _outside_reason(path, folder)) is not None:
            hint = "replace it by a file" + ("" if follow_links is None else ", or allow links: --follow-links")
            findings.append(Finding("GF909", f"{path} {reason}", Where(str(path)), hint))
    if findings:
        raise GpuflowError(findings)


def _outside_reason(path: Path, folder: Path | None) -> str | None:
    try:
        if folder is None:
            resolve_within(path)
            return None
        resolve_within(folder)
        if path.is_symlink():
            return "is a link"
        if path.exists() and not path.is_file():
            return "is not an ordinary file"
        if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
            return f"leads out of {folder}"
    except OutsideBounds as refusal:
        return str(refusal).removeprefix(f"{path} ")
    except OSError:
        return None  # reading or writing says why
    return None


def _is_device(path: Path) -> bool:
    """Whether the user named /dev/stdout or the like, which is no place in a repository."""
    return path.is_absolute() and path.parts[1:2] in (("dev",), ("proc",))


def diff_files(
    files: dict[Path, str], *, folder: Path | None = None, follow_links: bool = False, made: str = "compiled"
) -> list[str]:
    """A unified diff for every file that is not what it should be; links as for `write_files`."""
    refuse_links(files, folder=folder, follow_links=follow_links)
    diffs = []
    for path, text in files.items():
        if (present := _current_text(path, follow_links)) is None:
            diffs.append(
                f"--- {path}\n+++ {path} ({made} now)\nthe file is over {MAX_BYTES:,} bytes and is not shown\n"
            )
            continue
        if present != text:
            if path.is_symlink() and not follow_links and not present.startswith(HEADER_MARK):
                # A link within the repository may still lead to what an earlier step of the job has put there: `.env`.
                hint = "replace it by a file, or allow links: --follow-links"
                raise fail(
                    "GF909", f"{path} is a link to a file that gpuflow did not write", where=Where(str(path)), hint=hint
                )
            lines = difflib.unified_diff(
                present.splitlines(keepends=True), text.splitlines(keepends=True), str(path), f"{path} ({made} now)"
            )
            diffs.append("".join(lines))
    return diffs


def _current_text(path: Path, follow_links: bool) -> str | None:
    """The current text, "" if there is no readable text, None if it is too large to come from gpuflow."""
    try:
        real = Path(os.path.realpath(path)) if follow_links else path
        raw = read_at_most(real, MAX_BYTES, root=real.parent if follow_links else None)
        return None if len(raw) > MAX_BYTES else raw.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except (OSError, UnicodeDecodeError):
        return ""


def repository_of(path: Path) -> Path | None:
    """The root of the Git repository a path lies in."""
    return next((each for each in (path.resolve(), *path.resolve().parents) if (each / ".git").exists()), None)


def shown_source(source: str | None, output: Path | None) -> str:
    """How an artifact names its source: relative to the folder that holds both, or by its bare name. The two paths
    alone decide, so that a clone, a worktree, an archive and an image build write the same bytes."""
    if source is None:
        return "<memory>"
    if output is None:
        return Path(source).name
    written, wrote = Path(os.path.abspath(source)), Path(os.path.abspath(output))
    if written.anchor != wrote.anchor:
        return written.name
    both = Path(os.path.commonpath((written.parent, wrote)))
    # The root of the file system holds everything: what lies between it and the source is the machine's business.
    return written.name if both == Path(both.anchor) else written.relative_to(both).as_posix()
