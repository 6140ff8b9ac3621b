"""Manifests of small clusters, a line each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proofs.checker.case import NAMESPACE, OTHERS, Manifest

KUEUE = "kueue.x-k8s.io/v1beta2"
PRODUCT = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
QUEUE_NAME = "kueue.x-k8s.io/queue-name"
GATE = "kueue.x-k8s.io/admission"


def namespace(name: str = NAMESPACE, **more: Any) -> Manifest:
    metadata = {"name": name, **more.pop("metadata", {})}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata, **more}


def node(name: str, gpus: int, cpus: int, pods: int = 20, **more: Any) -> Manifest:
    labels = {"kubernetes.io/hostname": name, **(PRODUCT if gpus else {}), **more.get("labels", {})}
    offers = {"cpu": str(cpus), "memory": "64Gi", "pods": str(pods), "ephemeral-storage": "500Gi"}
    offers |= {"nvidia.com/gpu": str(gpus)} if gpus else {}
    ready = {"type": "Ready", "status": more.get("ready", "True")}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": more.get("annotations", {})},
        "spec": {key: more[key] for key in ("taints", "unschedulable") if key in more},
        "status": {"allocatable": offers, "capacity": offers, "conditions": [ready]},
    }


def quota(name: str, hard: Mapping[str, str], used: Mapping[str, str] | None = None, **spec: Any) -> Manifest:
    status = {"hard": dict(hard), "used": {key: (used or {}).get(key, "0") for key in hard}}
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"hard": dict(hard), **spec},
        "status": status,
    }


def limit_range(name: str, **limits: Any) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"limits": [{"type": "Container", **limits}]},
    }


def requests(gpus: int, cpus: int) -> Manifest:
    asked = {"cpu": str(cpus), "memory": "1Gi", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    return {"requests": asked, "limits": asked}


def pod(name: str, gpus: int, cpus: int, on: str | None = None, **more: Any) -> Manifest:
    """A pod of somebody else, on a node or waiting for one."""
    spec: Manifest = {"containers": [{"name": "c", "image": "i", "resources": requests(gpus, cpus)}]}
    spec["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    spec |= {"nodeName": on} if on else {}
    spec |= more.get("spec", {})
    metadata = {"name": name, "namespace": more.get("namespace", OTHERS), "uid": f"uid-pod-{name}"}
    metadata |= more.get("metadata", {})
    phase = "Running" if on else "Pending"
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": phase}}


def flavor(name: str, **spec: Any) -> Manifest:
    return {"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": spec}


def cluster_queue(name: str, flavors: Mapping[str, Mapping[str, Manifest]], **spec: Any) -> Manifest:
    """`flavors`: flavor to resource to its numbers."""
    covered = list(next(iter(flavors.values())))
    group = {
        "coveredResources": covered,
        "flavors": [
            {"name": each, "resources": [{"name": resource, **numbers} for resource, numbers in amounts.items()]}
            for each, amounts in flavors.items()
        ],
    }
    described = {
        "resourceGroups": [group],
        "namespaceSelector": {},
        "queueingStrategy": "BestEffortFIFO",
        "preemption": {
            "withinClusterQueue": "Never",
            "reclaimWithinCohort": "Never",
            "borrowWithinCohort": {"policy": "Never"},
        },
        "stopPolicy": "None",
        **spec,
    }
    return {"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": described}


def local_queue(name: str, target: str, home: str = NAMESPACE, **spec: Any) -> Manifest:
    metadata = {"name": name, "namespace": home}
    return {"apiVersion": KUEUE, "kind": "LocalQueue", "metadata": metadata, "spec": {"clusterQueue": target, **spec}}


def priority_class(name: str, value: int) -> Manifest:
    return {"apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value}


def workload(
    name: str, queue: str, gpus: int, cpus: int, minute: int, holds: tuple[str, str] | None = None, priority: int = 0
) -> Manifest:
    """A workload of somebody else; `holds`: its ClusterQueue and flavor when it is admitted."""
    asked = requests(gpus, cpus)
    template = {
        "containers": [{"name": "c", "image": "i", "resources": asked}],
        "restartPolicy": "Never",
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
    }
    made: Manifest = {
        "apiVersion": KUEUE,
        "kind": "Workload",
        "metadata": {
            "name": name,
            "namespace": OTHERS,
            "uid": f"uid-{name}",
            "creationTimestamp": f"2026-01-01T00:{minute:02d}:00Z",
        },
        "spec": {
            "queueName": queue,
            "priority": priority,
            "active": True,
            "podSets": [{"name": "main", "count": 1, "template": {"spec": template}}],
        },
    }
    if holds is not None:
        target, each = holds
        at = f"2026-01-01T01:{minute:02d}:00Z"
        made["status"] = {
            "admission": {
                "clusterQueue": target,
                "podSetAssignments": [
                    {
                        "name": "main",
                        "count": 1,
                        "flavors": dict.fromkeys(asked["requests"], each),
                        "resourceUsage": asked["requests"],
                    }
                ],
            },
            "conditions": [
                {"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": at}
                for kind in ("QuotaReserved", "Admitted")
            ],
        }
    return made


def pod_of(owner: Manifest, on: str | None, gated: bool, labels: Mapping[str, str] | None = None) -> Manifest:
    """The pod behind a workload; `labels`: what its flavor adds to its node selector. Sets the workload's owner."""
    name = owner["metadata"]["name"]
    spec = dict(owner["spec"]["podSets"][0]["template"]["spec"])
    if gated:
        spec["schedulingGates"] = [{"name": GATE}]
    elif labels:
        spec["nodeSelector"] = dict(labels)
    metadata = {
        "name": name,
        "namespace": OTHERS,
        "uid": f"uid-pod-{name}",
        "labels": {QUEUE_NAME: owner["spec"]["queueName"], "kueue.x-k8s.io/managed": "true"},
    }
    owner["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": metadata["uid"], "controller": True}
    ]
    if on:
        spec["nodeName"] = on
    phase = "Running" if on else "Pending"
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": phase}}
