"""How long storage may fail: counted from the last progress, so that what is slow but moves is never given up."""

from __future__ import annotations

import time

from gpuflow.runtime.store import StorageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_FIRST_WAIT, _LONGEST_WAIT = 0.1, 5.0


class Patience:
    """So many seconds without any progress."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._last = time.monotonic()

    def progress(self) -> None:
        """Something arrived."""
        self._last = time.monotonic()

    def over(self, ahead: float = 0.0) -> bool:
        """Whether it is at its end, or will be after a wait of so many seconds."""
        return time.monotonic() + ahead - self._last >= self.seconds

    def persist(self, action: Callable[[], Any], proceed: Callable[[], bool]) -> Any:
        """Do it, and on a storage error again with growing waits; at once no more when told to stop."""
        wait = _FIRST_WAIT
        while True:
            moment = self._last
            try:
                done = action()
                self.progress()
                return done
            except StorageError:
                if self._last > moment:
                    wait = _FIRST_WAIT
                if not proceed() or self.over(wait):
                    raise
            until = time.monotonic() + wait
            while proceed() and time.monotonic() < until:
                time.sleep(min(0.1, until - time.monotonic()))
            wait = min(2 * wait, _LONGEST_WAIT)
