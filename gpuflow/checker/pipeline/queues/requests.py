"""Pods in their Kueue queue: from which flavors each kind may get its quota, and how much there is of them.

The search for flavors ends well when some flavor has room for everything asked of its group. Which flavors count for
that depends on the queue's fungibility: a search that may stop where it can preempt never reaches the next flavor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

from gpuflow.checker.contention.bins import Bin
from gpuflow.checker.contention.competitors import Company, Gathering
from gpuflow.checker.contention.pending import Rivals
from gpuflow.checker.contention.proof import Contest
from gpuflow.checker.kueue import Assignment, Kueue
from gpuflow.checker.kueue.cycles import Case
from gpuflow.checker.kueue.flavors import Toleration
from gpuflow.checker.kueue.queues import MAY_STOP, NEVER, PREEMPTION_FIRST, TRY_NEXT, ClusterQueue
from gpuflow.checker.kueue.topology import topology_mismatch
from gpuflow.checker.kueue.tree import Node
from gpuflow.checker.kueue.workloads import read_workload
from gpuflow.checker.pipeline.pod_groups import Kind

COUNT: Final = "workloads"
MOST_ROUTES: Final = 64
"""So many combinations of flavors of different groups are followed to the nodes."""


Gather = Callable[["Lane", tuple[str, ...]], Gathering]
"""Who else may be charged for some flavors in the tree of a lane's queue."""
Waiting = Callable[[Node, tuple[str, ...]], Rivals | None]
"""Who waits in the queues below a node of the tree, and may be charged for some flavors first."""


def nobody(_top: Node, _flavors: tuple[str, ...]) -> None:
    """Nobody waits."""


@dataclass(frozen=True, slots=True)
class Group:
    """What a kind asks of one resource group, and the flavors of it that may give that, in their order."""

    asked: Mapping[str, int]
    flavors: tuple[str, ...]
    stopping: bool
    """Only the first flavor is sure to be reached."""
    owned: bool
    """Only room within the queue's own quota is sure to be taken."""
    settling: bool
    """Room in the first flavor ends the search."""


@dataclass(frozen=True, slots=True)
class Route:
    """Where a pod may be sent: the flavors it got, with the labels and tolerations that they put on it."""

    flavors: tuple[str, ...] = ()
    labels: Mapping[str, str] | None = None
    """`None` when the flavors contradict each other."""
    tolerations: tuple[Mapping[str, str], ...] = ()


DIRECT: Final = Route((), {})
"""The way of a pod that no queue sends anywhere."""


@dataclass(frozen=True, eq=False, slots=True)
class Lane:
    """A kind of pods in its queue, with Kueue's answer to one of them on the snapshot as it is."""

    kind: Kind
    queue: str
    found: Assignment
    cluster_queue: ClusterQueue | None = None
    amounts: Mapping[str, int] | None = None
    """What one workload is charged; `None` when it is not looked at."""
    groups: tuple[Group, ...] = ()

    @property
    def is_hopeless(self) -> bool:
        return self.found.verdict in ("never", "blocked")


def lane_of(kueue: Kueue, kind: Kind, queue: str, workload: Mapping[str, Any]) -> Lane:
    found = kueue.assign(workload)
    case = kueue.enter(read_workload(workload))
    if isinstance(case, Assignment):
        return Lane(kind, queue, found, kueue.queues.get(found.cluster_queue or ""))
    (demand,) = case.demands
    amounts = {**demand.amounts, **({"pods": demand.pods} if case.queue.group_of("pods") else {})}
    return Lane(kind, queue, found, case.queue, amounts, tuple(_groups(kueue, case, amounts)))


def _groups(kueue: Kueue, case: Case, amounts: Mapping[str, int]) -> Iterator[Group]:
    queue, pod_set = case.queue, case.demands[0].pod_set
    node = kueue.snapshot.nodes[queue.name]
    known = (kueue.flavors[name] for name in queue.flavors)
    topologies = {flavor.name: flavor.topology for flavor in known if flavor.topology is not None}
    policy, fungibility = queue.preemption, queue.fungibility
    may_preempt = (policy.within_queue, policy.reclaim, policy.borrow) != (NEVER, NEVER, NEVER)
    for group in queue.groups:
        named = group.covered & amounts.keys()
        if not named:
            continue
        asked = {name: amounts[name] for name in sorted(named) if amounts[name] > 0}
        fitting = tuple(
            name
            for name in group.flavors
            if not kueue.flavors[name].mismatch(pod_set.constraints)
            and not topology_mismatch(pod_set, kueue.flavors[name], queue, topologies, group.covered)
            and all(node.potential((name, resource)) >= amount for resource, amount in asked.items())
        )
        contested = may_preempt and len(fitting) > 1
        stopping = contested and fungibility.when_can_preempt == MAY_STOP
        yield Group(
            asked,
            fitting,
            stopping,
            contested
            and (fungibility.preference == PREEMPTION_FIRST or (stopping and fungibility.when_can_borrow == TRY_NEXT)),
            fungibility.when_can_borrow == MAY_STOP,
        )


def contest_of(
    kueue: Kueue, lane: Lane, group: Group, gather: Gather, waiting: Waiting = nobody, *, first: bool = False
) -> Contest:
    """The lane before the flavors of one group, with all lanes that take quota from the same tree.

    `first`: before the first flavor alone, in which only room that ends the search counts.
    """
    assert lane.cluster_queue is not None
    node = kueue.snapshot.nodes[lane.cluster_queue.name]
    flavors = group.flavors[:1] if first or group.stopping else group.flavors
    owned = group.owned or (first and not group.settling)
    bins = [Bin({name: _room(node, (flavor, name), owned) for name in group.asked}) for flavor in flavors]
    rivals = waiting(root_of(kueue, lane), flavors)
    return Contest(lane.kind.steps, group.asked, bins, gather(lane, flavors), COUNT, rivals=rivals)


def gathering_of(kueue: Kueue, top: Node, flavors: tuple[str, ...], lanes: list[Lane]) -> Gathering:
    """All lanes that may be charged for these flavors in the queues below a node of the tree of quota."""
    found = []
    for lane in lanes:
        if lane.is_hopeless or top not in path_of(kueue, lane):
            continue
        amounts = {
            name: amount
            for group in lane.groups
            if not set(flavors).isdisjoint(group.flavors)
            for name, amount in group.asked.items()
        }
        if amounts:
            found.append(Company(lane.kind.steps, {**amounts, COUNT: 1}))
    return Gathering(found)


def root_of(kueue: Kueue, lane: Lane) -> Node:
    """The top of the tree in which the lane's queue borrows and lends."""
    return path_of(kueue, lane)[-1]


def path_of(kueue: Kueue, lane: Lane) -> list[Node]:
    """The lane's queue and the cohorts above it."""
    assert lane.cluster_queue is not None
    return kueue.snapshot.nodes[lane.cluster_queue.name].path()


def _room(node: Node, key: tuple[str, str], owned: bool) -> int:
    left = max(0, node.available(key))
    return min(left, node.subtree.get(key, 0) - node.usage.get(key, 0)) if owned else left


def routes_of(kueue: Kueue, choices: list[tuple[str, ...]]) -> list[Route] | None:
    """Every combination of flavors, one of each group; `None` when there are too many to follow."""
    total = 1
    for flavors in choices:
        total *= len(flavors)
    if total > MOST_ROUTES:
        return None
    return [_route(kueue, flavors) for flavors in product(*choices)]


def _route(kueue: Kueue, names: tuple[str, ...]) -> Route:
    names = tuple(dict.fromkeys(names))
    labels: dict[str, str] | None = {}
    for name in names:
        for key, value in kueue.flavors[name].labels.items():
            if labels is not None and labels.setdefault(key, value) != value:
                labels = None
    tolerations = [_manifest(each) for name in names for each in kueue.flavors[name].tolerations]
    return Route(names, labels, tuple(tolerations))


def _manifest(toleration: Toleration) -> dict[str, str]:
    return {key: value for key, value in toleration._asdict().items() if value}
