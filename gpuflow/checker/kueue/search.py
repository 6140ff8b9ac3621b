"""The search for flavors: pod set by pod set, resource group by resource group, flavor by flavor.

Mirrors sigs.k8s.io/kueue/pkg/scheduler/flavorassigner.FlavorAssigner.findFlavorForPodSets, Kueue v0.19.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from gpuflow.checker.kueue.amounts import FlavorResource, clamp, in_visiting_order, minus, plus
from gpuflow.checker.kueue.preemption import Preemptor, find_targets
from gpuflow.checker.kueue.proposal import (
    BEST,
    WORST,
    Choice,
    Found,
    GranularMode,
    PodSetResources,
    PreemptionMode,
    Progress,
    Proposal,
)
from gpuflow.checker.kueue.queues import NEVER, PREEMPTION_FIRST, TRY_NEXT, ClusterQueue, Fungibility, ResourceGroup
from gpuflow.checker.kueue.reasons import AboveCapacity, FlavorNotFound, FlavorReason, NoUnusedQuota, Uncovered
from gpuflow.checker.kueue.snapshot import Snapshot
from gpuflow.checker.kueue.topology import asks_topology, place_request, topology_fault, topology_mismatch
from gpuflow.checker.kueue.topology_placement import NotPlaced, PlaceRequest, place


class Search:
    """One scan over the flavors of a ClusterQueue for one workload."""

    def __init__(
        self,
        asking: Preemptor,
        snapshot: Snapshot,
        queue: ClusterQueue,
        progress: Progress,
        ignores_undeclared: bool,
    ) -> None:
        self.asking = asking
        self.snapshot = snapshot
        self.queue = queue
        self.node = snapshot.nodes[queue.name]
        self.progress = progress
        self.ignores_undeclared = ignores_undeclared
        self.lacked_quota = False
        """Whether anything did not fit into unused quota, so that preemption was considered."""

    @cached_property
    def topologies(self) -> dict[str, str]:
        """The topology-aware flavors of the ClusterQueue."""
        known = (self.snapshot.flavors[name] for name in self.queue.flavors if name in self.snapshot.flavors)
        return {flavor.name: flavor.topology for flavor in known if flavor.topology is not None}

    def run(self, demands: Sequence[PodSetResources]) -> Proposal:
        found: list[Found] = []
        usage: dict[FlavorResource, int] = {}
        if self.queue.group_of("pods"):
            demands = [
                each._replace(amounts=in_visiting_order({**each.amounts, "pods": each.pods})) for each in demands
            ]
        for indices in _groups(demands):
            group = [demands[index] for index in indices]
            choices, reasons = self._choose(group, indices, usage)
            has_failed = False
            for demand in group:
                own = self._own(demand, choices)
                found.append(Found(demand, own, tuple(reasons)))
                for name, choice in own.items():
                    key = choice.flavor, name
                    usage[key] = plus(usage.get(key, 0), demand.amounts.get(name, 0))
                has_failed = has_failed or bool(demand.amounts and not own)
            if has_failed:
                return Proposal(tuple(found), usage)
        proposal = Proposal(tuple(found), usage)
        return proposal if proposal.mode is PreemptionMode.NO_FIT else self._placed(proposal)

    def _own(self, demand: PodSetResources, choices: Mapping[str, Choice]) -> dict[str, Choice]:
        """The flavors of a group that concern one pod set; one that asks for nothing goes where its group goes."""
        if not demand.amounts and demand.pod_set.topology.group is not None:
            return {name: choice for name, choice in choices.items() if choice.flavor in self.topologies}
        return {name: choices[name] for name in demand.amounts if name in choices}

    def _placed(self, proposal: Proposal) -> Proposal:
        """The proposal, with what topology-aware scheduling says to it."""
        found: list[Found] = []
        asked: list[PlaceRequest] = []
        for each in proposal.found:
            pod_set, pods = each.demand.pod_set, each.demand.pods
            flavors = {choice.flavor for choice in each.choices.values()}
            fault = topology_fault(pod_set, self.queue, self.topologies, flavors) if pods else None
            found.append(each._replace(error=fault) if fault else each)
            if pods and not fault and asks_topology(pod_set, self.queue, self.topologies):
                (flavor,) = (name for name in flavors if name in self.topologies)
                asked.append(place_request(pod_set, pods, flavor))
        proposal = proposal._replace(found=tuple(found), asked=tuple(asked))
        # Without nodes, and for slices of pods, quota alone is judged.
        has_slices = any(each.demand.pod_set.topology.has_slices for each in found)
        return proposal if self.snapshot.trees is None or has_slices else self._on_nodes(proposal)

    def _on_nodes(self, proposal: Proposal) -> Proposal:
        trees = self.snapshot.trees
        assert trees is not None
        if proposal.mode is PreemptionMode.FIT:
            places = place(trees, proposal.asked)
            if not isinstance(places, NotPlaced):
                return proposal._replace(places=places)
            proposal = proposal.refused(places)
        if proposal.mode is PreemptionMode.NO_FIT:
            return proposal
        if isinstance(place(trees, proposal.asked, empty=True), NotPlaced):
            return proposal._replace(by_place=PreemptionMode.NO_FIT)
        return proposal.preempting() if proposal.asked else proposal

    def _choose(
        self, group: list[PodSetResources], indices: list[int], usage: Mapping[FlavorResource, int]
    ) -> tuple[dict[str, Choice], list[FlavorReason]]:
        """Flavors for all resources of a group of pod sets that share them, or none with the reasons."""
        total: dict[str, int] = {}
        for demand in group:
            for name, amount in demand.amounts.items():
                total[name] = clamp(total.get(name, 0) + amount)
        total = in_visiting_order(total)
        choices: dict[str, Choice] = {}
        reasons: list[FlavorReason] = []
        for name, amount in total.items():
            resource_group = self.queue.group_of(name)
            if resource_group is None:
                if amount == 0 or self.ignores_undeclared:
                    continue
                return {}, [Uncovered(name)]
            if name in choices:
                continue
            covered = {each: total[each] for each in total if each in resource_group.covered}
            best, offer, why = self._scan(group, indices[0], name, covered, resource_group, usage)
            if not best:
                return {}, why
            choices |= best
            if offer.mode is not PreemptionMode.FIT:
                reasons += why
        return choices, reasons

    def _scan(
        self,
        group: list[PodSetResources],
        first: int,
        resource: str,
        requests: Mapping[str, int],
        resource_group: ResourceGroup,
        usage: Mapping[FlavorResource, int],
    ) -> tuple[dict[str, Choice], GranularMode, list[FlavorReason]]:
        """The best flavor of a resource group, going on where the last scan stopped."""
        best: dict[str, Choice] = {}
        best_offer = WORST
        reasons: list[FlavorReason] = []
        stopped_at = -1
        start = self.progress[first].get(resource, -1) + 1 if first < len(self.progress) else 0
        for index in range(start, len(resource_group.flavors)):
            stopped_at = index
            flavor = resource_group.flavors[index]
            mismatch = self._mismatch(flavor, group, resource_group)
            if mismatch:
                reasons.append(mismatch)
                continue
            offer = BEST
            choices: dict[str, Choice] = {}
            for name, amount in requests.items():
                own, reason = self._offer(flavor, name, usage.get((flavor, name), 0), amount)
                if reason:
                    reasons.append(reason)
                if _is_better(offer, own, self.queue.fungibility):
                    offer = own
                if offer.mode is not PreemptionMode.NO_FIT:
                    choices[name] = Choice(flavor, own.mode, -1)
            if not _goes_on(offer, self.queue.fungibility):
                best, best_offer = choices, offer
                break
            if _is_better(offer, best_offer, self.queue.fungibility):
                best, best_offer = choices, offer
        if stopped_at == len(resource_group.flavors) - 1:
            stopped_at = -1
        return {name: each._replace(stopped_at=stopped_at) for name, each in best.items()}, best_offer, reasons

    def _mismatch(self, name: str, group: list[PodSetResources], resource_group: ResourceGroup) -> FlavorReason | None:
        flavor = self.snapshot.flavors.get(name)
        if flavor is None:
            return FlavorNotFound(name)
        for demand in group:
            covered = resource_group.covered
            mismatch = topology_mismatch(
                demand.pod_set, flavor, self.queue, self.topologies, covered, self.snapshot.levels
            )
            reason = mismatch or flavor.mismatch(demand.pod_set.constraints)
            if reason:
                return reason
        return None

    def _offer(self, flavor: str, resource: str, before: int, amount: int) -> tuple[GranularMode, FlavorReason | None]:
        """How so much of a flavor could be had, on top of what pod sets before took, and what is against it."""
        key = flavor, resource
        total = plus(before, amount)
        most = self.node.potential(key)
        if total > most:
            return GranularMode(PreemptionMode.NO_FIT, 0), AboveCapacity(resource, flavor, before, amount, most)
        height, may_reclaim = self.node.lowest_fit(key, total)
        available = max(0, self.node.available(key))
        if total <= available:
            return GranularMode(PreemptionMode.FIT, height), None
        self.lacked_quota = True
        reason = NoUnusedQuota(resource, flavor, minus(total, available))
        nominal = self.node.subtree.get(key, 0)
        if nominal >= total or may_reclaim or self.queue.preemption.borrow != NEVER:
            return self._preemption(key, total), reason
        return GranularMode(PreemptionMode.NO_FIT, height), reason

    def _preemption(self, key: FlavorResource, total: int) -> GranularMode:
        """What preemption in this flavor and resource alone would come to."""
        targets = find_targets(self.asking, self.snapshot, {key}, {key: total})
        for target in targets:
            self.snapshot.remove(target)
        height, _ = self.node.lowest_fit(key, total)
        for target in targets:
            self.snapshot.add(target)
        if not targets:
            return GranularMode(PreemptionMode.NO_CANDIDATES, height)
        is_within_queue = any(target.cluster_queue == self.queue.name for target in targets)
        return GranularMode(PreemptionMode.PREEMPT if is_within_queue else PreemptionMode.RECLAIM, height)


def _groups(demands: Sequence[PodSetResources]) -> list[list[int]]:
    """The pod sets that must share their flavors, by a common topology group; most stand alone."""
    groups: dict[str, list[int]] = {}
    for index, demand in enumerate(demands):
        name = demand.pod_set.topology.group
        groups.setdefault(str(index) if name is None else name, []).append(index)
    return list(groups.values())


def _is_better(one: GranularMode, other: GranularMode, fungibility: Fungibility) -> bool:
    if PreemptionMode.NO_FIT in (one.mode, other.mode):
        return one.mode is not PreemptionMode.NO_FIT
    if (one.mode is PreemptionMode.NO_CANDIDATES) is not (other.mode is PreemptionMode.NO_CANDIDATES):
        return other.mode is PreemptionMode.NO_CANDIDATES
    if fungibility.preference == PREEMPTION_FIRST:
        return (-one.height, one.mode) > (-other.height, other.mode)
    return (one.mode, -one.height) > (other.mode, -other.height)


def _goes_on(offer: GranularMode, fungibility: Fungibility) -> bool:
    """Whether the search looks at the next flavor too."""
    if offer.mode in (PreemptionMode.NO_FIT, PreemptionMode.NO_CANDIDATES):
        return True
    if offer.mode is not PreemptionMode.FIT and fungibility.when_can_preempt == TRY_NEXT:
        return True
    return offer.height > 0 and fungibility.when_can_borrow == TRY_NEXT
