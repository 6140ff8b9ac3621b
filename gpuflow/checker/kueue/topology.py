"""Topology-aware scheduling: which flavors are for which pod sets, and what is asked of their nodes.

Mirrors sigs.k8s.io/kueue/pkg/scheduler/flavorassigner.checkPodSetAndFlavorMatchForTAS and podSetTopologyRequest,
Kueue v0.19.2.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gpuflow.checker.kueue.amounts import amounts_of
from gpuflow.checker.kueue.flavors import Flavor
from gpuflow.checker.kueue.queues import ClusterQueue
from gpuflow.checker.kueue.reasons import TopologyLevelMissing, TopologyMismatch
from gpuflow.checker.kueue.topology_placement import PlaceRequest
from gpuflow.checker.kueue.workloads import PodSet, TopologyRequest

Levels = Mapping[str, tuple[str, ...]]
"""The labels of each Topology, from the highest level to the lowest."""


def asks_topology(pod_set: PodSet, queue: ClusterQueue, topologies: Mapping[str, str]) -> bool:
    """Whether the pods are placed by topology: because they ask, or because the queue has nothing else."""
    return pod_set.topology.is_explicit or all(name in topologies for name in queue.flavors)


def topology_mismatch(
    pod_set: PodSet,
    flavor: Flavor,
    queue: ClusterQueue,
    topologies: Mapping[str, str],
    covered: Collection[str],
    levels: Levels | None,
) -> TopologyMismatch | TopologyLevelMissing | None:
    """Why a flavor is not for this pod set. `levels`: `None` where the Topologies are not known."""
    if not asks_topology(pod_set, queue, topologies):
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
    if not asks_topology(pod_set, queue, topologies):
        return None
    if not topologies:
        return "workload requires Topology, but there is no TAS cache information"
    placed = sorted(name for name in flavors if name in topologies)
    if not placed:
        return "no TAS flavor assigned"
    if len(placed) > 1:
        return f"more than one TAS flavor assigned: {', '.join(placed)}"
    return None


def place_request(pod_set: PodSet, pods: int, flavor: str) -> PlaceRequest:
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
