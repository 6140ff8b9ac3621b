"""Kueue objects for tests: one queue with one flavor."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from .kube import Kube

VERSION = "kueue.x-k8s.io/v1beta2"
QUEUE = "gpus"
LABEL = {"kueue.x-k8s.io/queue-name": QUEUE}


@contextlib.contextmanager
def queue(kube: Kube, quota: Mapping[str, str], *, preempt: bool = False) -> Iterator[None]:
    """A ClusterQueue and flavor named for the namespace, and a LocalQueue `gpus` in it; removed at the end.

    `preempt`: what has a higher priority takes the quota of what has a lower one.
    """
    name = kube.namespace
    resources = [{"name": key, "nominalQuota": value} for key, value in quota.items()]
    flavor = {"name": name, "resources": resources}
    group: dict[str, Any] = {"coveredResources": list(quota), "flavors": [flavor]}
    spec: dict[str, Any] = {"namespaceSelector": {}, "resourceGroups": [group]}
    if preempt:
        spec["preemption"] = {"withinClusterQueue": "LowerPriority"}
    kube.apply(
        {"apiVersion": VERSION, "kind": "ResourceFlavor", "metadata": {"name": name}},
        {"apiVersion": VERSION, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec},
        {
            "apiVersion": VERSION,
            "kind": "LocalQueue",
            "metadata": {"name": QUEUE},
            "spec": {"clusterQueue": name},
        },
    )
    try:
        yield
    finally:
        kube("delete", "jobs,pods", "--all", "--wait=false")
        kube("delete", "clusterqueue,resourceflavor", name, "--wait=false")


@contextlib.contextmanager
def priority(kube: Kube, value: int) -> Iterator[dict[str, str]]:
    """A WorkloadPriorityClass named for the namespace: the label that gives it to a workload."""
    name = kube.namespace
    kube.apply({"apiVersion": VERSION, "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value})
    try:
        yield {"kueue.x-k8s.io/priority-class": name}
    finally:
        kube("delete", "workloadpriorityclass", name, "--wait=false")


def waiting_message(kube: Kube, name: str) -> str:
    """Why Kueue does not admit the workload of the named job or pod; empty when it has said nothing yet."""
    for item in kube.list("workload"):
        owners = {owner["name"] for owner in item["metadata"].get("ownerReferences", ())}
        for condition in item.get("status", {}).get("conditions", ()):
            if name in owners and condition["type"] == "QuotaReserved" and condition["status"] == "False":
                return str(condition["message"])
    return ""
