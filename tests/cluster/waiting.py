"""Waiting for something to become true, with a message that says what was seen instead."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Seen = TypeVar("Seen")

LEAST = 300.0
"""Seconds, at least, on a machine of any speed: a limit only ends what hangs."""


class TooLate(AssertionError):
    """What was awaited did not happen in time."""


def until(
    what: str,
    look: Callable[[], Seen],
    *,
    timeout: float = 60.0,
    every: float = 0.2,
    otherwise: Callable[[], object] | None = None,
) -> Seen:
    """Call `look` until it returns something true, and return that; `otherwise` words the failure."""
    timeout = max(timeout, LEAST)
    deadline = time.monotonic() + timeout
    while True:
        if seen := look():
            return seen
        if time.monotonic() > deadline:
            words = f"\n{otherwise()}" if otherwise else ""
            raise TooLate(f"{what}: not after {timeout:.0f} s{words}")
        time.sleep(every)
