"""What controllers will do to nodes: taints for conditions of a node, and pods of DaemonSets that are missing.

The node lifecycle controller adds such taints within seconds, so that a new pod does not find a node that is unwell;
the scheduler itself looks at taints only. Pods of DaemonSets come to nodes that a node group may add, and to those
that lack them.

Mirrors k8s.io/kubernetes/pkg/controller/nodelifecycle.nodeConditionToTaintKeyStatusMap and
k8s.io/kubernetes/pkg/controller/daemon.NodeShouldRunDaemonPod with util.AddOrUpdateDaemonPodTolerations, Kubernetes
v1.36.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from gpuflow.checker.nodes.filters import placement_refusal
from gpuflow.checker.nodes.node_info import Node, NodeInfo, NodeList, UnboundPod, read_unbound_pod
from gpuflow.kubernetes.labels import Taint
from gpuflow.kubernetes.objects import REQUIRED
from gpuflow.kubernetes.resources import read_map, read_maps

CONDITION_TAINTS: Final = {
    ("Ready", "False"): "node.kubernetes.io/not-ready",
    ("Ready", "Unknown"): "node.kubernetes.io/unreachable",
    ("MemoryPressure", "True"): "node.kubernetes.io/memory-pressure",
    ("DiskPressure", "True"): "node.kubernetes.io/disk-pressure",
    ("NetworkUnavailable", "True"): "node.kubernetes.io/network-unavailable",
    ("PIDPressure", "True"): "node.kubernetes.io/pid-pressure",
}


def with_condition_taints(node: Node, body: Mapping[str, Any]) -> Node:
    """The node with the taints that its conditions will bring."""
    conditions = read_maps(read_map(body.get("status"), "status").get("conditions"), "status.conditions")
    keys = (CONDITION_TAINTS.get((str(each.get("type")), str(each.get("status")))) for each in conditions)
    coming = [Taint(key, "", "NoSchedule") for key in keys if key is not None]
    present = {taint.key for taint in node.taints if taint.effect == "NoSchedule"}
    return node._replace(taints=(*node.taints, *(taint for taint in coming if taint.key not in present)))


TOLERATED_BY_DAEMONS: Final = (
    "not-ready",
    "unreachable",
    "disk-pressure",
    "memory-pressure",
    "pid-pressure",
    "unschedulable",
)
"""Taints of node.kubernetes.io that every daemon's pod tolerates."""


def with_daemons(node_list: NodeList, daemon_sets: Iterable[Mapping[str, Any]]) -> NodeList:
    """The nodes, with what DaemonSets will take of new ones taken off the templates of node groups."""
    if not node_list.templates:
        return node_list
    daemons = [_daemon_pod(each) for each in daemon_sets]
    return node_list._replace(templates=tuple(_without_daemons(node, daemons) for node in node_list.templates))


def missing_daemons(node_list: NodeList, daemon_sets: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, UnboundPod]]:
    """Pods that DaemonSets are about to make on nodes that are there: which DaemonSet, and its pod for that node.
    Snapshots do not say which DaemonSet a pod is of. A pod that asks for the same is taken for its own, and as many
    others of the node as there are may be of DaemonSets whose pods were given something else."""
    pods = [_daemon_pod(each) for each in daemon_sets]
    for host in node_list.hosts if pods else ():
        for number in _lacking_daemons(host, pods):
            yield number, _daemon_pod(daemon_sets[number], host.node.name)


def _lacking_daemons(host: NodeInfo, daemons: Sequence[UnboundPod]) -> list[int]:
    there = [{name: amount for name, amount in pod.requests.items() if amount} for pod in host.pods if pod.is_fixture]
    lacking = []
    for number, pod in enumerate(daemons):
        if pod.requests in there:
            there.remove(pod.requests)
        elif placement_refusal(pod, host.node) is None:
            lacking.append(number)
    return lacking[: max(len(lacking) - len(there), 0)]


def _without_daemons(node: Node, daemons: Iterable[UnboundPod]) -> Node:
    allocatable, slots = dict(node.allocatable), node.slots
    for pod in daemons:
        if placement_refusal(pod, node) is None:
            slots -= 1
            for name, amount in pod.requests.items():
                allocatable[name] = max(allocatable.get(name, 0) - amount, 0)
    return node._replace(allocatable=allocatable, slots=max(slots, 0))


def _daemon_pod(daemon_set: Mapping[str, Any], node: str | None = None) -> UnboundPod:
    """A pod of a DaemonSet; the one for a node is kept there by the node's name."""
    metadata = read_map(daemon_set.get("metadata"), "metadata")
    template = read_map(read_map(daemon_set.get("spec"), "spec").get("template"), "spec.template")
    spec = read_map(template.get("spec"), "spec.template.spec")
    tolerations = [{"key": f"node.kubernetes.io/{name}", "operator": "Exists"} for name in TOLERATED_BY_DAEMONS]
    own = read_maps(spec.get("tolerations"), "spec.template.spec.tolerations")
    made: dict[str, Any] = {**spec, "tolerations": [*own, *tolerations]}
    if node is not None:
        here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        affinity = read_map(spec.get("affinity"), "spec.template.spec.affinity")
        made["affinity"] = {**affinity, "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [here]}}}
    labels = read_map(template.get("metadata"), "spec.template.metadata").get("labels")
    return read_unbound_pod({"metadata": {"namespace": metadata.get("namespace"), "labels": labels}, "spec": made})
