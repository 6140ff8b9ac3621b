"""Nodes that say that they are unwell, and do not carry the taint for it yet.

Mirrors k8s.io/kubernetes/pkg/controller/nodelifecycle.nodeConditionToTaintKeyStatusMap, Kubernetes v1.36.3.

The controller adds these taints within seconds, so that a new pod does not find such a node. The scheduler itself looks
at taints only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gpuflow.resources import read_map, read_maps

TAINTS: Final = {
    ("Ready", "False"): "node.kubernetes.io/not-ready",
    ("Ready", "Unknown"): "node.kubernetes.io/unreachable",
    ("MemoryPressure", "True"): "node.kubernetes.io/memory-pressure",
    ("DiskPressure", "True"): "node.kubernetes.io/disk-pressure",
    ("NetworkUnavailable", "True"): "node.kubernetes.io/network-unavailable",
    ("PIDPressure", "True"): "node.kubernetes.io/pid-pressure",
}


def with_condition_taints(node: Mapping[str, Any]) -> Mapping[str, Any]:
    """The node with the taints that its conditions will bring."""
    conditions = read_maps(read_map(node.get("status"), "status").get("conditions"), "status.conditions")
    spec = read_map(node.get("spec"), "spec")
    taints = read_maps(spec.get("taints"), "spec.taints")
    present = {taint.get("key") for taint in taints if taint.get("effect") == "NoSchedule"}
    coming = [TAINTS.get((str(each.get("type")), str(each.get("status")))) for each in conditions]
    missing = [{"key": key, "effect": "NoSchedule"} for key in coming if key is not None and key not in present]
    return {**node, "spec": {**spec, "taints": [*taints, *missing]}} if missing else node
