"""Nodes that a node group may add: each gets the pods of the DaemonSets that are for it before any other pod.

Mirrors k8s.io/kubernetes/pkg/controller/daemon.NodeShouldRunDaemonPod and util.AddOrUpdateDaemonPodTolerations,
Kubernetes v1.36.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from gpuflow.checker.nodes.filters import placement_refusal
from gpuflow.checker.nodes.node_list import NodeList
from gpuflow.checker.nodes.subjects import Node, UnboundPod, read_unbound_pod
from gpuflow.resources import read_map, read_maps

TOLERATED: Final = ("not-ready", "unreachable", "disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")
"""Taints of node.kubernetes.io that every daemon's pod tolerates."""


def with_daemons(node_list: NodeList, daemon_sets: Iterable[Mapping[str, Any]]) -> NodeList:
    """The nodes, with what DaemonSets will take of new ones taken off the templates of node groups."""
    if not node_list.templates:
        return node_list
    daemons = [_pod(each) for each in daemon_sets]
    return node_list._replace(templates=tuple(_less(node, daemons) for node in node_list.templates))


def _less(node: Node, daemons: Iterable[UnboundPod]) -> Node:
    allocatable, slots = dict(node.allocatable), node.slots
    for pod in daemons:
        if placement_refusal(pod, node) is None:
            slots -= 1
            for name, amount in pod.requests.items():
                allocatable[name] = max(allocatable.get(name, 0) - amount, 0)
    return node._replace(allocatable=allocatable, slots=max(slots, 0))


def _pod(daemon_set: Mapping[str, Any]) -> UnboundPod:
    metadata = read_map(daemon_set.get("metadata"), "metadata")
    template = read_map(read_map(daemon_set.get("spec"), "spec").get("template"), "spec.template")
    spec = read_map(template.get("spec"), "spec.template.spec")
    tolerations = [{"key": f"node.kubernetes.io/{name}", "operator": "Exists"} for name in TOLERATED]
    own = read_maps(spec.get("tolerations"), "spec.template.spec.tolerations")
    pod = {"metadata": {"namespace": metadata.get("namespace")}, "spec": {**spec, "tolerations": [*own, *tolerations]}}
    return read_unbound_pod(pod)
