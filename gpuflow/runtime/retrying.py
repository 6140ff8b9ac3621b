"""Storage may fail for a while: how long it is tried again, and when that is given up."""

from __future__ import annotations

import time

from gpuflow.runtime.store import StorageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_GLANCE = 0.2
"""How often a wait looks whether it is still wanted."""


class Limit:
    """How long storage may fail, counted from the last progress: a long transfer that moves is not in trouble."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.last = time.monotonic()

    def progress(self) -> None:
        self.last = time.monotonic()

    @property
    def until(self) -> float:
        return self.last + self.seconds


def persist(
    action: Callable[[], object],
    until: float | Limit,
    give_up: Callable[[], bool] = lambda: False,
    *,
    first_wait: float = 0.1,
    longest_wait: float = 5.0,
) -> object:
    """Do it, and on a storage error again with growing waits, until a moment on the monotonic clock or a limit."""
    wait, last = first_wait, until.last if isinstance(until, Limit) else 0.0
    while True:
        try:
            done = action()
            if isinstance(until, Limit):
                until.progress()
            return done
        except StorageError:
            if isinstance(until, Limit) and until.last != last:
                wait, last = first_wait, until.last
            over = until.until if isinstance(until, Limit) else until
            if give_up() or time.monotonic() + wait >= over:
                raise
            left = wait
            while left > 0:
                time.sleep(min(_GLANCE, left))
                left -= _GLANCE
                if give_up():
                    raise
        wait = min(2 * wait, longest_wait)
