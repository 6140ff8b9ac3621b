"""Pod groups in their ClusterQueue: what they ask of it, and which flavors may give it to them.

The search for flavors ends well when some flavor has room for everything asked of its group. Which flavors count for
that depends on the queue's fungibility: a search that may stop where it can preempt never reaches the next flavor.

Workloads of others that wait for quota: they may get what the pipeline counts on.

Whatever the order in the queue, a workload that exists already can be admitted before one that is created later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final, NamedTuple

from gpuflow.checker.contention.concurrency import PendingRequest, PendingRequests
from gpuflow.checker.kueue import Assignment, Kueue
from gpuflow.checker.kueue.flavor_assigner import PodSetResources, check_pod_set_and_flavor_match_for_tas
from gpuflow.checker.kueue.flavors import topologies_of
from gpuflow.checker.kueue.scheduler import Head
from gpuflow.checker.kueue.snapshot import QuotaNode
from gpuflow.checker.kueue.workloads import NEVER, PREEMPTION_FIRST, TRY_NEXT, ClusterQueue, read_workload
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


class Charge(NamedTuple):
    """What the pods of one set ask of one resource group, and the flavors that may give it to them."""

    flavors: frozenset[str]
    amounts: Mapping[str, int]


class PendingPodSet(NamedTuple):
    """Pods of one set of a workload, and the flavors to whose nodes they may be sent."""

    namespace: str
    spec: Mapping[str, Any]
    pods: int
    flavors: frozenset[str]


class PendingWorkload(NamedTuple):
    """A workload that its queue may admit some day, what it will be charged, and its pods."""

    name: str
    queue: ClusterQueue
    charges: tuple[Charge, ...]
    pods: tuple[PendingPodSet, ...]


class PendingWorkloads:
    """All workloads that wait, by the ClusterQueue they wait in."""

    def __init__(self, kueue: Kueue, waiting: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        self.kueue = kueue
        self.workloads = list(_pending_workloads(kueue, waiting))
        self._pending: dict[tuple[QuotaNode, tuple[str, ...]], PendingRequests | None] = {}

    def requests_below(self, top: QuotaNode, flavors: tuple[str, ...]) -> PendingRequests | None:
        """The workloads that may be charged for these flavors in the queues below a node; `None` when there is none."""
        key = top, flavors
        if key not in self._pending:
            members = [
                PendingRequest(each.name, {**amounts, COUNT: 1})
                for each in self.workloads
                if top in self.kueue.snapshot.nodes[each.queue.name].path()
                and (amounts := _charged_amounts(each, frozenset(flavors)))
            ]
            self._pending[key] = PendingRequests(members) if members else None
        return self._pending[key]


def _pending_workloads(kueue: Kueue, waiting: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[PendingWorkload]:
    for name in sorted(waiting):
        for workload in waiting[name]:
            read = read_workload(workload)
            head = kueue.enter(read)
            if isinstance(head, Assignment) or kueue.assign(workload).verdict in ("never", "blocked"):
                continue
            charges: list[Charge] = []
            pods = []
            specs = {each.get("name") or "main": each["template"]["spec"] for each in workload["spec"]["podSets"]}
            for demand in head.demands:
                own = list(_charges(kueue, head.queue, demand))
                charges += own
                flavors = frozenset[str]().union(*(charge.flavors for charge in own if charge.amounts))
                pods.append(PendingPodSet(read.namespace, specs[demand.pod_set.name], demand.pods, flavors))
            yield PendingWorkload(f"{read.namespace}/{read.name}", head.queue, tuple(charges), tuple(pods))


def _charges(kueue: Kueue, queue: ClusterQueue, demand: PodSetResources) -> Iterator[Charge]:
    node = kueue.snapshot.nodes[queue.name]
    amounts = {**demand.amounts, "pods": demand.pods}
    for group in queue.groups:
        asked = {name: amounts[name] for name in group.covered if amounts.get(name, 0) > 0}
        flavors = frozenset(
            name
            for name in group.flavors
            if not kueue.flavors[name].mismatch(demand.pod_set.constraints)
            and (
                demand.pod_set.fewest < demand.pod_set.pods  # fewer of them may find room there
                or all(node.potential_available((name, resource)) >= amount for resource, amount in asked.items())
            )
        )
        yield Charge(flavors, asked)


def _charged_amounts(pending_workload: PendingWorkload, flavors: frozenset[str]) -> dict[str, int]:
    """The most that it takes of these flavors."""
    amounts: Counter[str] = Counter()
    for charge in pending_workload.charges:
        if not flavors.isdisjoint(charge.flavors):
            amounts.update(charge.amounts)
    return dict(amounts)
