"""Nodes: devices on the real one, and simulated ones that schedule like any other and run nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .kube import Kube, Manifest

# No device is attached: the names are accounted for by the scheduler and by quotas, and such pods really run.
REAL_DEVICES = {"nvidia.com/gpu": "4", "nvidia.com/mig-1g.10gb": "7"}
REAL_LABELS = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB", "nvidia.com/gpu.memory": "81920"}
GPU_NODE = {"cpu": "64", "memory": "512Gi", "ephemeral-storage": "1Ti", "pods": "110", "nvidia.com/gpu": "8"}
# Keeps pods that are meant to run off the nodes that run nothing.
FENCE = {"key": "gpuflow.test/simulated", "effect": "NoSchedule"}
BY_HAND = "gpuflow.test/by-hand"
"""The label of pods that the simulator leaves alone: a test writes what a kubelet would (`kubelet_by_hand.py`)."""


def simulated(
    name: str,
    capacity: Mapping[str, str] = GPU_NODE,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Manifest] = (),
) -> dict[str, Any]:
    """The Node that the simulator keeps ready."""
    standard = {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "gpuflow.test/simulated": "true",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {**standard, **(labels or {})},
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "spec": {"taints": list(taints)},
        "status": {"capacity": dict(capacity), "allocatable": dict(capacity)},
    }


@contextlib.contextmanager
def standing(kube: Kube, name: str, labels: Mapping[str, str]) -> Iterator[str]:
    """A simulated node for the pods that ask for it by its labels, removed at the end."""
    kube.apply(simulated(name, labels=labels, taints=[FENCE]))
    await_ready(kube, name)
    yield name
    kube("delete", "node", name)


def add_devices(kube: Kube, node: str, devices: Mapping[str, str] = REAL_DEVICES) -> None:
    """Put extended resources on a node; a kubelet that starts sets those it does not know to zero."""
    kube.patch_status("node", node, {"capacity": dict(devices), "allocatable": dict(devices)})


def await_ready(kube: Kube, name: str, timeout: float = 60.0) -> dict[str, Any]:
    """Wait until the node is ready and takes pods, and return it."""
    return kube.await_object("node", name, "ready", ready, timeout)


def ready(node: Manifest) -> bool:
    conditions = {item["type"]: item["status"] for item in node["status"].get("conditions", ())}
    taints = {taint["key"] for taint in node["spec"].get("taints", ())}
    lost = {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}
    return conditions.get("Ready") == "True" and not taints & lost
