"""Small clusters with Kueue, written in a line or two."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpuflow.checker.kueue import Assignment, assign_flavors

Manifest = dict[str, Any]
Quotas = Mapping[str, Mapping[str, str | Mapping[str, str]]]
"""Flavor to resource to nominal quota, or to all three numbers of a quota."""

NAMESPACE = "team-a"
API = "kueue.x-k8s.io/v1beta2"


def flavor(name: str, **spec: Any) -> Manifest:
    return {"apiVersion": API, "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": spec}


def groups(*quotas: Quotas) -> list[Manifest]:
    """Resource groups: each map of quotas is one."""
    return [
        {
            "coveredResources": list(next(iter(each.values()))),
            "flavors": [
                {"name": name, "resources": [_quota(resource, quota) for resource, quota in resources.items()]}
                for name, resources in each.items()
            ],
        }
        for each in quotas
    ]


def _quota(resource: str, quota: str | Mapping[str, str]) -> Manifest:
    return {"name": resource, **({"nominalQuota": quota} if isinstance(quota, str) else quota)}


def cluster_queue(*quotas: Quotas, name: str = "cq", **spec: Any) -> Manifest:
    described = {"resourceGroups": groups(*quotas), "namespaceSelector": {}, **spec}
    return {"apiVersion": API, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": described}


def cohort(name: str, *quotas: Quotas, **spec: Any) -> Manifest:
    described = {**spec, **({"resourceGroups": groups(*quotas)} if quotas else {})}
    return {"apiVersion": API, "kind": "Cohort", "metadata": {"name": name}, "spec": described}


def local_queue(name: str = "lq", target: str = "cq", **spec: Any) -> Manifest:
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": API, "kind": "LocalQueue", "metadata": metadata, "spec": {"clusterQueue": target, **spec}}


def pod_set(name: str = "main", count: int = 1, limits: Mapping[str, str] | None = None, **requests: str) -> Manifest:
    """Pods of one container; `gpu` stands for `nvidia.com/gpu`."""
    resources: Manifest = {"requests": {_resource(key): amount for key, amount in requests.items()}}
    if limits:
        resources["limits"] = {_resource(key): amount for key, amount in limits.items()}
    return {
        "name": name,
        "count": count,
        "template": {"spec": {"containers": [{"name": "c", "resources": resources}], "restartPolicy": "Never"}},
    }


def with_spec(pods: Manifest, **spec: Any) -> Manifest:
    """The pod set with more in the spec of its pods."""
    return {**pods, "template": {"spec": {**pods["template"]["spec"], **spec}}}


def _resource(key: str) -> str:
    return {"gpu": "nvidia.com/gpu", "mig": "nvidia.com/mig-1g.10gb", "fpga": "example.com/fpga"}.get(key, key)


def workload(*pods: Manifest, name: str = "wl", priority: int = 0, minute: int = 30, **rest: Any) -> Manifest:
    """A workload that was made so many minutes after midnight."""
    metadata = {
        "name": name,
        "namespace": NAMESPACE,
        "uid": f"uid-{name}",
        "creationTimestamp": f"2026-01-01T00:{minute:02d}:00Z",
    }
    spec = {"queueName": "lq", "priority": priority, "podSets": list(pods)}
    made: Manifest = {"apiVersion": API, "kind": "Workload", "metadata": metadata, "spec": spec}
    for part, fields in rest.items():
        made[part] = {**made.get(part, {}), **fields}
    return made


def holder(
    name: str, usage: Mapping[str, Mapping[str, str]], queue: str = "cq", priority: int = 0, minute: int = 10
) -> Manifest:
    """A workload that holds so much: flavor to resource to amount."""
    flavors = {resource: each for each, amounts in usage.items() for resource in amounts}
    amounts = {resource: amount for held in usage.values() for resource, amount in held.items()}
    assignment = {"name": "main", "count": 1, "flavors": flavors, "resourceUsage": amounts}
    reserved = {
        "type": "QuotaReserved",
        "status": "True",
        "reason": "QuotaReserved",
        "message": "",
        "lastTransitionTime": f"2026-01-01T01:{minute:02d}:00Z",
    }
    status = {"conditions": [reserved], "admission": {"clusterQueue": queue, "podSetAssignments": [assignment]}}
    return workload(pod_set(), name=name, priority=priority, minute=minute, status=status)


def scene(
    asking: Manifest,
    *queues: Manifest,
    flavors: Iterable[Manifest] | None = None,
    cohorts: Iterable[Manifest] = (),
    held: Iterable[Manifest] = (),
    local: Iterable[Manifest] | None = None,
) -> Manifest:
    """A question, in the form in which Kueue's own code is asked. Flavors are plain unless they are given."""
    named = (each["name"] for queue in queues for group in queue["spec"]["resourceGroups"] for each in group["flavors"])
    return {
        "namespaces": [{"metadata": {"name": NAMESPACE, "labels": {"dept": "ml"}}}],
        "flavors": [flavor(name) for name in dict.fromkeys(named)] if flavors is None else list(flavors),
        "cohorts": list(cohorts),
        "clusterQueues": list(queues),
        "localQueues": [local_queue()] if local is None else list(local),
        "admitted": list(held),
        "workload": asking,
    }


def asked(case: Mapping[str, Any], **more: Any) -> Assignment:
    """Our answer to a question."""
    return assign_flavors(
        case["workload"],
        flavors=case["flavors"],
        cluster_queues=case["clusterQueues"],
        local_queues=case["localQueues"],
        cohorts=case["cohorts"],
        admitted=case["admitted"],
        namespaces=case["namespaces"],
        **more,
    )
