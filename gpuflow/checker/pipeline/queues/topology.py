"""Pods that Kueue places by topology: whether they always find their place, whatever else of the pipeline runs.

Kueue's own search says whether there is a place now. Here the worst is assumed of all other pods: the small ones are
on every node at once, and each of the others takes room where it hurts most. What pods ask of a topology stands in
their annotations; `topology_request` mirrors
sigs.k8s.io/kueue/pkg/controller/jobframework.podSetTopologyRequestBuilder.Build, Kueue v0.19.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from gpuflow.checker.contention.competitors import Competitor, Competitors
from gpuflow.checker.contention.concurrency import Concurrency
from gpuflow.checker.kueue import Assignment, Kueue
from gpuflow.checker.kueue.amounts import amounts_of
from gpuflow.checker.kueue.flavor_assigner import is_tas_requested, pod_set_topology_request
from gpuflow.checker.kueue.flavors import topologies_of
from gpuflow.checker.kueue.tas_flavor_snapshot import PlaceRequest, TopologyTree, domain_rooms
from gpuflow.checker.kueue.workloads import read_workload
from gpuflow.checker.pipeline.pod_groups import PodGroup
from gpuflow.kubernetes.decoding import decode
from gpuflow.kubernetes.labels import QUEUE_LABEL
from gpuflow.kubernetes.objects import PodTemplate

PREFIX: Final = "kueue.x-k8s.io/podset-"
TRUE: Final = ("1", "t", "T", "TRUE", "true", "True")
"""What Go reads as true."""
SLICES: Final = {
    "slice-required-topology": "podSetSliceRequiredTopology",
    "slice-size": "podSetSliceSize",
    "slice-required-topology-constraints": "podsetSliceRequiredTopologyConstraints",
}


def topology_request(annotations: Mapping[str, str]) -> dict[str, Any]:
    """The topologyRequest of a pod set; empty where its pods ask for nothing. The first wish counts, alone."""
    asked = {key.removeprefix(PREFIX): value for key, value in annotations.items() if key.startswith(PREFIX)}
    found: dict[str, Any] = {}
    if "required-topology" in asked:
        found["required"] = asked["required-topology"]
    elif "preferred-topology" in asked:
        found["preferred"] = asked["preferred-topology"]
    elif "unconstrained-topology" in asked:
        found["unconstrained"] = asked["unconstrained-topology"] in TRUE
    if found.keys() & {"required", "preferred"} and "group-name" in asked:
        found["podSetGroupName"] = asked["group-name"]
    return found | {field: asked[key] for key, field in SLICES.items() if key in asked}


ROOM: Final = "room"
"""How many pods of the asking kind find no place because of a pod."""


class OtherPods(NamedTuple):
    """Every kind of pods that may run at the same time, and when."""

    groups: Sequence[PodGroup]
    concurrency: Concurrency
    runs: int


def placed_flavors(kueue: Kueue, workload: Mapping[str, Any], flavors: Sequence[str]) -> list[PlaceRequest]:
    """What is asked of the nodes of each flavor that the workload may get; nothing where no topology decides."""
    head = kueue.enter(read_workload(workload))
    if isinstance(head, Assignment) or kueue.inventory is None:
        return []
    topologies = topologies_of(kueue.flavors, head.queue.flavors)
    return [
        pod_set_topology_request(each.pod_set, each.pods, flavor)
        for each in head.demands
        if is_tas_requested(each.pod_set, head.queue, topologies)
        for flavor in flavors
        if flavor in topologies
    ]


def is_always_placed(kueue: Kueue, own: PodGroup, asked: Sequence[PlaceRequest], others: OtherPods) -> bool:
    """Whether every flavor has a place for it, wherever the other pods of the pipeline are."""
    trees = kueue.snapshot.trees or {}
    if kueue.inventory is None or kueue.inventory.waiting or any(each.group is not None for each in asked):
        return False  # somebody else may be first; a leader and its workers must find one place together
    is_one = len({flavor.topology for flavor in kueue.flavors.values() if flavor.topology is not None}) == 1
    return all(_is_sure(trees[each.flavor], own, each, others, is_one) for each in asked)


def _is_sure(tree: TopologyTree, own: PodGroup, asked: PlaceRequest, others: OtherPods, is_one: bool) -> bool:
    """`is_one`: there is one Topology, so that gangs which ask for one of its domains mean the same ones."""
    devices = {name for name in asked.each if "/" in name}
    light: list[Competitor] = []
    heavy: list[Competitor] = []
    alike: list[Competitor] = []
    for group in others.groups:
        amounts = amounts_of(decode(PodTemplate, group.pod["spec"], "pod").requests())
        if is_one and asked.is_required and _is_in_one(group, own, asked):
            alike.append(Competitor(group.steps, {ROOM: 1}))
        elif group is own or (devices & amounts.keys() and _reaches(group, tree)):
            room = max(1, *(-(-amounts.get(name, 0) // each) for name, each in asked.each.items() if each), 1)
            heavy.append(Competitor(group.steps, {ROOM: room * group.pods}))
        elif not devices & amounts.keys():
            whole = {name: amount * group.pods for name, amount in amounts.items()}
            light.append(Competitor(group.steps, {**whole, "pods": group.pods}))
    everywhere = dict(_peaks(light, (*asked.each, "pods"), others))
    taken = Competitors(heavy).peak_load(ROOM, others.concurrency).value
    gangs = Competitors(alike).peak_load(ROOM, others.concurrency).value
    if taken is None or gangs is None or None in everywhere.values():
        return False
    rooms = domain_rooms(tree, asked, {name: amount or 0 for name, amount in everywhere.items()})
    # The heaviest moment that this gang is a part of leaves so much to the others.
    if not asked.is_required:
        return sum(rooms) - (taken * others.runs - asked.pods) >= asked.pods
    spare = sorted(room - asked.pods + 1 for room in rooms if room >= asked.pods)
    left = taken * others.runs - (0 if alike else asked.pods)
    # Each gang that is in one domain, as this one is, takes away one domain at most.
    full = gangs * others.runs - 1 if alike else 0
    return sum(spare[: len(spare) - full] if full <= len(spare) else ()) > left


def _peaks(light: Sequence[Competitor], names: Sequence[str], others: OtherPods) -> Iterator[tuple[str, int | None]]:
    competitors = Competitors(light)
    for name in names:
        peak = competitors.peak_load(name, others.concurrency).value
        yield name, None if peak is None else peak * others.runs


def _is_in_one(group: PodGroup, own: PodGroup, asked: PlaceRequest) -> bool:
    """Whether Kueue puts all of its pods into one domain of the same level."""
    wishes = topology_request(group.pod["metadata"].get("annotations", {}))
    is_queued = group.labels.get(QUEUE_LABEL) == own.labels.get(QUEUE_LABEL)
    return is_queued and wishes.get("required") == asked.level and "podSetGroupName" not in wishes


def _reaches(group: PodGroup, tree: TopologyTree) -> bool:
    """Whether its node selector leaves it a node of the flavor."""
    selector: Mapping[str, str] = group.pod["spec"].get("nodeSelector") or {}
    return any(
        all(node.labels.get(key) == value for key, value in selector.items())
        for leaf in tree.leaves.values()
        for node in leaf.nodes
    )
