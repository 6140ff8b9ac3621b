"""Files where others may have had their hands: opened as what they must be, read to a limit, written whole.

A link, a pipe or a device in the place of a file is refused and never waited for. A new file is made under a name that
nobody can guess, and only where there is none.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

MOST = 1 << 20
"""What a small file may hold: more was not written by us."""
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class NotAFile(OSError):
    """A link, a pipe, a folder or something too large stands where a small file should be."""


def open_regular(path: str, flags: int = os.O_RDONLY) -> int:
    """A handle on a regular file; NotAFile for anything else, which is not waited for."""
    try:
        handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as refusal:
        # A link; a pipe nobody reads, a socket, a device without its driver; a folder that is opened to be written.
        if refusal.errno in (errno.ELOOP, errno.EMLINK, errno.ENXIO, errno.ENODEV, errno.EISDIR):
            raise NotAFile(refusal.errno, "it is no regular file", path) from None
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise NotAFile(errno.EINVAL, "it is no regular file", path)
    return handle


def read(path: str, most: int = MOST) -> bytes:
    """All of a small regular file."""
    handle = open_regular(path)
    try:
        found: list[bytes] = []
        count = 0
        while count <= most and os.fstat(handle).st_size <= most:
            data = os.read(handle, min(1 << 20, most + 1 - count))
            if not data:
                return b"".join(found)
            found.append(data)
            count += len(data)
    finally:
        os.close(handle)
    raise NotAFile(errno.EFBIG, f"it is larger than {most} bytes", path)


def create(path: str) -> int:
    """A handle on a new file, which was not there before in any form."""
    return os.open(path, _NEW, 0o666)


def write(path: str, data: bytes) -> None:
    """Whole or not at all; nothing stays behind when that fails."""
    part = os.path.join(os.path.dirname(path), f".{os.urandom(8).hex()}.part")
    handle = create(part)
    try:
        try:
            write_all(handle, data)
        finally:
            os.close(handle)
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise


def write_all(handle: int, data: bytes | memoryview) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


_HOLE = 64 << 10
_ZEROS = bytes(_HOLE)


def write_sparse(handle: int, data: bytes | memoryview) -> None:
    """The same, but blocks of nothing but zeros are left out: what was sparse stays sparse. In the end: `end_here`."""
    view, at = memoryview(data), 0
    while at < len(view):
        end, hole = at, _is_hole(view, at)
        while end < len(view) and _is_hole(view, end) == hole:
            end += _HOLE
        end = min(end, len(view))
        if hole:
            os.lseek(handle, end - at, os.SEEK_CUR)
        else:
            write_all(handle, view[at:end])
        at = end


def _is_hole(data: memoryview, at: int) -> bool:
    # Most blocks do not begin with a zero, and then nothing is compared or copied.
    return data[at] == 0 and data[at : at + _HOLE].tobytes() == _ZEROS


def end_here(handle: int) -> None:
    """The file is as long as has been written, holes at its end included."""
    os.ftruncate(handle, os.lseek(handle, 0, os.SEEK_CUR))


def private_folder(places: Sequence[str], name: str) -> str:
    """A new folder that only this user may look into, under a name nobody can guess, in the first place that has room.

    OSError when there is none.
    """
    refusal: OSError = FileNotFoundError(errno.ENOENT, "there is no place for temporary files")
    for place in places:
        path = os.path.join(os.path.abspath(place), f"{name}-{os.urandom(8).hex()}")
        try:
            os.makedirs(place, exist_ok=True)  # $TMPDIR may name one that nobody has made yet
            os.mkdir(path, 0o700)
            return path
        except OSError as trouble:
            refusal = trouble
    raise refusal
