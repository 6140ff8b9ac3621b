"""StrictFIFO: the first workload of a queue that cannot be admitted holds up all behind it.

Mirrors sigs.k8s.io/kueue/pkg/cache/queue.queueOrderingFunc, Kueue v0.19.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from gpuflow.checker.kueue.amounts import FlavorResource
from gpuflow.checker.kueue.prechecks import workload_refusal
from gpuflow.checker.kueue.reasons import InadmissibleReason
from gpuflow.checker.kueue.scheduler import Assignment, Kueue, run_cycles
from gpuflow.checker.kueue.workloads import NOT_YET, Workload, read_workload

LONG_AGO: Final = datetime.min.replace(tzinfo=NOT_YET.tzinfo)


class Blocker(NamedTuple):
    """A workload that is ahead of another one and is not admitted."""

    namespace: str
    name: str
    assignment: Assignment

    @property
    def is_forever(self) -> bool:
        """Whether it is never admitted, so that only its removal lets others pass."""
        return self.assignment.verdict in ("never", "blocked")


def blocker_ahead(kueue: Kueue, workload: Mapping[str, Any], pending: Iterable[Mapping[str, Any]]) -> Blocker | None:
    """The pending workload that keeps this one from being looked at, in a StrictFIFO ClusterQueue.

    Those ahead that fit are taken to be admitted first. `None` when nothing holds it up, and always for a
    BestEffortFIFO queue.
    """
    asked = read_workload(workload)
    queue = kueue.queue_of(asked)
    if queue is None or not queue.is_strict:
        return None
    others = (
        each for each in map(read_workload, pending) if kueue.queue_of(each) is queue and not workload_refusal(each)
    )
    # Of one whose age is not known, all that is certain is that it was there before.
    places = {_place(each, kueue, since=LONG_AGO): each for each in others}
    node = kueue.snapshot.nodes[queue.name]
    admitted: list[Mapping[FlavorResource, int]] = []
    try:
        for _, each in sorted(item for item in places.items() if item[0] < _place(asked, kueue, since=NOT_YET)):
            head = kueue.enter(each)
            if isinstance(head, Assignment):
                if head.blocked is InadmissibleReason.NAMESPACE:
                    continue  # The one refusal that does not keep a workload at the head.
                return Blocker(each.namespace, each.name, head)
            answer = kueue.decide(each, head, kueue.snapshot)
            if not answer.fits:
                return Blocker(each.namespace, each.name, answer)
            admitted.append(run_cycles(head, kueue.snapshot)[0].proposal.usage)
            node.add_usage(admitted[-1])
    finally:
        for usage in admitted:
            node.remove_usage(usage)
    return None


def _place(workload: Workload, kueue: Kueue, since: datetime) -> tuple[int, datetime, str, str, str]:
    """Where it stands: priority first, then how long it has waited; `since` when that is not known."""
    since = workload.queued_at(by_eviction=kueue.configuration.orders_by_eviction) or since
    return -workload.priority, since, workload.uid, workload.namespace, workload.name
