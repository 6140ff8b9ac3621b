"""What documents say in many spellings: spot nodes, checkpoints, PyTorch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpuflow.demands.gang_scheduling import mapping, maps
from gpuflow.site.model import Site

SPOT: Final = {
    "cloud.google.com/gke-spot": "true",
    "cloud.google.com/gke-preemptible": "true",
    "eks.amazonaws.com/capacityType": "SPOT",
    "karpenter.sh/capacity-type": "spot",
    "kubernetes.azure.com/scalesetpriority": "spot",
}
"""The labels of spot nodes in the large clouds."""
_CHECKPOINT: Final = re.compile(r"check-?points?|ckpts?", re.IGNORECASE)
_TORCH: Final = re.compile(r"torch|\bdeepspeed\b|\baccelerate\b|\blightning\b|\bvllm\b", re.IGNORECASE)


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


def checkpoint_mounts(container: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The mounts that hold checkpoints, by their names and paths, each with its number."""
    for number, mount in enumerate(maps(container.get("volumeMounts"))):
        if _CHECKPOINT.search(f"{mount.get('name')} {mount.get('mountPath')}"):
            yield number, mount


def looks_like_torch(container: Mapping[str, Any]) -> bool:
    """Whether a container trains with PyTorch, by its name, its image and its command."""
    named = [word for word in (container.get("name"), container.get("image")) if isinstance(word, str)]
    return any(_TORCH.search(word[:10_000]) for word in (*named, *command_words(container)))


def command_words(container: Mapping[str, Any]) -> list[str]:
    """The words of the command and its arguments, as far as they are text."""
    given = [container.get(field) for field in ("command", "args")]
    return [word for words in given if isinstance(words, list) for word in words if isinstance(word, str)]
