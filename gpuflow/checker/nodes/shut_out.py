"""Pods that no node ever takes although there is room: for want of a free port, or of a domain for a whole gang."""

from __future__ import annotations

from gpuflow.checker.nodes import ports
from gpuflow.checker.nodes.node_pools import NodePools, most_per_node
from gpuflow.checker.nodes.subjects import UnboundPod


def taken_for_good(node_pools: NodePools, pod: UnboundPod) -> bool:
    """Whether on every node that is for the pod a pod that belongs to the node has one of its host ports."""
    hosts = [node_pools.node_list.hosts[index] for index in node_pools.pool(pod).ever]
    return bool(pod.ports and hosts) and all(
        any(there.is_fixture and ports.clash(pod.ports, there.ports) for there in host.pods) for host in hosts
    )


def gang_has_no_domain(node_pools: NodePools, pod: UnboundPod, pods: int) -> bool:
    """Whether the pods of a gang must all be in one domain (a rack, a zone), and none is large enough when empty.

    The first pod goes anywhere, since it means itself; all others follow it.
    """
    labels = node_pools.node_list.namespaces.get(pod.namespace, {})
    most = most_per_node(pod)
    for term in pod.affinity.together if pods > 1 else ():
        if not term.matches(pod.namespace, pod.labels, labels):
            continue
        held: dict[str, int] = {}
        for index in node_pools.pool(pod).ever:
            domain = node_pools.node_list.hosts[index].node.labels.get(term.topology_key)
            if domain is not None:
                held[domain] = held.get(domain, 0) + node_pools.empty[index].holds(pod.requests, most)
        if max(held.values(), default=0) < pods:
            return True
    return False
