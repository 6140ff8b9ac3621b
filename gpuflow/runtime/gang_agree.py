"""One outcome for a gang: what its ranks report, and what follows from all of it.

Whoever is told to stop, or lost, takes the others with it: they fail of it, some earlier than the cause is known. So an
interruption beats every failure, and a failure waits a while for one. No clock decides, and the order in which reports
are looked at does not either.
"""

from __future__ import annotations

from gpuflow.runtime.outcomes import DISK_LIMIT, FINAL, INTERRUPTED, OUT_OF_MEMORY, RETRYABLE, SUCCEEDED, TIMED_OUT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuflow.runtime.gang_words import Times

COLLATERAL = "ended with its gang"
"""The outcome of a rank whose command ended after the gang had told it to: it says nothing."""
STRONGEST_FIRST = (INTERRUPTED, FINAL, OUT_OF_MEMORY, DISK_LIMIT, TIMED_OUT, RETRYABLE)


class Report:
    """What is known of one rank. `order` numbers the reports as they came to rank 0: the first failure is the cause."""

    def __init__(
        self, rank: int, outcome: str, because: str, code: int | None = None, *, order: int = 0, told: bool = False
    ) -> None:
        self.rank, self.outcome, self.because, self.code = rank, outcome, because, code
        self.order = order
        self.told = told
        """Whether it got a stop signal: why, the engine may know."""


def agree(reports: Iterable[Report], size: int) -> Report:
    """The report that speaks for the gang: of the strongest outcome the first. Without one, all must have succeeded."""
    found = sorted(reports, key=lambda report: (report.order, report.rank))
    for outcome in STRONGEST_FIRST:
        for report in found:
            if report.outcome == outcome:
                return report
    missing = set(range(size)) - {report.rank for report in found if report.outcome == SUCCEEDED}
    if missing:
        ranks = ", ".join(map(str, sorted(missing)))
        return Report(min(missing), INTERRUPTED, f"nothing was heard from rank {ranks}")
    return Report(0, SUCCEEDED, f"the command ended well on all {size} ranks", 0)


class Tally:
    """The reports of a running gang, and when they are enough. It looks at no clock: moments are given to it."""

    def __init__(self, size: int, times: Times) -> None:
        self.size, self.times = size, times
        self.reports: list[Report] = []
        self.decided: Report | None = None
        """The gang's outcome, once it is certain. Nothing that comes later changes it."""
        self._failed_at: float | None = None
        self.over: set[int] = set()
        """Ranks whose command runs no more."""

    def stopping(self, rank: int, outcome: str, because: str, *, told: bool = False) -> None:
        """A rank stops before its command's own end."""
        self._add(rank, outcome, because, None, told=told)
        self._decide()

    def lost(self, rank: int, because: str) -> None:
        """Nothing more will be heard from a rank."""
        self.over.add(rank)
        self.stopping(rank, INTERRUPTED, because)

    def ended(self, rank: int, outcome: str, because: str, code: int | None, now: float) -> None:
        """A rank's command has ended."""
        if rank in self.over:
            return
        self.over.add(rank)
        self._add(rank, outcome, because, code)
        if outcome == INTERRUPTED:
            self._decide()
        elif outcome not in (SUCCEEDED, COLLATERAL) and self._failed_at is None:
            self._failed_at = now
        self.look(now)

    def look(self, now: float) -> None:
        """Decide, if there is nothing left to wait for."""
        if self.decided is not None:
            return
        all_over = len(self.over) == self.size
        if self._failed_at is None:
            if all_over:
                self._decide()
            return
        if now >= self._failed_at + (self.times.linger if all_over else self.times.settle):
            self._decide()

    def _add(self, rank: int, outcome: str, because: str, code: int | None, *, told: bool = False) -> None:
        self.reports.append(Report(rank, outcome, because, code, order=len(self.reports), told=told))

    def _decide(self) -> None:
        if self.decided is None:
            self.decided = agree(self.reports, self.size)
