"""What documents say in many spellings: spot nodes, GPUs, checkpoints, PyTorch, schedulers of gangs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpuflow.kubernetes.labels import QUEUE_LABEL
from gpuflow.readers.findings.subject import CONTAINERS
from gpuflow.site.model import Site

SPOT: Final = {
    "cloud.google.com/gke-spot": "true",
    "cloud.google.com/gke-preemptible": "true",
    "eks.amazonaws.com/capacityType": "SPOT",
    "karpenter.sh/capacity-type": "spot",
    "kubernetes.azure.com/scalesetpriority": "spot",
}
"""The labels of spot nodes in the large clouds."""
_GPU: Final = re.compile(r"(^|[./-])gpu($|[./-])|/mig-", re.IGNORECASE)
_CHECKPOINT: Final = re.compile(r"check-?points?|ckpts?", re.IGNORECASE)
_TORCH: Final = re.compile(r"torch|\bdeepspeed\b|\baccelerate\b|\blightning\b|\bvllm\b", re.IGNORECASE)
GROUP_LABELS: Final = (
    "scheduling.x-k8s.io/pod-group",
    "pod-group.scheduling.sigs.k8s.io",
    "pod-group.scheduling.sigs.k8s.io/name",
    "scheduling.k8s.io/group-name",
    "scheduling.volcano.sh/group-name",
    "kai.scheduler/queue",
    "runai/queue",
)
"""Labels and annotations by which a scheduler knows the pods of one gang."""


def maps(value: object) -> Iterator[Mapping[str, Any]]:
    """The maps in what may be a list of them."""
    if isinstance(value, list):
        yield from (each for each in value if isinstance(each, Mapping))


def mapping(value: object) -> Mapping[str, Any]:
    """The value where it is a map, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def spot_label(spec: Mapping[str, Any], site: Site) -> str | None:
    """The label by which a pod asks for spot nodes: in its node selector, or in an affinity that it requires."""
    labels = {**SPOT, **site.spot.labels}
    selector = mapping(spec.get("nodeSelector"))
    for key, value in labels.items():
        if selector.get(key) == value:
            return f"{key}: {value}"
    required = mapping(mapping(spec.get("affinity")).get("nodeAffinity")).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    for term in maps(mapping(required).get("nodeSelectorTerms")):
        for wanted in maps(term.get("matchExpressions")):
            name, values = str(wanted.get("key")), wanted.get("values")
            if (
                name in labels
                and wanted.get("operator") == "In"
                and isinstance(values, list)
                and labels[name] in values
            ):
                return f"{name}: {labels[name]}"
    return None


def gpus(container: Mapping[str, Any]) -> int:
    """How many GPUs or slices a container asks for."""
    resources = mapping(container.get("resources"))
    asked = {**mapping(resources.get("requests")), **mapping(resources.get("limits"))}
    total = 0
    for key, value in asked.items():
        if "/" in str(key) and _GPU.search(str(key)):
            try:
                total += int(str(value))
            except ValueError:
                continue
    return total


def gpus_of_pod(spec: Mapping[str, Any]) -> int:
    """How many all containers of a pod ask for."""
    return sum(gpus(container) for group in CONTAINERS for container in maps(spec.get(group)))


def checkpoint_mounts(container: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The mounts that hold checkpoints, by their names and paths, each with its number."""
    for number, mount in enumerate(maps(container.get("volumeMounts"))):
        if _CHECKPOINT.search(f"{mount.get('name')} {mount.get('mountPath')}"):
            yield number, mount


def looks_like_torch(container: Mapping[str, Any]) -> bool:
    """Whether a container trains with PyTorch, by its name, its image and its command."""
    words: list[object] = [container.get("name"), container.get("image")]
    for key in ("command", "args"):
        given = container.get(key)
        words += given if isinstance(given, list) else []
    return any(isinstance(word, str) and _TORCH.search(word[:10_000]) for word in words)


def is_queued(pod: Mapping[str, Any]) -> bool:
    """Whether the pod names a queue of Kueue."""
    return bool(mapping(mapping(pod.get("metadata")).get("labels")).get(QUEUE_LABEL))


def is_scheduled_as_gang(pod: Mapping[str, Any]) -> bool:
    """Whether a scheduler starts the pod with all others of its group or not at all."""
    metadata, spec = mapping(pod.get("metadata")), mapping(pod.get("spec"))
    known = {**mapping(metadata.get("labels")), **mapping(metadata.get("annotations"))}
    if any(key in known for key in GROUP_LABELS) or spec.get("schedulingGroup"):
        return True
    return bool(spec.get("schedulerName", "default-scheduler") != "default-scheduler")
