"""Steps of one pipeline in each other's way: one evicts another, or stands before it in a StrictFIFO queue."""

from __future__ import annotations

from collections.abc import Iterator

from gpuflow.checker.kueue.queues import NEVER
from gpuflow.checker.pipeline.queues.requests import QueueRequest, root_of
from gpuflow.checker.pipeline.queues.verdicts import QueueVerdict, QueueVerdicts
from gpuflow.checker.wording import listed, where_of
from gpuflow.demands import Demand
from gpuflow.errors import Finding


def own_evictors(demand: Demand, queue_verdicts: QueueVerdicts) -> Iterator[Finding]:
    """Steps that may lack quota because of another step, and may then have that step evicted. One finding for each.

    Kueue 0.19 leaves a pod that it evicts before its gate is removed: it neither deletes it nor queues it again.
    """
    short = [each for each in queue_verdicts.all if _lacks_quota(each)]
    for each in short:
        victims = [
            step
            for other in queue_verdicts.all
            if other is not each and not other.request.is_hopeless and _may_evict(queue_verdicts, each, other)
            for step in other.request.pod_group.steps
        ]
        if victims:
            who = listed(each.request.pod_group.steps)
            yield Finding(
                "GF527",
                f"{who} may evict {listed(victims)} of the same pipeline in queue {each.request.queue}: they may run "
                "at the same time, and Kueue may leave an evicted pod behind its gate forever",
                where_of(demand, each.request.pod_group.steps[0]),
                "let one of them run at a time (needs, or the pipeline's parallel); a retry budget does not help",
                severity="warning",
            )


def _lacks_quota(each: QueueVerdict) -> bool:
    return not each.request.is_hopeless and each.decision is not None and each.decision.verdict != "always"


def _may_evict(queue_verdicts: QueueVerdicts, each: QueueVerdict, other: QueueVerdict) -> bool:
    return _is_allowed_to(queue_verdicts, each, other) and _may_overlap(queue_verdicts, each.request, other.request)


def _is_allowed_to(queue_verdicts: QueueVerdicts, each: QueueVerdict, other: QueueVerdict) -> bool:
    """Whether the queues let the one preempt the other."""
    own, their = each.request.cluster_queue, other.request.cluster_queue
    if own is None or their is None:
        return False
    flavors = {name for group in each.request.groups for name in group.flavors}
    if flavors.isdisjoint(name for group in other.request.groups for name in group.flavors):
        return False
    priority, victim = (queue_verdicts.setup.priority_of(one.request.pod_group) or 0 for one in (each, other))
    if own is their:
        policy = own.preemption.within_queue
        # Of two with the same priority the older one evicts: it was too large at first, and the other passed it.
        passed = policy == "LowerOrNewerEqualPriority" and priority == victim and _is_larger(each, other)
        return policy != NEVER and (priority > victim or passed)
    if root_of(queue_verdicts.kueue, each.request) is not root_of(queue_verdicts.kueue, other.request):
        return False
    policy = own.preemption.reclaim
    return policy == "Any" or (policy != NEVER and priority > victim)


def _is_larger(each: QueueVerdict, other: QueueVerdict) -> bool:
    theirs = other.request.amounts or {}
    return any(amount > theirs.get(name, 0) for name, amount in (each.request.amounts or {}).items())


def _may_overlap(queue_verdicts: QueueVerdicts, first: QueueRequest, second: QueueRequest) -> bool:
    if queue_verdicts.runs > 1:
        return True
    near = queue_verdicts.concurrency.neighbors(frozenset(first.pod_group.steps))
    return not near.isdisjoint(second.pod_group.steps)


def held_up(demand: Demand, queue_verdicts: QueueVerdicts) -> Iterator[Finding]:
    """Steps with enough quota that wait behind a step of the same pipeline which has none, in a StrictFIFO queue."""
    for each in queue_verdicts.all:
        queue = each.request.cluster_queue
        if queue is None or not queue.is_strict or not _lacks_quota(each):
            continue
        behind = [
            step
            for other in queue_verdicts.all
            if other.request.cluster_queue is queue
            and other.verdict == "always"
            and _may_overlap(queue_verdicts, each.request, other.request)
            for step in other.request.pod_group.steps
        ]
        if behind:
            verb = "waits" if len(behind) == 1 else "wait"
            yield Finding(
                "GF528",
                f"while {listed(each.request.pod_group.steps)} waits at the head of queue {each.request.queue}, "
                f"{listed(behind)} {verb} behind it: ClusterQueue {queue.name} is StrictFIFO",
                where_of(demand, behind[0]),
                "there is quota for it; use a BestEffortFIFO queue for it, or lower the parallelism",
                severity="warning",
            )
