"""What a disk says: files that are there for good, and which errors are the disk's and not the program's."""

from __future__ import annotations

import errno
import os
import stat

from gpuflow.runtime import files

_REFUSALS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.EFBIG, errno.EROFS)
_CANNOT_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)


def refused(error: BaseException) -> bool:
    """Whether this is the disk's doing: full, over quota, broken, gone. A wrong path or right is the program's."""
    return isinstance(error, OSError) and error.errno in _REFUSALS


def probe(folder: str) -> None:
    """Raise what the disk says to one more megabyte in this folder, if it refuses it."""
    path = os.path.join(folder, f".probe-{os.getpid()}-{os.urandom(3).hex()}")
    try:
        handle = files.create(path)
        try:
            files.write_all(handle, b"\0" * (1 << 20))
        finally:
            os.close(handle)
    finally:
        if os.path.lexists(path):
            os.unlink(path)


def sync(path: str) -> None:
    """Files on disk for good before their name says that they are finished."""
    if not os.path.isdir(path):
        sync_one(path)
        return
    shared = files.Shared(path)
    for relative, status in shared.walk():
        # A pipe that somebody put there has nothing on disk, and would be waited for.
        if stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode):
            with shared.above(relative) as (folder, name):
                sync_one(name, folder)
    sync_one(path)


def sync_one(path: str, folder: int | None = None) -> None:
    """One file or folder. A file system that cannot sync is taken as it is; one that fails is an error."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | (0 if folder is None else os.O_NOFOLLOW), dir_fd=folder)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise
    finally:
        os.close(handle)
