"""Pod groups in their ClusterQueue: which flavors may give them quota, and how much there is up to the root cohort.

The search for flavors ends well when some flavor has room for everything asked of its group. Which flavors count for
that depends on the queue's fungibility: a search that may stop where it can preempt never reaches the next flavor.

What a queue can still have is the least of what each level lets through: its own borrowing limit, that of every cohort
above it, and what the root has left. Steps of another queue count only on the levels that both queues share, and never
on quota that a lending limit keeps from all others. A workload may take a part of what it asks from such quota and
the rest from what is lent, so that one which is too large for a level can still use it up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Final, NamedTuple

from gpuflow.checker.contention.bins import Bin
from gpuflow.checker.contention.competitors import Competitor, Competitors, PendingRequests
from gpuflow.checker.contention.proof import Contention
from gpuflow.checker.kueue import Assignment, Kueue
from gpuflow.checker.kueue.amounts import UNLIMITED, FlavorResource, minus, plus
from gpuflow.checker.kueue.flavor_assigner import check_pod_set_and_flavor_match_for_tas
from gpuflow.checker.kueue.queues import NEVER, PREEMPTION_FIRST, TRY_NEXT, ClusterQueue
from gpuflow.checker.kueue.scheduler import Head
from gpuflow.checker.kueue.snapshot import NO_QUOTA, QuotaNode
from gpuflow.checker.kueue.workloads import read_workload
from gpuflow.checker.pipeline.pod_groups import PodGroup

COUNT: Final = "workloads"
MOST_ASSIGNMENTS: Final = 64
"""So many combinations of flavors of different groups are followed to the nodes."""


CompetitorsOf = Callable[["QueueRequest", tuple[str, ...]], Competitors]
"""Which pods may be charged for some flavors in the cohort tree of a request's ClusterQueue."""
HasLimits = Callable[[QuotaNode, tuple[str, ...]], bool]
"""Whether limits below a root cohort make some quota of these flavors one that not all queues can have."""
PendingBelow = Callable[[QuotaNode, tuple[str, ...]], PendingRequests | None]
"""Who waits in the queues below a node of the tree, and may be charged for some flavors first."""


def no_pending(_top: QuotaNode, _flavors: tuple[str, ...]) -> None:
    """No pending requests."""


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
    known = (kueue.flavors[name] for name in queue.flavors)
    topologies = {flavor.name: flavor.topology for flavor in known if flavor.topology is not None}
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


def contention_of(
    kueue: Kueue,
    request: QueueRequest,
    group: GroupRequest,
    competitors: CompetitorsOf,
    limited: HasLimits,
    pending_below: PendingBelow,
    *,
    first: bool,
) -> Contention:
    """The request and the flavors of one group, with all requests that take quota from the same cohort tree.

    `first`: before the first flavor alone, in which only room that ends the search counts.
    """
    assert request.cluster_queue is not None
    node = kueue.snapshot.nodes[request.cluster_queue.name]
    flavors = group.flavors[:1] if first or group.first_flavor_only else group.flavors
    own_quota_only = group.own_quota_only or (first and not group.stops_when_borrowing)
    bins = [Bin({name: _room(node, (flavor, name), own_quota_only) for name in group.asked}) for flavor in flavors]
    pending = pending_below(root_of(kueue, request), flavors)
    return Contention(
        request.pod_group.steps,
        group.asked,
        bins,
        competitors(request, flavors),
        COUNT,
        pending=pending,
        reaches_outside=own_quota_only or limited(root_of(kueue, request), flavors),
    )


def has_limits(kueue: Kueue, root: QuotaNode, flavors: tuple[str, ...]) -> bool:
    """Whether a limit on borrowing or lending makes some quota of these flavors one that not all queues can have."""
    paths = (node.path() for node in kueue.snapshot.nodes.values())
    below = {each for path in paths if path[-1] is root for each in path}
    return any(
        quota.borrowing is not None or quota.lending is not None
        for node in below
        for (flavor, _), quota in node.quotas.items()
        if flavor in flavors
    )


def competitors_of(kueue: Kueue, top: QuotaNode, flavors: tuple[str, ...], requests: list[QueueRequest]) -> Competitors:
    """All requests that may be charged for these flavors in the ClusterQueues below a node of the cohort tree."""
    found = []
    for request in requests:
        if request.is_hopeless or top not in path_of(kueue, request):
            continue
        amounts = {
            name: amount
            for group in request.groups
            if not set(flavors).isdisjoint(group.flavors)
            for name, amount in group.asked.items()
        }
        if amounts:
            found.append(Competitor(request.pod_group.steps, {**amounts, COUNT: 1}))
    return Competitors(found)


def root_of(kueue: Kueue, request: QueueRequest) -> QuotaNode:
    """The root cohort in which the request's ClusterQueue borrows and lends."""
    return path_of(kueue, request)[-1]


def path_of(kueue: Kueue, request: QueueRequest) -> list[QuotaNode]:
    """The request's ClusterQueue and the cohorts above it."""
    assert request.cluster_queue is not None
    return kueue.snapshot.nodes[request.cluster_queue.name].path()


def _room(node: QuotaNode, key: tuple[str, str], own_quota_only: bool) -> int:
    left = max(0, node.available(key))
    return min(left, node.subtree.get(key, 0) - node.usage.get(key, 0)) if own_quota_only else left


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


CompetitorsBelow = Callable[[QuotaNode, tuple[str, ...]], Competitors]
"""Who may be charged for some flavors in the queues below a node."""
MostCharged = Callable[[QuotaNode, FlavorResource], int | None]
"""The most that the pipeline's steps are charged at a node for a resource of a flavor; `None`: not known."""


class Level(NamedTuple):
    """One limit on the way up, and whether all that can ever be charged there is within it."""

    contention: Contention
    is_enough: bool


class CohortHeadroom(NamedTuple):
    """A resource of one flavor: there is room when no level refuses, or when the queue's own quota does not."""

    levels: list[Level]
    own: Level


def cohort_headroom(
    kueue: Kueue,
    request: QueueRequest,
    group: GroupRequest,
    below: CompetitorsBelow,
    most_charged: MostCharged,
    pending: PendingBelow,
) -> Iterator[list[CohortHeadroom]]:
    """For each flavor that the search is sure to try, all resources of the request; no flavor without a cohort."""
    assert request.cluster_queue is not None
    leaf = kueue.snapshot.nodes[request.cluster_queue.name]
    if leaf.parent is None or group.own_quota_only:
        return

    def headroom(flavor: str, resource: str, amount: int) -> CohortHeadroom:
        key = flavor, resource

        def level(node: QuotaNode, room: int) -> Level:
            most, waiting = most_charged(node, key), pending(node, (flavor,))
            contention = Contention(
                request.pod_group.steps,
                {resource: amount},
                [Bin({resource: room})],
                below(node, (flavor,)),
                COUNT,
                pending=waiting,
                reaches_outside=True,
            )
            others = 0 if waiting is None else waiting.total(resource)
            return Level(contention, most is not None and most + others <= room)

        levels = [level(node, _most_from_level(leaf, height, key)) for height, node in enumerate(leaf.path())]
        # Where the cohort has given out more than it has, Kueue takes the difference from what the queue keeps.
        kept = max(0, min(leaf.local_available(key), leaf.available(key)))
        return CohortHeadroom(levels, level(leaf, kept))

    for flavor in group.flavors[:1] if group.first_flavor_only else group.flavors:
        yield [headroom(flavor, resource, amount) for resource, amount in group.asked.items()]


def _most_from_level(leaf: QuotaNode, height: int, key: FlavorResource) -> int:
    """What the level so far above a queue lets it have, with what the levels below keep for it."""
    path = leaf.path()
    node = path[height]
    kept = sum(each.local_available(key) for each in path[:height])
    if node.parent is None:
        return max(0, plus(kept, minus(node.subtree.get(key, 0), node.usage.get(key, 0))))
    limit = node.quotas.get(key, NO_QUOTA).borrowing
    if limit is None:
        return UNLIMITED
    local = node.local_quota(key)
    lent = minus(minus(node.subtree.get(key, 0), local), max(0, minus(node.usage.get(key, 0), local)))
    return max(0, plus(plus(kept, node.local_available(key)), plus(lent, limit)))
