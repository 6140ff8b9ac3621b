"""Live objects with what a check can use and nothing else.

Commands, environments, probes and most annotations may hold secrets and decide nothing; numbers that change by
themselves would make two snapshots of an unchanged cluster differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

METADATA: Final = (
    "name", "namespace", "generateName", "labels", "annotations", "creationTimestamp", "deletionTimestamp",
    "deletionGracePeriodSeconds", "ownerReferences",
)  # fmt: skip
ANNOTATIONS: Final = ("kueue.x-k8s.io/", "gpuflow.dev/", "storageclass.", "volume.beta.kubernetes.io/storage-class")
"""How the annotations begin that a check reads."""
CONTAINER: Final = ("name", "image", "ports", "resources", "restartPolicy", "resizePolicy", "securityContext")
CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")
HOOK: Final = ("name", "rules", "namespaceSelector", "objectSelector", "failurePolicy")
STATUS: Final[dict[str, tuple[str, ...]]] = {
    "Node": ("allocatable", "capacity", "declaredFeatures"),
    "Pod": ("phase", "reason", "conditions", "resources", "qosClass"),
    "PersistentVolume": ("phase",),
    "PersistentVolumeClaim": ("phase", "allocatedResources", "capacity"),
}
"""What is kept of a status; all of it for other kinds."""
SPEC: Final[dict[str, tuple[str, ...]]] = {
    "PersistentVolume": ("accessModes", "capacity", "claimRef", "nodeAffinity", "storageClassName", "volumeMode"),
}
"""What is kept of a spec; all of it for other kinds."""


def tidied(kind: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """The object as a snapshot keeps it."""
    tidy = {**body, "metadata": _metadata(body.get("metadata") or {})}
    for field, kept in (("spec", SPEC), ("status", STATUS)):
        if kind in kept and isinstance(body.get(field), Mapping):
            tidy[field] = _picked(body[field], kept[kind])
    if kind == "Pod":
        tidy["spec"] = _pod_spec(body.get("spec") or {})
        tidy["status"] = {**tidy.get("status", {}), **_sizes(body.get("status") or {})}
    elif kind == "Workload":
        tidy["spec"] = _workload_spec(body.get("spec") or {})
    elif kind == "StorageClass":
        tidy.pop("parameters", None)
    elif body.get("webhooks"):
        tidy["webhooks"] = [_picked(hook, HOOK) for hook in body["webhooks"]]
    return tidy


def _picked(holder: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: holder[name] for name in names if name in holder}


def _metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    kept = _picked(metadata, METADATA)
    annotations = {key: value for key, value in (kept.pop("annotations", None) or {}).items() if _is_read(key)}
    owners = [_picked(owner, ("apiVersion", "kind", "name", "controller")) for owner in kept.pop("ownerReferences", ())]
    return (
        kept | ({"annotations": annotations} if annotations else {}) | ({"ownerReferences": owners} if owners else {})
    )


def _is_read(annotation: str) -> bool:
    return annotation.startswith(ANNOTATIONS)


def _pod_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    containers = {
        field: [_picked(container, CONTAINER) for container in spec[field]] for field in CONTAINERS if spec.get(field)
    }
    return {**spec, **containers}


def _sizes(status: Mapping[str, Any]) -> dict[str, Any]:
    """What containers run with, for those that are being resized."""
    kept = ("name", "resources", "allocatedResources")
    return {
        field: [_picked(state, kept) for state in status[field]]
        for field in ("containerStatuses", "initContainerStatuses")
        if status.get(field)
    }


def _workload_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    pod_sets = [
        {**pod_set, "template": {**template, "spec": _pod_spec(template.get("spec") or {})}}
        for pod_set in spec.get("podSets") or ()
        for template in (pod_set.get("template") or {},)
    ]
    for pod_set in pod_sets:
        if "metadata" in pod_set["template"]:
            pod_set["template"]["metadata"] = _metadata(pod_set["template"]["metadata"] or {})
    return {**spec, "podSets": pod_sets}
