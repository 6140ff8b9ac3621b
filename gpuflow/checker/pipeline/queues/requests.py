"""Pod groups in their ClusterQueue: what they ask of it, and which flavors may give it to them.

The search for flavors ends well when some flavor has room for everything asked of its group. Which flavors count for
that depends on the queue's fungibility: a search that may stop where it can preempt never reaches the next flavor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

from gpuflow.checker.kueue import Assignment, Kueue
from gpuflow.checker.kueue.flavor_assigner import check_pod_set_and_flavor_match_for_tas
from gpuflow.checker.kueue.flavors import topologies_of
from gpuflow.checker.kueue.queues import NEVER, PREEMPTION_FIRST, TRY_NEXT, ClusterQueue
from gpuflow.checker.kueue.scheduler import Head
from gpuflow.checker.kueue.workloads import read_workload
from gpuflow.checker.pipeline.pod_groups import PodGroup

COUNT: Final = "workloads"
MOST_ASSIGNMENTS: Final = 64
"""So many combinations of flavors of different groups are followed to the nodes."""


@dataclass(frozen=True, slots=True)
class GroupRequest:
    """What a pod group asks of one resource group, and the flavors that may give it, in their order."""

    asked: Mapping[str, int]
    flavors: tuple[str, ...]
    first_flavor_only: bool
    """Only the first flavor is sure to be reached."""
    own_quota_only: bool
    """Only room within the queue's own quota is sure to be taken."""
    stops_when_borrowing: bool
    """Room in the first flavor ends the search."""


@dataclass(frozen=True, slots=True)
class FlavorAssignment:
    """Where a pod may be sent: the flavors it got, with the labels and tolerations that they put on it."""

    flavors: tuple[str, ...] = ()
    labels: Mapping[str, str] | None = None
    """`None` when the flavors contradict each other."""
    tolerations: tuple[Mapping[str, str], ...] = ()


UNQUEUED_ASSIGNMENT: Final = FlavorAssignment((), {})
"""The way of a pod that no queue sends anywhere."""


@dataclass(frozen=True, eq=False, slots=True)
class QueueRequest:
    """A pod group in its queue, with Kueue's answer to one of its pods on the snapshot as it is."""

    pod_group: PodGroup
    queue: str
    found: Assignment
    cluster_queue: ClusterQueue | None = None
    amounts: Mapping[str, int] | None = None
    """What one workload is charged; `None` when it is not looked at."""
    groups: tuple[GroupRequest, ...] = ()

    @property
    def is_hopeless(self) -> bool:
        return self.found.verdict in ("never", "blocked")


def queue_request(kueue: Kueue, pod_group: PodGroup, queue: str, workload: Mapping[str, Any]) -> QueueRequest:
    found = kueue.assign(workload)
    head = kueue.enter(read_workload(workload))
    if isinstance(head, Assignment):
        return QueueRequest(pod_group, queue, found, kueue.queues.get(found.cluster_queue or ""))
    (demand,) = head.demands
    amounts = {**demand.amounts, **({"pods": demand.pods} if head.queue.group_of("pods") else {})}
    return QueueRequest(pod_group, queue, found, head.queue, amounts, tuple(_groups(kueue, head, amounts)))


def _groups(kueue: Kueue, head: Head, amounts: Mapping[str, int]) -> Iterator[GroupRequest]:
    queue, pod_set = head.queue, head.demands[0].pod_set
    node = kueue.snapshot.nodes[queue.name]
    topologies = topologies_of(kueue.flavors, queue.flavors)
    policy, fungibility = queue.preemption, queue.fungibility
    policies = policy.within_cluster_queue, policy.reclaim_within_cohort, policy.borrow_within_cohort.policy
    may_preempt = policies != (NEVER, NEVER, NEVER)
    for group in queue.groups:
        named = group.covered & amounts.keys()
        if not named:
            continue
        asked = {name: amounts[name] for name in sorted(named) if amounts[name] > 0}
        fitting = tuple(
            name
            for name in group.flavors
            if not kueue.flavors[name].mismatch(pod_set.constraints)
            and not check_pod_set_and_flavor_match_for_tas(
                pod_set, kueue.flavors[name], queue, topologies, group.covered, kueue.levels
            )
            and all(node.potential_available((name, resource)) >= amount for resource, amount in asked.items())
        )
        may_preempt_on = may_preempt and len(fitting) > 1
        first_flavor_only = may_preempt_on and fungibility.when_can_preempt != TRY_NEXT
        yield GroupRequest(
            asked,
            fitting,
            first_flavor_only,
            may_preempt_on
            and (
                fungibility.preference == PREEMPTION_FIRST
                or (first_flavor_only and fungibility.when_can_borrow == TRY_NEXT)
            ),
            fungibility.when_can_borrow != TRY_NEXT,
        )


def flavor_assignments(kueue: Kueue, choices: list[tuple[str, ...]]) -> list[FlavorAssignment] | None:
    """Every combination of flavors, one of each group; `None` when there are too many to follow."""
    total = 1
    for flavors in choices:
        total *= len(flavors)
    if total > MOST_ASSIGNMENTS:
        return None
    return [_flavor_assignment(kueue, flavors) for flavors in product(*choices)]


def _flavor_assignment(kueue: Kueue, names: tuple[str, ...]) -> FlavorAssignment:
    names = tuple(dict.fromkeys(names))
    labels: dict[str, str] | None = {}
    for name in names:
        for key, value in kueue.flavors[name].labels.items():
            if labels is not None and labels.setdefault(key, value) != value:
                labels = None
    return FlavorAssignment(names, labels, tuple(tolerations_of(kueue, names)))


def tolerations_of(kueue: Kueue, flavors: Iterable[str]) -> list[dict[str, str]]:
    """The tolerations that flavors put on a pod, as a manifest writes them."""
    given = (each for name in flavors for each in kueue.flavors[name].tolerations)
    return [{key: value for key, value in each._asdict().items() if value} for each in given]


def sent_spec(spec: Mapping[str, Any], assignment: FlavorAssignment) -> dict[str, Any]:
    """A pod's spec with the labels and tolerations that Kueue adds when it admits the pod."""
    return {
        **spec,
        "nodeSelector": {**(spec.get("nodeSelector") or {}), **(assignment.labels or {})},
        "tolerations": [*(spec.get("tolerations") or ()), *assignment.tolerations],
    }
