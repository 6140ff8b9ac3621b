"""Workloads that wait in queues whose quota is more than the nodes have: admitted, they still compete for nodes.

Where the quota of a flavor is no more than its nodes hold, what Kueue admits fits them in sum, and a pod behind its
gate takes no room on a node. Where there is more quota than capacity, every pending workload may come to the nodes on
which the pipeline counts. So it counts there, for the resources that are oversubscribed and no others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpuflow.checker.kueue import Kueue
from gpuflow.checker.kueue.amounts import FlavorResource
from gpuflow.checker.kueue.flavors import Flavor
from gpuflow.checker.nodes.node_pools import NodePools
from gpuflow.checker.nodes.subjects import Node, UnboundPod, read_unbound_pod
from gpuflow.checker.pipeline.nodes.pending import PendingPod
from gpuflow.checker.pipeline.queues.pending import PendingPodSet, PendingWorkload


def oversubscribed_pods(kueue: Kueue, workloads: Iterable[PendingWorkload], node_pools: NodePools) -> list[PendingPod]:
    """The pods of such workloads, each asking only for what is oversubscribed."""
    nodes = [host.node for host in node_pools.node_list.hosts if not host.node.is_cordoned]
    short = {name: _oversubscribed(flavor, kueue, nodes) for name, flavor in kueue.flavors.items()}
    return [
        PendingPod(f"{pending_workload.name} (in queue {pending_workload.queue.name})", pod)
        for pending_workload in workloads
        for pod_set in pending_workload.pods
        for pod in _pods(kueue, pod_set, short)
    ]


def _oversubscribed(flavor: Flavor, kueue: Kueue, nodes: Iterable[Node]) -> frozenset[str]:
    """The resources of which flavors for the same nodes have more quota than these nodes have."""
    own = [node for node in nodes if _is_of(node, flavor)]
    sharing = {name for name, other in kueue.flavors.items() if any(_is_of(node, other) for node in own)}
    given: dict[str, int] = {}
    for (name, resource), nominal in _quotas(kueue):
        if name in sharing:
            given[resource] = given.get(resource, 0) + nominal
    return frozenset(
        resource
        for resource, amount in given.items()
        if amount > sum(node.allocatable.get(resource, 0) for node in own)
    )


def _quotas(kueue: Kueue) -> Iterator[tuple[FlavorResource, int]]:
    """What every ClusterQueue and every cohort above one has of its own."""
    for each in {each for node in kueue.snapshot.nodes.values() for each in node.path()}:
        yield from ((key, quota.nominal) for key, quota in each.quotas.items())


def _is_of(node: Node, flavor: Flavor) -> bool:
    return all(node.labels.get(key) == value for key, value in flavor.labels.items())


def _pods(kueue: Kueue, pod_set: PendingPodSet, short: dict[str, frozenset[str]]) -> Iterator[UnboundPod]:
    """The pods of one set, with what a flavor puts on them; of several flavors with the tolerations of all."""
    flavors = [kueue.flavors[name] for name in sorted(pod_set.flavors)]
    resources = frozenset().union(*(short[flavor.name] for flavor in flavors))
    if not resources:
        return
    labels = flavors[0].labels if len(flavors) == 1 else {}
    tolerations = [
        {key: value for key, value in each._asdict().items() if value}
        for flavor in flavors
        for each in flavor.tolerations
    ]
    spec = {
        **pod_set.spec,
        "nodeSelector": {**(pod_set.spec.get("nodeSelector") or {}), **labels},
        "tolerations": [*(pod_set.spec.get("tolerations") or ()), *tolerations],
    }
    pod = read_unbound_pod({"metadata": {"namespace": pod_set.namespace}, "spec": spec})
    asked = {name: amount for name, amount in pod.requests.items() if name in resources}
    if asked:
        yield from [pod._replace(requests=asked)] * pod_set.pods
