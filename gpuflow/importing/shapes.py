"""Whether a document has the shape that Kubernetes and Argo require of it; a cluster would refuse what has not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuflow.importing.listing import KIND, Listing, Place

LISTS = frozenset(
    {
        "artifacts", "containers", "env", "envFrom", "hostAliases", "imagePullSecrets", "initContainers",
        "items", "parameters", "ports", "prometheus", "sidecars", "tasks", "templates", "tolerations",
        "topologySpreadConstraints", "volumeClaimTemplates", "volumeMounts", "volumes",
    }
)  # fmt: skip
"""Lists of maps."""
TEXTS = frozenset(["accessModes", "args", "command", "dependencies", "enum", "hostnames", "schedules", "withItems"])
"""Lists of anything."""
MAPS = frozenset(
    {
        "affinity", "archiveLocation", "arguments", "backoff", "configMapKeyRef", "container", "dag", "hooks",
        "inline", "inputs", "jobTemplate", "lifecycle", "livenessProbe", "metadata", "metrics", "outputs",
        "podGC", "podMetadata", "readinessProbe", "resources", "retryStrategy", "script", "secretKeyRef",
        "securityContext", "spec", "startupProbe", "templateDefaults", "templateRef", "ttlStrategy",
        "valueFrom", "volumeClaimGC", "withSequence", "workflowMetadata", "workflowSpec", "workflowTemplateRef",
        "configMapRef", "secretRef", "counter", "gauge", "histogram", "configMap", "secret", "emptyDir",
        "hostPath", "nfs", "persistentVolumeClaim",
    }
)  # fmt: skip
NUMBERS = frozenset(
    {
        "backoffLimit", "completions", "failedJobsHistoryLimit", "parallelism", "secondsAfterCompletion",
        "secondsAfterFailure", "secondsAfterSuccess", "startingDeadlineSeconds", "successfulJobsHistoryLimit",
        "terminationGracePeriodSeconds", "ttlSecondsAfterFinished",
    }
)  # fmt: skip
FREE = frozenset(["labels", "annotations", "nodeSelector", "requests", "limits"])
"""Maps from a name to a text or a number."""
OTHERS = ("artifacts", "prometheus", "withItems")
"""What is in them has other words of the same names."""


def misshapen(listing: Listing, place: Place, tree: Any) -> bool:
    """List what has another shape than its name says; whether there is any."""
    before = len(listing.found)
    waiting = [tree]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value
            continue
        if not isinstance(value, Mapping):
            continue
        for key, item in value.items():
            wanted = _wrong(str(key), item)
            if wanted:
                listing.cannot(
                    str(key), f"it is not {wanted}, so no cluster takes it", place.of(value, key), None, KIND
                )
            elif key not in FREE and key not in OTHERS:
                waiting.append(item)
    return len(listing.found) > before


def _wrong(key: str, item: Any) -> str | None:
    if item is None:
        return None
    if key == "steps":
        fits = isinstance(item, list) and all(
            isinstance(group, list) and all(isinstance(each, Mapping) for each in group) for group in item
        )
        return None if fits else "a list of lists of steps"
    if key in LISTS:
        fits = isinstance(item, list) and all(isinstance(each, Mapping) for each in item)
        return None if fits else "a list of maps"
    if key in NUMBERS:
        return None if isinstance(item, int) and not isinstance(item, bool) and item >= 0 else "a whole number"
    if key in TEXTS:
        return None if isinstance(item, list) else "a list"
    if key in MAPS:
        return None if isinstance(item, Mapping) else "a map"
    if key in FREE:
        scalars = isinstance(item, Mapping) and not any(isinstance(each, Mapping | list) for each in item.values())
        return None if scalars else "a map from names to texts"
    return None
