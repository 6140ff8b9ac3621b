"""Whom a workload would preempt: the search for victims without fair sharing.

Victims are taken away one by one until the workload fits, then given back, last first, as far as it still fits.

Mirrors sigs.k8s.io/kueue/pkg/scheduler/preemption.Preemptor.classicalPreemptions, Kueue v0.19.2.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import NamedTuple

from gpuflow.checker.kueue.reasons import FlavorResource, minus
from gpuflow.checker.kueue.snapshot import QuotaNode, Snapshot
from gpuflow.checker.kueue.tas_flavor_snapshot import NotPlaced, PlaceRequest, find_topology_assignments
from gpuflow.checker.kueue.workloads import NEVER, Holder
from gpuflow.cluster.kueue_objects import Preemption


class Preemptor(NamedTuple):
    """The preempting workload, with the fields that preemption reads."""

    cluster_queue: str
    priority: int
    queued_at: datetime
    preemption: Preemption


class Variant(Enum):
    WITHIN_QUEUE = "InClusterQueue"
    HIERARCHY = "InCohortReclamation"
    WITHOUT_BORROWING = "InCohortReclamation, without borrowing"
    WHILE_BORROWING = "InCohortReclaimWhileBorrowing"


class PreemptionCandidate(NamedTuple):
    holder: Holder
    variant: Variant
    below: QuotaNode | None
    """The cohort that its ClusterQueue shares with the asking one."""


def get_targets(
    asking: Preemptor,
    snapshot: Snapshot,
    needed: Collection[FlavorResource],
    wanted: Mapping[FlavorResource, int],
    asked: Sequence[PlaceRequest] = (),
) -> list[Holder]:
    """The workloads to preempt so that `wanted` fits, with quota lacking in `needed`; empty when none will do. `asked`:
    what must find a place as well."""
    own = snapshot.nodes[asking.cluster_queue]
    same_queue = _get_candidates_from_cq(own, None, Variant.WITHIN_QUEUE, asking, snapshot, needed)
    hierarchy, priority = _collect_candidates_for_hierarchical_reclaim(asking, snapshot, needed, wanted)
    ordered = _order_candidates(hierarchy, priority, same_queue)
    for may_borrow in _attempts(asking.preemption, own, needed, bool(hierarchy), bool(priority)):
        targets: list[Holder] = []
        try:
            for candidate in ordered:
                if not _candidate_is_valid(candidate, asking, snapshot, needed, may_borrow):
                    continue
                snapshot.remove_workload(candidate.holder)
                targets.append(candidate.holder)
                if _workload_fits(own, wanted, may_borrow, snapshot, asked):
                    _fill_back_workloads(targets, snapshot, own, wanted, may_borrow, asked)
                    return list(targets)
        finally:
            for target in targets:
                snapshot.add_workload(target)
    return []


def _attempts(
    policy: Preemption, own: QuotaNode, needed: Collection[FlavorResource], has_hierarchy: bool, has_priority: bool
) -> tuple[bool, ...]:
    """Whether to try with borrowing, without, or both, and in which order."""
    may_not_borrow = policy.borrow_within_cohort.policy == NEVER
    is_under = all(own.subtree.get(key, 0) > own.usage.get(key, 0) for key in needed)
    if not (has_hierarchy or has_priority) or (may_not_borrow and not is_under):
        return (True,)
    return (False, True) if may_not_borrow and not has_hierarchy else (True, False)


def _get_candidates_from_cq(
    node: QuotaNode,
    below: QuotaNode | None,
    variant: Variant | None,
    asking: Preemptor,
    snapshot: Snapshot,
    needed: Collection[FlavorResource],
) -> list[PreemptionCandidate]:
    """Workloads of one ClusterQueue that may be preempted; without a given variant priorities decide it."""
    policy = (
        asking.preemption.within_cluster_queue
        if variant is Variant.WITHIN_QUEUE
        else asking.preemption.reclaim_within_cohort
    )
    return [
        PreemptionCandidate(holder, variant or _classify_preemption_variant(holder, asking), below)
        for holder in snapshot.holders.get(node.name, ())
        if not holder.uses.isdisjoint(needed) and _satisfies_preemption_policy(policy, asking, holder)
    ]


def _collect_candidates_for_hierarchical_reclaim(
    asking: Preemptor, snapshot: Snapshot, needed: Collection[FlavorResource], wanted: Mapping[FlavorResource, int]
) -> tuple[list[PreemptionCandidate], list[PreemptionCandidate]]:
    """Those it may preempt because their quota is nearer to it, and those it may by priority."""
    own = snapshot.nodes[asking.cluster_queue]
    hierarchy: list[PreemptionCandidate] = []
    priority: list[PreemptionCandidate] = []
    if asking.preemption.reclaim_within_cohort == NEVER:
        return hierarchy, priority
    has_advantage, left = _quantities_fit_in_quota(own, wanted)
    seen: QuotaNode | None = None
    for root in own.path()[1:]:
        found = hierarchy if has_advantage else priority
        variant = Variant.HIERARCHY if has_advantage else None
        for node in _borrowing_queues(root, seen, own, needed):
            found += _get_candidates_from_cq(node, root, variant, asking, snapshot, needed)
        fits, left = _quantities_fit_in_quota(root, left)
        has_advantage = has_advantage or fits
        seen = root
    return hierarchy, priority


def _borrowing_queues(
    root: QuotaNode, seen: QuotaNode | None, own: QuotaNode, needed: Collection[FlavorResource]
) -> list[QuotaNode]:
    """ClusterQueues below `root` that use more than their quota, outside subtrees that do not."""
    found: list[QuotaNode] = []
    stack = [root]
    while stack:
        cohort = stack.pop()
        stack += (
            below for below in cohort.cohorts if below is not seen and not below.is_within_nominal_in_resources(needed)
        )
        found += (
            queue for queue in cohort.queues if queue is not own and not queue.is_within_nominal_in_resources(needed)
        )
    return found


def _quantities_fit_in_quota(
    node: QuotaNode, requests: Mapping[FlavorResource, int]
) -> tuple[bool, dict[FlavorResource, int]]:
    """Whether the requests fit below this node, and what of them its parent has to give."""
    fits = not any(node.borrowing_with(key, amount) for key, amount in requests.items())
    return fits, {key: max(0, minus(amount, node.local_available(key))) for key, amount in requests.items()}


def _satisfies_preemption_policy(policy: str, asking: Preemptor, holder: Holder) -> bool:
    if policy == "LowerPriority":
        return asking.priority > holder.priority
    if policy == "LowerOrNewerEqualPriority":
        is_newer = asking.priority == holder.priority and asking.queued_at < holder.queued_at
        return asking.priority > holder.priority or is_newer
    return policy == "Any"


def _classify_preemption_variant(holder: Holder, asking: Preemptor) -> Variant:
    policy = asking.preemption
    above_threshold = (
        policy.borrow_within_cohort.max_priority_threshold is not None
        and holder.priority > policy.borrow_within_cohort.max_priority_threshold
    )
    if policy.borrow_within_cohort.policy == NEVER or holder.priority >= asking.priority or above_threshold:
        return Variant.WITHOUT_BORROWING
    return Variant.WHILE_BORROWING


def _order_candidates(*groups: list[PreemptionCandidate]) -> list[PreemptionCandidate]:
    """Those already on their way out first; then group by group, lowest priority and latest admission first."""

    def rank(each: PreemptionCandidate) -> tuple[int, float, str]:
        return each.holder.priority, -each.holder.reserved_at.timestamp(), each.holder.uid

    ranked = [candidate for group in groups for candidate in sorted(group, key=rank)]
    return sorted(ranked, key=lambda each: not each.holder.is_evicted)


def _candidate_is_valid(
    candidate: PreemptionCandidate,
    asking: Preemptor,
    snapshot: Snapshot,
    needed: Collection[FlavorResource],
    may_borrow: bool,
) -> bool:
    """Earlier victims may have brought a queue back within its quota: its workloads are safe then."""
    if candidate.variant is Variant.WITHIN_QUEUE:
        return True
    if may_borrow and candidate.variant is Variant.WITHOUT_BORROWING:
        return False
    for node in snapshot.nodes[candidate.holder.cluster_queue].path():
        if node is candidate.below:
            break
        if node.is_within_nominal_in_resources(needed):
            return False
    return True


def _workload_fits(
    own: QuotaNode,
    wanted: Mapping[FlavorResource, int],
    may_borrow: bool,
    snapshot: Snapshot,
    asked: Sequence[PlaceRequest],
) -> bool:
    is_short = any(
        (not may_borrow and own.borrowing_with(key, amount)) or amount > max(0, own.available(key))
        for key, amount in wanted.items()
    )
    return not is_short and (
        snapshot.trees is None or not isinstance(find_topology_assignments(snapshot.trees, asked), NotPlaced)
    )


def _fill_back_workloads(
    targets: list[Holder],
    snapshot: Snapshot,
    own: QuotaNode,
    wanted: Mapping[FlavorResource, int],
    may_borrow: bool,
    asked: Sequence[PlaceRequest],
) -> None:
    for index in range(len(targets) - 2, -1, -1):
        snapshot.add_workload(targets[index])
        if _workload_fits(own, wanted, may_borrow, snapshot, asked):
            targets[index] = targets[-1]
            targets.pop()
        else:
            snapshot.remove_workload(targets[index])
