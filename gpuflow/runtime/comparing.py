"""What lies in a folder against what should: what is there byte for byte, what is not, and what is foreign."""

from __future__ import annotations

import contextlib
import os
import stat

from gpuflow.runtime import files as ours
from gpuflow.runtime.parallel import in_parallel
from gpuflow.runtime.store import CHUNK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuflow.runtime.records import File

SET, LEAVE, EXACT = "set", "leave", "exact"
_STREAMS = 4


class Comparison:
    """`same`: paths that are as they should be; `other`: that are not; `foreign`: nobody asked for them."""

    def __init__(self) -> None:
        self.same: set[str] = set()
        self.other: list[str] = []
        self.foreign: list[str] = []

    def is_whole(self, files: Sequence[File]) -> bool:
        return not self.other and not self.foreign and len(self.same) == len(files)


def compare(
    folder: str,
    files: Sequence[File],
    passed: Callable[[int], None],
    *,
    leave: Sequence[str] = (),
    learn: bool = False,
    among_others: bool = False,
    modes: str = SET,
) -> Comparison:
    """A folder against the files it should hold; `leave` are names at its top that do not count.

    Hashes are compared, unless one is not known: with `learn` it is then that of the file here if that has its size.
    `modes` says what becomes of modes that differ: they are set where that can be done, left, or no longer the same.
    Once there is something foreign nothing is read any more, unless it may lie `among_others`.
    """
    found = Comparison()
    wanted = {file.path: file for file in files}
    implied = {path.rpartition("/")[0] for path in wanted}
    while True:
        above = {path.rpartition("/")[0] for path in implied} - implied
        if not above:
            break
        implied |= above
    to_read: list[tuple[File, str, int]] = []
    for relative, path, status in _walk(folder, leave):
        file = wanted.get(relative)
        if file is None:
            if not (stat.S_ISDIR(status.st_mode) and relative in implied):
                found.foreign.append(relative)
        elif file.link is not None:
            is_it = stat.S_ISLNK(status.st_mode) and os.readlink(path) == file.link
            found.same.add(relative) if is_it else found.other.append(relative)
        elif file.directory:
            found.same.add(relative) if stat.S_ISDIR(status.st_mode) else found.other.append(relative)
        elif not stat.S_ISREG(status.st_mode) or status.st_size != file.size or not (file.sha256 or learn):
            found.other.append(relative)
        else:
            to_read.append((file, path, status.st_mode))
    if found.foreign and not among_others:
        found.other += [file.path for file, _, _ in to_read]
        return found

    def read(item: tuple[File, str, int]) -> None:
        file, path, mode = item
        sha256 = hashed(path, passed)
        if not file.sha256:
            file.sha256 = sha256 or ""
        if sha256 is None or sha256 != file.sha256:
            found.other.append(file.path)
            return
        if modes != LEAVE and file.mode is not None and stat.S_IMODE(mode) != file.mode & 0o777:
            if modes == EXACT:
                found.other.append(file.path)
                return
            with contextlib.suppress(OSError):
                os.chmod(path, file.mode & 0o777)
        found.same.add(file.path)

    in_parallel(read, to_read, _STREAMS)
    return found


def hashed(path: str, passed: Callable[[int], None]) -> str | None:
    """The hash of a regular file; None when it cannot be read."""
    import hashlib

    whole = hashlib.sha256()
    try:
        handle = ours.open_regular(path)
        try:
            while True:
                data = os.read(handle, CHUNK)
                if not data:
                    return whole.hexdigest()
                passed(len(data))
                whole.update(data)
        finally:
            os.close(handle)
    except OSError:
        return None


def _walk(folder: str, leave: Sequence[str]) -> list[tuple[str, str, os.stat_result]]:
    found = []
    open_folders = [("", folder)]
    while open_folders:
        above, path = open_folders.pop()
        try:
            names = sorted(os.listdir(path))
        except FileNotFoundError:
            continue
        for name in names:
            if not above and (name in leave or _is_lost_and_found(path, name)):
                continue
            inside, relative = os.path.join(path, name), f"{above}/{name}" if above else name
            status = os.lstat(inside)
            found.append((relative, inside, status))
            if stat.S_ISDIR(status.st_mode):
                open_folders.append((relative, inside))
    return found


def _is_lost_and_found(path: str, name: str) -> bool:
    """What a new ext4 volume has in its top folder."""
    return name == "lost+found" and os.path.ismount(path)
