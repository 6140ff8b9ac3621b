"""That an attempt's supervisor lives: a lock on `alive` in the attempt's own folder, which the kernel gives back.

The lock of the whole directory says this of one supervisor only. Others may work beside it: of three attempts of one
run, the second never has that lock, and is alive all the same when the third takes it from the first.
"""

from __future__ import annotations

import errno
import os
import time

from gpuflow.runtime import files

HELD = (errno.EWOULDBLOCK, errno.EACCES)
"""What a lock that someone else has is refused with; anything else says that there are no locks here."""
_TRIES = 100


class Alive:
    """This attempt's own lock."""

    def __init__(self) -> None:
        self._handle = -1

    def hold(self, folder: str) -> bool:
        """Take it, again when the folder was made anew; False where there are no locks."""
        path = os.path.join(folder, "alive")
        for _ in range(_TRIES):
            if same_file(self._handle, path):
                return True
            self.leave()
            os.makedirs(folder, exist_ok=True)
            try:
                self._handle = _locked(path)
            except OSError as refusal:
                # Someone found the folder before there was a lock on it, and is removing it.
                if refusal.errno not in (*HELD, errno.ENOENT):
                    return False
                time.sleep(0.01)
        return same_file(self._handle, path)

    def leave(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
        self._handle = -1


def remove_if_dead(folder: str) -> None:
    """Remove an attempt's folder, unless its supervisor lives. Who comes meanwhile waits for the lock."""
    from gpuflow.runtime.directory import discard

    try:
        handle = _locked(os.path.join(folder, "alive"))
    except OSError:
        return
    discard(folder)
    os.close(handle)


def same_file(handle: int, path: str) -> bool:
    """Whether a path still leads to the file that was opened."""
    try:
        return handle >= 0 and os.path.samestat(os.fstat(handle), os.stat(path))
    except OSError:
        return False


def _locked(path: str) -> int:
    import fcntl

    handle = files.open_regular(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise
    return handle
