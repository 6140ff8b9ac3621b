"""JobSets for tests: one Job whose pods are the ranks of one program, made and ended together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .kube import Kube, Manifest
from .pods import pod

VERSION = "jobset.x-k8s.io/v1alpha2"
OF_JOBSET = "jobset.sigs.k8s.io/jobset-name"
RANK = "batch.kubernetes.io/job-completion-index"
FINAL = 79
# It starts nothing again: it writes the cause into the Job, where it outlives the pods.
CAUSES: list[Manifest] = [
    {"action": "FailJob", "onExitCodes": {"containerName": "main", "operator": "In", "values": [FINAL]}},
    {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
]


def gang(
    name: str,
    workers: int,
    image: str,
    command: Sequence[str],
    *,
    labels: Mapping[str, str] | None = None,
    pod_labels: Mapping[str, str] | None = None,
    resources: Mapping[str, str] | None = None,
    subdomain: str = "",
    **spec: Any,
) -> dict[str, Any]:
    """A JobSet that tries once: `spec` is of its pods, `labels` (a queue, a priority) its own.

    `subdomain` stands in the names of its ranks instead of its own name.
    """
    rank = pod("", image, command, resources=resources, **spec)
    named = {
        "GPUFLOW_RANK": f"metadata.annotations['{RANK}']",
        "GPUFLOW_LEADER": "metadata.annotations['jobset.sigs.k8s.io/coordinator']",
    }
    variables = [{"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}} for key, path in named.items()]
    size = {"name": "GPUFLOW_WORLD_SIZE", "value": str(workers)}
    rank["spec"]["containers"][0]["env"] = [*variables, size]
    job = {
        "parallelism": workers,
        "completions": workers,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {"rules": CAUSES},
        "template": {"metadata": {"labels": dict(pod_labels or {})}, "spec": rank["spec"]},
    }
    network = {"enableDNSHostnames": True, "publishNotReadyAddresses": True}
    return {
        "apiVersion": VERSION,
        "kind": "JobSet",
        "metadata": {"name": name, "labels": dict(labels or {})},
        "spec": {
            "network": {**network, **({"subdomain": subdomain} if subdomain else {})},
            "coordinator": {"replicatedJob": "worker", "jobIndex": 0, "podIndex": 0},
            "failurePolicy": {"maxRestarts": 0},
            "replicatedJobs": [{"name": "worker", "replicas": 1, "template": {"spec": job}}],
        },
    }


def ranks(kube: Kube, name: str) -> list[dict[str, Any]]:
    """The pods of a JobSet in the order of their ranks; those of one rank that overlap stand side by side."""
    found = kube.list("pod", f"{OF_JOBSET}={name}")
    return sorted(found, key=lambda each: int(each["metadata"]["annotations"][RANK]))


def condition(item: Manifest, kind: str) -> dict[str, Any] | None:
    """The condition of this type, when it holds."""
    rows = (item.get("status") or {}).get("conditions") or ()
    return next((row for row in rows if row["type"] == kind and row["status"] == "True"), None)
