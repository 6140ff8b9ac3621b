"""What lies in a folder against what should: what is there byte for byte, what is not, and what is foreign."""

from __future__ import annotations

import contextlib
import os
import stat

from gpuflow.runtime.parallel import in_parallel
from gpuflow.runtime.store import CHUNK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gpuflow.runtime.files import Shared
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
    shared: Shared,
    folder: str,
    files: Sequence[File],
    passed: Callable[[int], None],
    *,
    leave: Sequence[str] = (),
    learn: bool = False,
    among_others: bool = False,
    modes: str = SET,
) -> Comparison:
    """A folder in a shared one against the files it should hold; `leave` are names at its top that do not count.

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
    to_read: list[tuple[File, str]] = []
    for relative, path, status in _walk(shared, folder, leave):
        file = wanted.get(relative)
        if file is None:
            if not (stat.S_ISDIR(status.st_mode) and relative in implied):
                found.foreign.append(relative)
        elif file.link is not None:
            is_it = stat.S_ISLNK(status.st_mode) and shared.readlink(path) == file.link
            found.same.add(relative) if is_it else found.other.append(relative)
        elif file.directory:
            found.same.add(relative) if stat.S_ISDIR(status.st_mode) else found.other.append(relative)
        elif not stat.S_ISREG(status.st_mode) or status.st_size != file.size or not (file.sha256 or learn):
            found.other.append(relative)
        else:
            to_read.append((file, path))
    if found.foreign and not among_others:
        found.other += [file.path for file, _ in to_read]
        return found

    def read(item: tuple[File, str]) -> None:
        file, path = item
        try:
            handle = shared.open(path)
        except OSError:
            found.other.append(file.path)
            return
        try:
            judge(file, handle)
        finally:
            os.close(handle)

    def judge(file: File, handle: int) -> None:
        sha256, mode = _hashed(handle, passed), os.fstat(handle).st_mode
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
                os.fchmod(handle, file.mode & 0o777)
        found.same.add(file.path)

    in_parallel(read, to_read, _STREAMS)
    return found


def hashed(shared: Shared, path: str, passed: Callable[[int], None]) -> str | None:
    """The hash of a regular file in a shared folder; None when it cannot be read."""
    try:
        handle = shared.open(path)
    except OSError:
        return None
    try:
        return _hashed(handle, passed)
    finally:
        os.close(handle)


def _hashed(handle: int, passed: Callable[[int], None]) -> str | None:
    import hashlib

    whole = hashlib.sha256()
    try:
        while True:
            data = os.read(handle, CHUNK)
            if not data:
                return whole.hexdigest()
            passed(len(data))
            whole.update(data)
    except OSError:
        return None


def _walk(shared: Shared, folder: str, leave: Sequence[str]) -> Iterator[tuple[str, str, os.stat_result]]:
    left = {*leave, "lost+found"} if os.path.ismount(shared.path(folder)) else {*leave}  # as a new ext4 volume has it
    try:
        for relative, status in shared.walk(folder):
            if relative.partition("/")[0] not in left:
                yield relative, os.path.join(folder, relative), status
    except FileNotFoundError:
        return
