"""The memory part of an attempt's sign of life: what the next attempt can read when this one is killed with its pod.

Looked at often, since memory fills fast; written seldom, since a store may be far away: at once when the share of the
limit rises over one of the marks, else at most every 30 seconds, and nothing at all below the first mark.
"""

from __future__ import annotations

import threading
import time

from gpuflow.runtime import memory
from gpuflow.runtime.book import now
from gpuflow.runtime.records import Usage
from gpuflow.runtime.store import StorageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuflow.runtime.ledger import Ledger

MARKS = (0.80, 0.90, 0.95)
EVERY = 30.0
SELDOM, OFTEN = 1.0, 0.1
"""Seconds between two looks, below the first mark and above it."""


def start(ledger: Ledger) -> Watch | None:
    """Watch from now on, where there is a limit to watch for."""
    if memory.working_set() is None:
        return None
    watch = Watch(ledger)
    watch.begin()
    return watch


class Watch:
    """One attempt's memory."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._over = threading.Event()
        self._mark = 0
        self._share = 0.0
        self._wrote: float | None = None

    def begin(self) -> None:
        threading.Thread(target=self._run, name="memory", daemon=True).start()

    def end(self) -> None:
        """The command has ended: what it used is no sign of anything any more."""
        self._over.set()

    def _run(self) -> None:
        while not self._over.wait(OFTEN if self._mark else SELDOM):
            seen = memory.working_set()
            if seen is not None:
                self.look(*seen, time.monotonic())
        seen = memory.working_set()
        if seen is not None and self._mark:
            # Whoever kills the supervisor from now on does not do it for the command's memory.
            self._write(*seen)

    def look(self, used: int, limit: int, moment: float) -> bool:
        """Write it down if it is time to; whether it was."""
        share = used / limit
        mark = sum(share >= each for each in MARKS)
        rises = mark > self._mark
        due = self._wrote is not None and moment - self._wrote >= EVERY and abs(share - self._share) >= 0.01
        if not (rises or due):
            return False
        self._wrote = moment
        if not self._write(used, limit):
            return False  # a mark that was not written is tried again at the next look
        self._mark, self._share = mark, share
        return True

    def _write(self, used: int, limit: int) -> bool:
        ledger = self._ledger
        key = ledger.memory_key(ledger.number, ledger.id)
        try:
            ledger.store.write(key, ledger.pack(Usage(used=used, limit=limit, time=now()), key))
        except (StorageError, OSError):
            return False
        return True
