"""That an attempt's supervisor lives: a lock on `alive` in the attempt's own folder, which the kernel gives back.

The lock of the whole directory says this of one supervisor only. Others may work beside it: of three attempts of one
run, the second never has that lock, and is alive all the same when the third takes it from the first.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuflow.runtime.files import Shared

HELD = (errno.EWOULDBLOCK, errno.EACCES)
"""What a lock that someone else has is refused with; anything else says that there are no locks here."""
_TRIES = 100


class Alive:
    """This attempt's own lock."""

    def __init__(self) -> None:
        self._handle = -1

    def hold(self, shared: Shared, folder: str) -> bool:
        """Take it, again when the folder was made anew; False where there are no locks."""
        path = os.path.join(folder, "alive")
        for _ in range(_TRIES):
            if same_file(self._handle, shared, path):
                return True
            self.leave()
            with contextlib.suppress(FileNotFoundError):
                shared.make(folder)
            try:
                self._handle = _locked(shared, path)
            except OSError as refusal:
                # Someone found the folder before there was a lock on it, and is removing it.
                if refusal.errno not in (*HELD, errno.ENOENT):
                    return False
                time.sleep(0.01)
        return same_file(self._handle, shared, path)

    def leave(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
        self._handle = -1


def remove_if_dead(shared: Shared, folder: str) -> None:
    """Remove an attempt's folder, unless its supervisor lives. Who comes meanwhile waits for the lock."""
    try:
        handle = _locked(shared, os.path.join(folder, "alive"))
    except OSError:
        return
    shared.discard(folder)
    os.close(handle)


def same_file(handle: int, shared: Shared, path: str) -> bool:
    """Whether a path still leads to the file that was opened."""
    try:
        return handle >= 0 and os.path.samestat(os.fstat(handle), shared.status(path))
    except OSError:
        return False


def _locked(shared: Shared, path: str) -> int:
    import fcntl

    handle = shared.open(path, os.O_RDWR | os.O_CREAT, make=True)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise
    return handle
