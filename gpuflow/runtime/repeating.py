"""A failed command started again in the same container, for engines that start no failed pod again.

Each start is an attempt like any other: it looks into the book, takes a number, restores the newest checkpoint and has
its own timeout and outputs. Only what happens between two attempts is new: a wait, which a stop signal ends. An attempt
that was interrupted, or that is final, is never repeated here.
"""

from __future__ import annotations

import time

from gpuflow.runtime import units
from gpuflow.runtime.child import say, stop_is_pending
from gpuflow.runtime.options import Options
from gpuflow.runtime.store import Memory

_GLANCE = 0.2
"""How often a wait looks whether it is still wanted."""
_LONGEST = float(2**31)


class Repeats:
    """How often this process may start the command again, and how long it waits before each time."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.book = Memory()
        """Where there is no place that outlives the container, the attempts are counted here."""
        self.done = 0
        self._most: int = options.retries if options.retries is not None else options.failures
        self._longest = _LONGEST if options.backoff_max is None else float(options.backoff_max)
        self._wait = min(self._longest, float(options.backoff))

    def are_left(self) -> bool:
        """Whether one more is allowed. The book counts too; this holds where it could not be written."""
        return self.done < self._most

    def wait(self) -> bool:
        """Wait for the next attempt; False when told to stop meanwhile."""
        self.done += 1
        # What the engine told was about the attempt before this process.
        self.options = Options({**self.options.__dict__, "last": None}, self.options.command)
        when = f"in {units.spoken(self._wait)}" if self._wait else "now"
        say(f"the command is started again {when}, in this container ({self.done} of at most {self._most} times)")
        until = time.monotonic() + self._wait
        self._wait = min(self._longest, self._wait * self.options.backoff_factor)
        while not stop_is_pending():
            left = until - time.monotonic()
            if left <= 0:
                return True
            time.sleep(min(_GLANCE, left))
        return False
