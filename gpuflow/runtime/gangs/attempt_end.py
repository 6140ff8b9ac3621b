"""The end of one attempt of a gang: from look to look whether it has come and why, and the outputs that rank 0 left.

`AttemptFollower` says when the attempt has ended, and when it waited too long; `PodDrain` says when its pods are gone.
Like `watch` they ask nobody by themselves, and delete nothing: they say what is to be done.

Rank 0 writes the outputs of the gang into its termination message; here they are put where the engine looks.
"""

from __future__ import annotations

import hashlib
import os
import time

from gpuflow.runtime.artifacts import outputs
from gpuflow.runtime.artifacts.outputs import BadOutput
from gpuflow.runtime.base import termination_message
from gpuflow.runtime.base.outcomes import FINAL, INTERRUPTED, SUCCEEDED
from gpuflow.runtime.base.records import KeptOutput
from gpuflow.runtime.gangs import attempt_verdict
from gpuflow.runtime.gangs.attempt_verdict import Verdict
from gpuflow.runtime.supervise.object_state import format_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from typing import Any

    from gpuflow.runtime.artifacts.outputs import Output
    from gpuflow.runtime.base.options import Options
    from gpuflow.runtime.gangs.watch import Questions, Watch

SETTLE = 20.0
"""Seconds after a failed rank in which one that was taken away would still show."""


class AttemptFollower:
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

    def look(self) -> Questions:
        """One look: how it ended, None while it goes on."""
        watch = self.watch
        yield from watch.look()
        verdict = watch.verdict(*self._codes)
        if verdict is None:
            self._settled = None
            return (yield from self._check_queue())
        ended = watch.jobset is not None and attempt_verdict.has_ended(watch.jobset, watch.jobs, watch.kind)
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
        if now < self._settled and (watch.live_pods() or not ended):
            return None
        self.must_go = attempt_verdict.deactivation_message(watch.workload) is not None
        return verdict

    def _check_queue(self) -> Questions:
        words = yield from self.watch.situation()
        if words != self.words:
            self._tell(words)
            self.words = words
        if self._queue_deadline is None or self.watch.has_run or time.time() <= self._queue_deadline:
            return None
        self.is_late = self.must_go = True
        return Verdict(FINAL, f"waited too long until all its pods ran: {words}")


class PodDrain:
    """Two starts of one rank never run side by side, unless the first cannot be stopped."""

    def __init__(self, watch: Watch, tell: Callable[[str], None], seconds: float) -> None:
        self._watch, self._tell, self._said = watch, tell, False
        self._until = time.monotonic() + seconds

    def is_over(self) -> bool:
        """After a look: whether its pods have ended, or had their time."""
        alive = [] if self._watch.jobset is None else self._watch.live_pods()
        if not alive:
            return True
        if time.monotonic() >= self._until:
            self._tell(f"{', '.join(sorted(alive))} did not end in its grace; going on")
            return True
        if not self._said:
            self._tell("waiting until its pods have ended")
            self._said = True
        return False


NO_OUTPUTS = "rank 0 left no outputs: nobody knows that its work is done"


def deliver_outputs(options: Options, rank_0: Mapping[str, Any] | None) -> str | None:
    """Put the declared outputs where the engine looks; why not, when rank 0 has not said them."""
    if not (declared := outputs.parse(options.output)):
        return None
    if (kept := read_outputs(declared, rank_0, options.container)) is None:
        return NO_OUTPUTS
    if options.engine == "kubeflow":
        for output in declared:
            value = kept[output.name].value
            if value is not None:
                outputs.number_for_kubeflow(output, value)
    if options.outputs_dir:
        os.makedirs(options.outputs_dir, exist_ok=True)
    outputs.deliver(kept, options.engine, options.outputs_dir or "", outputs.pairs(options.deliver, "deliver"))
    return None


def read_outputs(
    declared: Sequence[Output], rank_0: Mapping[str, Any] | None, container: str
) -> dict[str, KeptOutput] | None:
    """The declared outputs in rank 0's last words; None when it left no word, BadOutput when they are not as declared.
    Of a file or directory the words say where it is kept."""
    if (given := _outputs_in_message(rank_0, container)) is None:
        return None
    kept = {}
    for output in declared:
        if given.get(output.name) is None:
            raise BadOutput(f'rank 0 left no output "{output.name}"')
        text = format_value(given[output.name])
        digest = hashlib.sha256(text.encode()).hexdigest()
        if output.is_kept:
            kept[output.name] = KeptOutput(type=output.kind, uri=text, sha256=digest)
        else:
            outputs.parse_value(output, text)
            kept[output.name] = KeptOutput(type=output.kind, value=text, sha256=digest)
    return kept


def _outputs_in_message(pod: Mapping[str, Any] | None, container: str) -> dict[str, Any] | None:
    states = ((pod or {}).get("status") or {}).get("containerStatuses") or ()
    for status in [each for each in states if each.get("name") == container] or list(states)[:1]:
        ended = (status.get("state") or {}).get("terminated") or {}
        facts = termination_message.parse(ended.get("message")) if ended.get("exitCode") == 0 else None
        given = (facts or {}).get("outputs")
        return given if isinstance(given, dict) else None
    return None
