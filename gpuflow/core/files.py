"""The one door to files that people name or commit: opened as what they must be, or refused.

A repository may hold a stranger's change, and a link in it may lead anywhere: to a token, to a device, to a pipe that
never ends. So a file is ordinary, of bounded size, and within the repository that names it; where there is no
repository, within the current folder, or within the folder that somebody named. A path that somebody types may be a
stream such as /dev/stdin.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from gpuflow.core.errors import Where, fail

STREAMS = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")
"""What a shell passes for `-` and `<(command)`."""
KERNEL = (Path("/dev"), Path("/proc"), Path("/sys"))
"""Files here show the process and the machine; what is in them is nobody's document."""


class NotOrdinary(OSError):
    """The path is a device, a pipe or a socket."""


class OutsideBounds(OSError):
    """The path leads out of the repository, or into the kernel's own files."""


def read_at_most(
    file: Path, most: int, *, named: bool = False, root: Path | None = None, folder: Path | None = None
) -> bytes:
    """Up to `most` + 1 bytes of an ordinary file: one more than `most` says that it is too large. `named`: somebody
    typed this path, so it may be a stream. `root`: where it must lie; else see `bounds_of`."""
    with open_file(file, named=named, root=root, folder=folder) as stream:
        return stream.read(most + 1)


def open_file(file: Path, *, named: bool = False, root: Path | None = None, folder: Path | None = None) -> BinaryIO:
    """An ordinary file, open for reading, for a caller with a bound of its own; the rest as for `read_at_most`."""
    if named and str(file).startswith(STREAMS):
        return open(file, "rb")
    real = resolve_within(file, root, folder)
    # Opening a pipe waits for a writer unless told not to; a link that has come meanwhile is not followed.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    stream = os.fdopen(os.open(real, flags), "rb")
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise NotOrdinary(f"{file} is not an ordinary file")
    return stream


def resolve_within(path: Path, root: Path | None = None, folder: Path | None = None) -> Path:
    """The path without links, when it stays within `root`, or within its bounds when none is given."""
    real = Path(os.path.realpath(path))
    root = root or bounds_of(path, folder)
    if not real.is_relative_to(os.path.realpath(root)):
        raise OutsideBounds(f"{path} leads out of {'its repository' if root == repository_above(path) else root}")
    if any(part.lower() == ".git" for part in real.relative_to(os.path.realpath(root)).parts):
        raise OutsideBounds(f"{path} leads into the repository's own .git, which holds tokens and programs")
    if any(real.is_relative_to(folder) for folder in KERNEL if real.parts[:3] != ("/", "dev", "shm")):
        raise OutsideBounds(f"{path} leads to {real}, which is not a document")
    return real


def bounds_of(path: Path, folder: Path | None = None) -> Path:
    """What a path that is read or written must not leave by a link: its repository, or, where it is in none, the
    current folder. Of a path elsewhere, the folder that somebody named (`folder`), or its own."""
    return repository_above(path) or _current(path) or folder or Path(os.path.abspath(path)).parent


def bounds_of_references(file: Path) -> Path | None:
    """What a file that a document names must lie in; None where the document is in no repository, and elsewhere than
    in the current folder: somebody typed its path, and what is around it is his."""
    return repository_above(file) or _current(file)


def _current(path: Path) -> Path | None:
    here = Path.cwd()
    return here if Path(os.path.abspath(path)).is_relative_to(here) else None


def repository_above(path: Path) -> Path | None:
    """The Git repository that a path is written in; a repository behind a link counts only when there is no other."""
    found: Path | None = None
    for folder in Path(os.path.abspath(path)).parents:
        if found is None and (folder / ".git").exists():
            found = folder
        if folder.is_symlink():
            return repository_above(folder) or found
    return found


def reason_of(refusal: OSError | ValueError) -> str:
    """What the system, or this module, says of a file, for the end of a sentence."""
    return getattr(refusal, "strerror", None) or str(refusal)


def refuse_outside(refusal: OSError | ValueError, file: Path, where: Where | None = None) -> None:
    """Raise GF140 when a file is not what it must be; return when the refusal has another reason."""
    if isinstance(refusal, NotOrdinary):
        raise fail("GF100", str(refusal), where=where or Where(str(file)), hint="name a file, or /dev/stdin") from None
    if isinstance(refusal, OutsideBounds):
        hint = "name the file itself, or keep it in the repository, or in the folder in which gpuflow is run: "
        hint += "what a link shows is not what was reviewed"
        raise fail("GF140", str(refusal), where=where or Where(str(file)), hint=hint) from None
