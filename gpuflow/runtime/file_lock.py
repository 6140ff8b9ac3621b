"""A lock that ends with its process: one of many does the work, the others wait and find it done."""

from __future__ import annotations

import contextlib
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_GLANCE = 0.1
_OFTEN = 100
"""How often a folder may vanish under our hands before it is believed that nothing can be made there."""


class Busy(Exception):
    """Somebody else holds it."""


@contextlib.contextmanager
def held(path: str, wait: Callable[[], None] | None, *, shared: bool = False, mode: int = 0o666) -> Iterator[None]:
    """Hold the lock file at a path, which is made. `wait` is called while another holds it, and may raise.

    Without `wait` it is Busy then. Whoever holds it alone may remove the file: those who waited look again.
    """
    vanished = 0
    while True:
        try:
            handle = _taken(path, shared=shared, mode=mode)
        except FileNotFoundError:
            vanished += 1
            if vanished > _OFTEN:
                raise
            continue  # its folder was removed meanwhile
        if handle is not None:
            break
        if wait is None:
            raise Busy(path)
        wait()
        time.sleep(_GLANCE)
    try:
        yield
    finally:
        os.close(handle)


def _taken(path: str, *, shared: bool, mode: int) -> int | None:
    import fcntl

    os.makedirs(os.path.dirname(path), exist_ok=True)
    # To read is enough for a lock, and all that another user may.
    handle = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        if _is(path, handle):
            return handle
    except BlockingIOError:
        pass
    except OSError:
        return handle  # no locks on this file system: then there is no one to wait for
    os.close(handle)
    return None


def _is(path: str, handle: int) -> bool:
    """Whether the file is still at its place, and not one that was removed."""
    try:
        there = os.lstat(path)
    except OSError:
        return False
    own = os.fstat(handle)
    return (there.st_dev, there.st_ino) == (own.st_dev, own.st_ino)
