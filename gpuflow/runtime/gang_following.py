"""One attempt of a gang from look to look: when it has ended and why, when it waited too long, when its pods are gone.

Like `gang_watch` it asks nobody by itself, and deletes nothing: it says what is to be done.
"""

from __future__ import annotations

import time

from gpuflow.runtime import gang_verdict
from gpuflow.runtime.gang_verdict import Verdict
from gpuflow.runtime.outcomes import FINAL, INTERRUPTED, SUCCEEDED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from gpuflow.runtime.gang_watch import Asking, Watch

SETTLE = 20.0
"""Seconds after a failed rank in which one that was taken away would still show."""


class Following:
    """What the looks at one attempt add up to."""

    def __init__(
        self,
        watch: Watch,
        tell: Callable[[str], None],
        *,
        settle: float = SETTLE,
        queue_deadline: float | None = None,
        container: str = "main",
        final_exit_codes: Collection[int] = (),
        retryable_exit_codes: Collection[int] | None = None,
    ) -> None:
        self.watch, self._tell = watch, tell
        self._settle, self._queue_deadline = settle, queue_deadline
        self._codes = (container, final_exit_codes, retryable_exit_codes)
        self._settled: float | None = None
        self.words = ""
        """Where it stands, as it was last said."""
        self.is_late = False
        """Whether it ended because it waited too long."""
        self.must_go = False
        """Whether its object is to be deleted: nobody waits for it any more."""

    @property
    def is_settling(self) -> bool:
        """Whether a rank has failed, and others are still looked at."""
        return self._settled is not None

    def look(self) -> Asking:
        """One look: how it ended, None while it goes on."""
        watch = self.watch
        yield from watch.look()
        verdict = watch.verdict(*self._codes)
        if verdict is None:
            self._settled = None
            return (yield from self._waiting())
        ended = watch.jobset is not None and gang_verdict.has_ended(watch.jobset, watch.jobs, watch.kind)
        if verdict.outcome in (SUCCEEDED, INTERRUPTED):
            # Its controller would go on, with another pod in the place of the one that was taken away.
            there = watch.jobset is not None and not watch.jobset["metadata"].get("deletionTimestamp")
            self.must_go = verdict.outcome == INTERRUPTED and watch.kind.replaces_pods and there and not ended
            return verdict
        # One rank that failed may be the first sign of another that is being taken away.
        now = time.monotonic()
        if self._settled is None:
            self._settled = now + self._settle
            self._tell(verdict.because)
        if now < self._settled and (watch.alive() or not ended):
            return None
        self.must_go = gang_verdict.deactivated(watch.workload) is not None
        return verdict

    def _waiting(self) -> Asking:
        words = yield from self.watch.situation()
        if words != self.words:
            self._tell(words)
            self.words = words
        if self._queue_deadline is None or self.watch.has_run or time.time() <= self._queue_deadline:
            return None
        self.is_late = self.must_go = True
        return Verdict(FINAL, f"waited too long until all its pods ran: {words}")


class Draining:
    """Two starts of one rank never run side by side, unless the first cannot be stopped."""

    def __init__(self, watch: Watch, tell: Callable[[str], None], seconds: float) -> None:
        self._watch, self._tell, self._said = watch, tell, False
        self._until = time.monotonic() + seconds

    def is_over(self) -> bool:
        """After a look: whether its pods have ended, or had their time."""
        alive = [] if self._watch.jobset is None else self._watch.alive()
        if not alive:
            return True
        if time.monotonic() >= self._until:
            self._tell(f"{', '.join(sorted(alive))} did not end in its grace; going on")
            return True
        if not self._said:
            self._tell("waiting until its pods have ended")
            self._said = True
        return False
