"""Storage may fail for a while: how long it is tried again, and when that is given up."""

from __future__ import annotations

import time

from gpuflow.runtime.store import StorageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_GLANCE = 0.2
"""How often a wait looks whether it is still wanted."""
_IN_VAIN = 3
"""So many long tries in a row that came no further are enough."""
_SAID_EVERY = 10.0
"""Seconds of trouble between two lines in the log."""


class Limit:
    """How long storage may fail, counted from the last progress: a long transfer that moves is not in trouble.

    Bytes that move once more, in another try, are no progress: a store that takes all of a file and then refuses it
    would be tried for ever.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.last = self._before = time.monotonic()
        self.renew()

    def renew(self) -> None:
        """From now on it is about something else, of which nothing has moved yet."""
        self._moved = self._furthest = self._settled = self._in_vain = 0

    def progress(self, moved: int | None = None) -> None:
        """Something was done; or so many bytes more have `moved` in this try."""
        if moved is not None:
            self._moved += moved
            if self._moved <= self._furthest:
                return
            self._furthest = self._moved
        self.last = time.monotonic()

    def begin(self) -> None:
        """A try begins, perhaps from the beginning."""
        self._moved, self._before = 0, self.last

    def has_gained(self, settled: int = 0) -> bool:
        """Whether the try that failed came further than any before; so much is `settled` and will not be sent again."""
        if settled > self._settled:
            self._settled = settled
            self.progress()
        gained = self.last != self._before
        self._in_vain = 0 if gained else self._in_vain + 1
        return gained

    def is_over(self, wait: float = 0.0) -> bool:
        """Whether it is given up, instead of waiting so long. Tries that take long may come less far than the best."""
        return time.monotonic() + wait >= self.until and (not self._moved or self._in_vain >= _IN_VAIN)

    @property
    def until(self) -> float:
        return self.last + self.seconds


def persist(
    action: Callable[[], object],
    until: float | Limit,
    give_up: Callable[[], bool] = lambda: False,
    *,
    settled: Callable[[], int] = lambda: 0,
    say: Callable[[str], None] = lambda _: None,
    first_wait: float = 0.1,
    longest_wait: float = 5.0,
) -> object:
    """Do it, and on a storage error again with growing waits, until a moment on the monotonic clock or a limit.

    `settled` says how much of it is done for good, in any unit; `say` hears now and then what is wrong.
    """
    wait, said = first_wait, time.monotonic()
    if isinstance(until, Limit):
        until.renew()
    while True:
        try:
            if isinstance(until, Limit):
                until.begin()
            done = action()
            if isinstance(until, Limit):
                until.progress()
            return done
        except StorageError as refusal:
            if isinstance(until, Limit) and until.has_gained(settled()):
                wait = first_wait
            over = until.is_over(wait) if isinstance(until, Limit) else time.monotonic() + wait >= until
            if give_up() or over:
                raise
            if time.monotonic() - said >= _SAID_EVERY:
                said = time.monotonic()
                say(f"storage fails, and is tried again: {refusal}")
            left = wait
            while left > 0:
                time.sleep(min(_GLANCE, left))
                left -= _GLANCE
                if give_up():
                    raise
        wait = min(2 * wait, longest_wait)
