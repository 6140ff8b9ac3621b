"""The devices that pod groups of a pipeline claim, as amounts on the nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpuflow.checker.contention.competitors import Competitor, Competitors
from gpuflow.checker.contention.concurrency import Concurrency
from gpuflow.checker.dra.inventory import Inventory
from gpuflow.checker.dra.plan import CLAIMS, DevicePlan, Group
from gpuflow.checker.nodes.filters import read_pending
from gpuflow.checker.nodes.node_pools import NodePools
from gpuflow.checker.pipeline.nodes.pending import PendingPod
from gpuflow.checker.pipeline.pod_groups import PodGroup
from gpuflow.cluster import Cluster
from gpuflow.cluster.model import once
from gpuflow.kubernetes.labels import QUEUE_LABEL
from gpuflow.kubernetes.resources import read_map, read_maps, read_texts

ALIVE: Final = "pods"


def is_reported(resource: str) -> bool:
    """Whether an amount is one of a report: some only say that a claim can be allocated."""
    return not resource.startswith(CLAIMS)


def read_devices(
    cluster: Cluster,
    namespace: str,
    node_pools: NodePools,
    pod_groups: Sequence[PodGroup],
    pending_pods: Sequence[PendingPod],
    concurrency: Concurrency,
    runs: int,
) -> tuple[NodePools, dict[PodGroup, Group]]:
    """The nodes with what claims find there, and the devices that the pods of each group claim, as amounts."""

    def is_alone(numbers: Sequence[int]) -> bool:
        members = (pod_groups[number] for number in numbers)
        alive = Competitors(Competitor(each.steps, {ALIVE: 1}, each.pods) for each in members)
        value, _, _ = alive.peak_load(ALIVE, concurrency)
        return value == 1 and runs == 1

    claiming = _claiming_pods(cluster)
    waiting = [f"pod {each.name}" for each in pending_pods if each.name in claiming]
    waiting += _queued_workloads(cluster)
    pods = {number: (group.pod, read_pending(group.pod)) for number, group in enumerate(pod_groups)}
    plan = DevicePlan(Inventory(cluster, namespace), node_pools, pods, is_alone, waiting)
    for number, group in plan.groups.items():
        if pod_groups[number].labels.get(QUEUE_LABEL):
            group.unknown += _renamed_resources(cluster, group)
    return plan.node_pools, {pod_groups[number]: group for number, group in plan.groups.items()}


def _renamed_resources(cluster: Cluster, group: Group) -> list[str]:
    """The resources that Kueue charges under another name, because its configuration maps their classes."""
    mapped: set[str] = set()
    for item in cluster.of("Configuration"):
        resources = read_map(item.body.get("resources"), "resources")
        for index, each in enumerate(read_maps(resources.get("deviceClassMappings"), "resources.deviceClassMappings")):
            where = f"resources.deviceClassMappings[{index}].deviceClassNames"
            mapped.update(read_texts(each.get("deviceClassNames"), where))
    return [
        f"how Kueue charges {resource}: deviceClassMappings gives class {each.name} another name"
        for resource, each in group.ask.extended.items()
        if each.name in mapped
    ]


@once
def _claiming_pods(cluster: Cluster) -> set[str]:
    specs = ((item, read_map(item.body.get("spec"), "spec")) for item in cluster.of("Pod"))
    return {f"{item.namespace}/{item.name}" for item, spec in specs if spec.get("resourceClaims")}


def _queued_workloads(cluster: Cluster) -> list[str]:
    """Workloads that wait in a queue and whose pods will claim devices."""
    found = []
    for item in cluster.of("Workload"):
        status = read_map(item.body.get("status"), "status")
        pod_sets = read_maps(read_map(item.body.get("spec"), "spec").get("podSets"), "spec.podSets")
        specs = (read_map(read_map(each.get("template"), "template").get("spec"), "spec") for each in pod_sets)
        if status.get("admission") is None and any(each.get("resourceClaims") for each in specs):
            found.append(f"workload {item.namespace}/{item.name}")
    return found
