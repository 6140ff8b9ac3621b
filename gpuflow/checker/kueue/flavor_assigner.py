"""The search for flavors: pod set by pod set, resource group by resource group, flavor by flavor.

What it comes to is a `Proposal`: the flavors of each pod set, or what stands against them. For topology-aware
scheduling it asks which flavors are for which pod sets, and what is asked of their nodes.

Mirrors FlavorAssigner.findFlavorForPodSets, Assignment.Message, PodSetAssignment.RepresentativeMode,
checkPodSetAndFlavorMatchForTAS and podSetTopologyRequest in sigs.k8s.io/kueue/pkg/scheduler/flavorassigner, Kueue
v0.19.2.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from gpuflow.checker.kueue.flavors import Flavor, topologies_of
from gpuflow.checker.kueue.preemption import Preemptor, get_targets
from gpuflow.checker.kueue.reasons import (
    AboveCapacity,
    FlavorNotFound,
    FlavorReason,
    FlavorResource,
    NoPlace,
    NoUnusedQuota,
    TopologyLevelMissing,
    TopologyMismatch,
    UncoveredResource,
    amounts_of,
    clamp,
    in_visiting_order,
    minus,
    plus,
)
from gpuflow.checker.kueue.snapshot import Snapshot
from gpuflow.checker.kueue.tas_flavor_snapshot import (
    NotPlaced,
    PlaceRequest,
    Places,
    by_group,
    find_topology_assignments,
)
from gpuflow.checker.kueue.workloads import (
    NEVER,
    PREEMPTION_FIRST,
    TRY_NEXT,
    ClusterQueue,
    PodSet,
    ResourceGroup,
    TopologyRequest,
    scale_amounts,
)
from gpuflow.cluster.kueue_objects import FlavorFungibility

Progress = tuple[Mapping[str, int], ...]
"""Per pod set and resource the flavor at which the last scan stopped, -1 when it saw them all."""


class PreemptionMode(IntEnum):
    """How a flavor could be had, best last."""

    NO_FIT = 0
    NO_CANDIDATES = 1
    PREEMPT = 2
    RECLAIM = 3
    FIT = 4


class GranularMode(NamedTuple):
    """How a flavor could be had, and how far up the tree its quota lies."""

    mode: PreemptionMode
    height: int


BEST = GranularMode(PreemptionMode.FIT, 0)
WORST = GranularMode(PreemptionMode.NO_FIT, 2**63 - 1)


class PodSetResources(NamedTuple):
    """A pod set with what all its pods together ask for."""

    pod_set: PodSet
    pods: int
    amounts: Mapping[str, int]

    def scaled_to(self, pods: int) -> PodSetResources:
        if self.pods in (0, pods):
            return self
        return self._replace(pods=pods, amounts=scale_amounts(self.amounts, self.pods, pods))


class Choice(NamedTuple):
    flavor: str
    mode: PreemptionMode
    stopped_at: int


class PodSetAssignment(NamedTuple):
    """What the search came to for one pod set."""

    demand: PodSetResources
    choices: Mapping[str, Choice]
    reasons: tuple[FlavorReason, ...]
    error: str | None = None

    def sentences(self) -> list[str]:
        return [each.sentence() for each in self.reasons]

    def as_preempting(self) -> PodSetAssignment:
        mode = PreemptionMode.PREEMPT
        return self._replace(choices={name: each._replace(mode=mode) for name, each in self.choices.items()})

    @property
    def mode(self) -> PreemptionMode:
        if self.error is None and not self.reasons:
            return PreemptionMode.FIT
        if self.error is not None or not self.choices:
            return PreemptionMode.NO_FIT
        return min(choice.mode for choice in self.choices.values())


class Proposal(NamedTuple):
    """What the search came to for a workload; pod sets after one that failed are not in it."""

    found: tuple[PodSetAssignment, ...]
    usage: Mapping[FlavorResource, int]
    asked: tuple[PlaceRequest, ...] = ()
    """What is asked of the nodes, by topology."""
    places: Mapping[str, Places] | None = None
    """The domains that each pod set gets; `None` where that is not known, or not possible now."""
    by_place: PreemptionMode | None = None
    """The mode, where topology-aware scheduling has decided it."""

    @property
    def mode(self) -> PreemptionMode:
        if self.by_place is not None:
            return self.by_place
        return min((each.mode for each in self.found), default=PreemptionMode.NO_FIT)

    def with_failure(self, failure: NotPlaced) -> Proposal:
        """The quota is there, and the place is not."""
        reason = NoPlace(failure.reason)
        found = (
            each._replace(reasons=(*each.reasons, reason)) if each.demand.pod_set.name == failure.pod_set else each
            for each in self.found
        )
        return self._replace(found=tuple(found), by_place=PreemptionMode.PREEMPT)

    def as_preempting(self) -> Proposal:
        """The proposal in preemption mode: other workloads may have to leave their domains, even with quota left."""
        placed = {each.pod_set for each in self.asked}
        found = (each.as_preempting() if each.demand.pod_set.name in placed else each for each in self.found)
        return self._replace(found=tuple(found), by_place=PreemptionMode.PREEMPT)

    @property
    def progress(self) -> Progress:
        return tuple({name: choice.stopped_at for name, choice in each.choices.items()} for each in self.found)

    @property
    def flavor_resources_need_preemption(self) -> set[FlavorResource]:
        """Where quota has to be preempted."""
        return {
            (choice.flavor, resource)
            for each in self.found
            for resource, choice in each.choices.items()
            if choice.mode is not PreemptionMode.FIT
        }

    @property
    def reasons(self) -> tuple[FlavorReason, ...]:
        """What the message lists; nothing where an error hides it."""
        if any(each.error is not None for each in self.found):
            return ()
        return tuple(dict.fromkeys(reason for each in self.found for reason in each.reasons))

    def message(self) -> str:
        parts = []
        for each in self.found:
            name = each.demand.pod_set.name
            if each.error is not None:
                return f"failed to assign flavors to pod set {name}: {each.error}"
            if each.reasons:
                parts.append(f"couldn't assign flavors to pod set {name}: {', '.join(sorted(each.sentences()))}")
        return "; ".join(parts)


Levels = Mapping[str, tuple[str, ...]]
"""The labels of each Topology, from the highest level to the lowest."""


def is_tas_requested(pod_set: PodSet, queue: ClusterQueue, topologies: Mapping[str, str]) -> bool:
    """Whether the pods are placed by topology: because they ask, or because the queue has nothing else."""
    return pod_set.topology.is_explicit or all(name in topologies for name in queue.flavors)


def check_pod_set_and_flavor_match_for_tas(
    pod_set: PodSet,
    flavor: Flavor,
    queue: ClusterQueue,
    topologies: Mapping[str, str],
    covered: Collection[str],
    levels: Levels | None,
) -> TopologyMismatch | TopologyLevelMissing | None:
    """Why a flavor is not for this pod set. `levels`: `None` where the Topologies are not known."""
    if not is_tas_requested(pod_set, queue, topologies):
        if flavor.topology is not None:
            return TopologyMismatch(flavor.name, is_topology_aware=True)
    elif pod_set.topology.is_explicit:
        if flavor.topology is None:
            if not set(covered).isdisjoint(pod_set.template.requests()):
                return TopologyMismatch(flavor.name, is_topology_aware=False)
        elif levels is not None and not _has_level(pod_set.topology, levels.get(flavor.topology, ())):
            return TopologyLevelMissing(flavor.name)
    return None


def _has_level(asked: TopologyRequest, levels: Collection[str]) -> bool:
    if asked.level is not None:
        return asked.level in levels
    return asked.has_slices or asked.unconstrained is True


def topology_fault(
    pod_set: PodSet, queue: ClusterQueue, topologies: Mapping[str, str], flavors: Collection[str]
) -> str | None:
    """Why the pods cannot be placed whatever the nodes are like, in Kueue's words."""
    if not is_tas_requested(pod_set, queue, topologies):
        return None
    if not topologies:
        return "workload requires Topology, but there is no TAS cache information"
    placed = sorted(name for name in flavors if name in topologies)
    if not placed:
        return "no TAS flavor assigned"
    if len(placed) > 1:
        return f"more than one TAS flavor assigned: {', '.join(placed)}"
    return None


def pod_set_topology_request(pod_set: PodSet, pods: int, flavor: str) -> PlaceRequest:
    """What one pod set asks of the nodes of its flavor."""
    asked = pod_set.topology
    return PlaceRequest(
        pod_set.name,
        pods,
        flavor,
        asked.group,
        asked.level,
        asked.required is not None,
        asked.unconstrained is True or not asked.is_explicit,
        amounts_of(pod_set.template.requests()),
        pod_set.constraints,
    )


class FlavorAssigner:
    """One scan over the flavors of a ClusterQueue for one workload."""

    def __init__(
        self, asking: Preemptor, snapshot: Snapshot, queue: ClusterQueue, progress: Progress, ignores_undeclared: bool
    ) -> None:
        self.asking = asking
        self.snapshot = snapshot
        self.queue = queue
        self.node = snapshot.nodes[queue.name]
        self.topologies = topologies_of(snapshot.flavors, queue.flavors)
        self.progress = progress
        self.ignores_undeclared = ignores_undeclared
        self.lacked_quota = False
        """Whether anything did not fit into unused quota, so that preemption was considered."""

    def run(self, demands: Sequence[PodSetResources]) -> Proposal:
        found: list[PodSetAssignment] = []
        usage: dict[FlavorResource, int] = {}
        if self.queue.group_of("pods"):
            demands = [
                each._replace(amounts=in_visiting_order({**each.amounts, "pods": each.pods})) for each in demands
            ]
        for indices in by_group(range(len(demands)), lambda index: demands[index].pod_set.topology.group):
            group = [demands[index] for index in indices]
            choices, reasons = self._choose(group, indices, usage)
            has_failed = False
            for demand in group:
                own = self._resolve_pod_set_flavors(demand, choices)
                found.append(PodSetAssignment(demand, own, tuple(reasons)))
                for name, choice in own.items():
                    key = choice.flavor, name
                    usage[key] = plus(usage.get(key, 0), demand.amounts.get(name, 0))
                has_failed = has_failed or bool(demand.amounts and not own)
            if has_failed:
                return Proposal(tuple(found), usage)
        proposal = Proposal(tuple(found), usage)
        return proposal if proposal.mode is PreemptionMode.NO_FIT else self._place(proposal)

    def _resolve_pod_set_flavors(self, demand: PodSetResources, choices: Mapping[str, Choice]) -> dict[str, Choice]:
        """The flavors of a group that concern one pod set; one that asks for nothing goes where its group goes."""
        if not demand.amounts and demand.pod_set.topology.group is not None:
            return {name: choice for name, choice in choices.items() if choice.flavor in self.topologies}
        return {name: choices[name] for name in demand.amounts if name in choices}

    def _place(self, proposal: Proposal) -> Proposal:
        """The proposal, with what topology-aware scheduling says to it."""
        found: list[PodSetAssignment] = []
        asked: list[PlaceRequest] = []
        for each in proposal.found:
            pod_set, pods = each.demand.pod_set, each.demand.pods
            flavors = {choice.flavor for choice in each.choices.values()}
            fault = topology_fault(pod_set, self.queue, self.topologies, flavors) if pods else None
            found.append(each._replace(error=fault) if fault else each)
            if pods and not fault and is_tas_requested(pod_set, self.queue, self.topologies):
                (flavor,) = (name for name in flavors if name in self.topologies)
                asked.append(pod_set_topology_request(pod_set, pods, flavor))
        proposal = proposal._replace(found=tuple(found), asked=tuple(asked))
        # Without nodes, and for slices of pods, quota alone is judged.
        has_slices = any(each.demand.pod_set.topology.has_slices for each in found)
        return proposal if self.snapshot.trees is None or has_slices else self._find_places(proposal)

    def _find_places(self, proposal: Proposal) -> Proposal:
        trees = self.snapshot.trees
        assert trees is not None
        if proposal.mode is PreemptionMode.FIT:
            places = find_topology_assignments(trees, proposal.asked)
            if not isinstance(places, NotPlaced):
                return proposal._replace(places=places)
            proposal = proposal.with_failure(places)
        if proposal.mode is PreemptionMode.NO_FIT:
            return proposal
        if isinstance(find_topology_assignments(trees, proposal.asked, empty=True), NotPlaced):
            return proposal._replace(by_place=PreemptionMode.NO_FIT)
        return proposal.as_preempting() if proposal.asked else proposal

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
                return {}, [UncoveredResource(name)]
            if name in choices:
                continue
            covered = {each: total[each] for each in total if each in resource_group.covered}
            best, offer, why = self._find_flavor_for_pod_sets(group, indices[0], name, covered, resource_group, usage)
            if not best:
                return {}, why
            choices |= best
            if offer.mode is not PreemptionMode.FIT:
                reasons += why
        return choices, reasons

    def _find_flavor_for_pod_sets(
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
            mismatch = self._check_flavor_for_pod_sets(flavor, group, resource_group)
            if mismatch:
                reasons.append(mismatch)
                continue
            offer = BEST
            choices: dict[str, Choice] = {}
            for name, amount in requests.items():
                own, reason = self._fits_resource_quota(flavor, name, usage.get((flavor, name), 0), amount)
                if reason:
                    reasons.append(reason)
                if _is_preferred(offer, own, self.queue.fungibility):
                    offer = own
                if offer.mode is not PreemptionMode.NO_FIT:
                    choices[name] = Choice(flavor, own.mode, -1)
            if not _should_try_next_flavor(offer, self.queue.fungibility):
                best, best_offer = choices, offer
                break
            if _is_preferred(offer, best_offer, self.queue.fungibility):
                best, best_offer = choices, offer
        if stopped_at == len(resource_group.flavors) - 1:
            stopped_at = -1
        return {name: each._replace(stopped_at=stopped_at) for name, each in best.items()}, best_offer, reasons

    def _check_flavor_for_pod_sets(
        self, name: str, group: list[PodSetResources], resource_group: ResourceGroup
    ) -> FlavorReason | None:
        flavor = self.snapshot.flavors.get(name)
        if flavor is None:
            return FlavorNotFound(name)
        for demand in group:
            covered = resource_group.covered
            mismatch = check_pod_set_and_flavor_match_for_tas(
                demand.pod_set, flavor, self.queue, self.topologies, covered, self.snapshot.levels
            )
            reason = mismatch or flavor.mismatch(demand.pod_set.constraints)
            if reason:
                return reason
        return None

    def _fits_resource_quota(
        self, flavor: str, resource: str, before: int, amount: int
    ) -> tuple[GranularMode, FlavorReason | None]:
        """How the amount fits a flavor's quota on top of earlier pod sets, and the reason when it does not."""
        key = flavor, resource
        total = plus(before, amount)
        most = self.node.potential_available(key)
        if total > most:
            return GranularMode(PreemptionMode.NO_FIT, 0), AboveCapacity(resource, flavor, before, amount, most)
        height, may_reclaim = self.node.find_height_of_lowest_subtree_that_fits(key, total)
        available = max(0, self.node.available(key))
        if total <= available:
            return GranularMode(PreemptionMode.FIT, height), None
        self.lacked_quota = True
        reason = NoUnusedQuota(resource, flavor, minus(total, available))
        nominal = self.node.subtree.get(key, 0)
        if nominal >= total or may_reclaim or self.queue.preemption.borrow_within_cohort.policy != NEVER:
            return self._simulate_preemption(key, total), reason
        return GranularMode(PreemptionMode.NO_FIT, height), reason

    def _simulate_preemption(self, key: FlavorResource, total: int) -> GranularMode:
        """What preemption in this flavor and resource alone would come to."""
        targets = get_targets(self.asking, self.snapshot, {key}, {key: total})
        for target in targets:
            self.snapshot.remove_workload(target)
        height, _ = self.node.find_height_of_lowest_subtree_that_fits(key, total)
        for target in targets:
            self.snapshot.add_workload(target)
        if not targets:
            return GranularMode(PreemptionMode.NO_CANDIDATES, height)
        is_within_queue = any(target.cluster_queue == self.queue.name for target in targets)
        return GranularMode(PreemptionMode.PREEMPT if is_within_queue else PreemptionMode.RECLAIM, height)


def _is_preferred(one: GranularMode, other: GranularMode, fungibility: FlavorFungibility) -> bool:
    if PreemptionMode.NO_FIT in (one.mode, other.mode):
        return one.mode is not PreemptionMode.NO_FIT
    if (one.mode is PreemptionMode.NO_CANDIDATES) is not (other.mode is PreemptionMode.NO_CANDIDATES):
        return other.mode is PreemptionMode.NO_CANDIDATES
    if fungibility.preference == PREEMPTION_FIRST:
        return (-one.height, one.mode) > (-other.height, other.mode)
    return (one.mode, -one.height) > (other.mode, -other.height)


def _should_try_next_flavor(offer: GranularMode, fungibility: FlavorFungibility) -> bool:
    """Whether the search looks at the next flavor too."""
    if offer.mode in (PreemptionMode.NO_FIT, PreemptionMode.NO_CANDIDATES):
        return True
    if offer.mode is not PreemptionMode.FIT and fungibility.when_can_preempt == TRY_NEXT:
        return True
    return offer.height > 0 and fungibility.when_can_borrow == TRY_NEXT
