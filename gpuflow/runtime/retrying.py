"""Storage may fail for a while: how long it is tried again, and when that is given up. `waiting` is about one try."""

from __future__ import annotations

import time

from gpuflow.runtime.store import Refusal, StorageError
from gpuflow.runtime.waiting import EXPECTED, Late, Lines, Silent, attend

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_GLANCE = 0.2
"""How often a wait looks whether it is still wanted."""
_IN_VAIN = 3
"""So many long tries in a row that came no further are enough."""


class Limit:
    """How long storage may fail, counted from the last progress: a long transfer that moves is not in trouble.

    Bytes that move once more, in another try, are no progress: a store that takes all of a file and then refuses it
    would be tried for ever.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.last = self._before = time.monotonic()
        self.bytes, self.waited = 0, 0.0
        """All that has moved, in whichever try; and when we waited last, of our own will."""
        self.ended_in_silence = False
        """Whether the last try stood still before it failed."""
        self.renew()

    def renew(self) -> None:
        """From now on it is about something else, of which nothing has moved yet."""
        self._moved = self._furthest = self._settled = self._in_vain = 0

    def progress(self, moved: int | None = None) -> None:
        """Something was done; or so many bytes more have `moved` in this try; none, when we wait of our own will."""
        if not moved:
            self.waited = time.monotonic()
        if moved is not None:
            self._moved += moved
            self.bytes += moved
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
        enough = not self._moved or self._in_vain >= _IN_VAIN or self.ended_in_silence
        return time.monotonic() + wait >= self.until and enough

    @property
    def until(self) -> float:
        return self.last + self.seconds


def persist(
    action: Callable[[], object],
    until: float | Limit,
    give_up: Callable[[], bool] = lambda: False,
    *,
    settled: Callable[[], int] = lambda: 0,
    say: Callable[[str], None] | None = None,
    first_wait: float = 0.1,
    longest_wait: float = 5.0,
) -> object:
    """Do it, and on a storage error again with growing waits, until a moment on the monotonic clock or a limit.

    `settled` says how much of it is done for good, in any unit; `say` hears now and then what is wrong. One that does
    not answer is given up at the same moment, one that is refused for good at once.
    """
    wait, began, lines = first_wait, time.monotonic(), Lines(say or EXPECTED.say)
    limit = until if isinstance(until, Limit) else None
    seconds = until.seconds if isinstance(until, Limit) else max(0.0, until - began)
    if limit is not None:
        limit.renew()
    while True:
        try:
            if limit is not None:
                limit.begin()
            done = attend(
                action, seconds, max(began, limit.last) if limit is not None else began, give_up, lines, limit
            )
            if limit is not None:
                limit.progress()
            return done
        except StorageError as refusal:
            if limit is not None:
                limit.ended_in_silence = limit.ended_in_silence or isinstance(refusal, Late)
                wait = first_wait if limit.has_gained(settled()) else wait
            over = limit.is_over(wait) if limit is not None else time.monotonic() + wait >= began + seconds
            if give_up() or over or isinstance(refusal, (Silent, Refusal)):
                raise
            lines.now_and_then(f"storage fails, and is tried again: {refusal}")
            left = wait
            while left > 0:
                time.sleep(min(_GLANCE, left))
                left -= _GLANCE
                if give_up():
                    raise
        wait = min(2 * wait, longest_wait)
