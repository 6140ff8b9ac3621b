"""How far a long transfer is, in the log: how much of how much, how fast, and how long it still takes."""

from __future__ import annotations

import threading
import time

from gpuflow.runtime import units

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

EVERY = 10.0
"""Seconds between two lines."""


class Progress:
    """One transfer. `moved` is called from any thread, with the bytes of each piece."""

    def __init__(self, say: Callable[[str], None], what: str, every: float = EVERY) -> None:
        self.say, self.what, self.every = say, what, every
        self.total = self.done = self.files = 0
        self.began = self._last = time.monotonic()
        self._lock = threading.Lock()

    def begin(self, total: int, files: int, done: int = 0) -> None:
        """So many bytes in so many files are to come; called again when it is tried again."""
        self.total, self.files, self.done = total, files, done

    def moved(self, count: int) -> None:
        with self._lock:
            self.done = min(self.total, self.done + count)  # what is tried again counts once
            now = time.monotonic()
            if now - self._last < self.every:
                return
            self._last = now
        self.say(self.line(now))

    def line(self, now: float) -> str:
        """What is said on the way."""
        rate = self.done / max(now - self.began, 0.001)
        left = max(0, self.total - self.done)
        rest = f", about {units.spoken(left / rate)} left" if rate > 0 and self.total else ""
        return f"{self.what}: {amount(self.done)} of {amount(self.total)}, {amount(rate)}/s{rest}"

    def ended(self) -> str:
        """What is said at the end: nothing for what took no time worth a word."""
        took = time.monotonic() - self.began
        return f"{self.what}: {amount(self.total)} in {_files(self.files)}, in {units.spoken(took)}" + (
            f" ({amount(self.total / took)}/s)" if took > 1 else ""
        )


def amount(count: float) -> str:
    """Bytes for a person: `12 bytes`, `3.4 MB`."""
    for limit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= limit:
            return f"{count / limit:.3g} {name}"
    return f"{count:.0f} bytes"


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count:,} files"
