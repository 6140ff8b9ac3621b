"""What a disk says: files that are there for good, and which errors are the disk's and not the program's."""

from __future__ import annotations

import errno
import os

_REFUSALS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.EFBIG, errno.EROFS)
_CANNOT_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)


def refused(error: BaseException) -> bool:
    """Whether this is the disk's doing: full, over quota, broken, gone. A wrong path or right is the program's."""
    return isinstance(error, OSError) and error.errno in _REFUSALS


def probe(folder: str) -> None:
    """Raise what the disk says to one more megabyte in this folder, if it refuses it."""
    path = os.path.join(folder, f".probe-{os.getpid()}-{os.urandom(3).hex()}")
    try:
        with open(path, "wb") as file:
            file.write(b"\0" * (1 << 20))
    finally:
        if os.path.lexists(path):
            os.unlink(path)


def sync(path: str) -> None:
    """Files on disk for good before their name says that they are finished."""
    if not os.path.isdir(path):
        sync_one(path)
        return
    for folder, _, names in os.walk(path, onerror=_raise):
        for name in names:
            inside = os.path.join(folder, name)
            if not os.path.islink(inside):
                sync_one(inside)
        sync_one(folder)


def sync_one(path: str) -> None:
    """One file or folder. A file system that cannot sync is taken as it is; one that fails is an error."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise
    finally:
        os.close(handle)


def _raise(error: OSError) -> None:
    raise error
