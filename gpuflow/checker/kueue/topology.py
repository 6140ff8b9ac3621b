"""Topology-aware scheduling, as far as it can be checked without looking at nodes.

Mirrors sigs.k8s.io/kueue/pkg/scheduler/flavorassigner.checkPodSetAndFlavorMatchForTAS, Kueue v0.19.2.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gpuflow.checker.kueue.flavors import Flavor
from gpuflow.checker.kueue.queues import ClusterQueue
from gpuflow.checker.kueue.reasons import TopologyMismatch
from gpuflow.checker.kueue.workloads import PodSet


def asks_topology(pod_set: PodSet, queue: ClusterQueue, topologies: Mapping[str, str]) -> bool:
    """Whether the pods are placed by topology: because they ask, or because the queue has nothing else."""
    return pod_set.asks_topology or all(name in topologies for name in queue.flavors)


def topology_mismatch(
    pod_set: PodSet, flavor: Flavor, queue: ClusterQueue, topologies: Mapping[str, str], covered: Collection[str]
) -> TopologyMismatch | None:
    """Why a flavor is not for this pod set."""
    if not asks_topology(pod_set, queue, topologies):
        if flavor.topology is not None:
            return TopologyMismatch(flavor.name, is_topology_aware=True)
    elif pod_set.asks_topology and flavor.topology is None and not set(covered).isdisjoint(pod_set.template.requests()):
        return TopologyMismatch(flavor.name, is_topology_aware=False)
    return None


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
