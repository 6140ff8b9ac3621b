"""The claims that Kubernetes makes for the ephemeral volumes of a pod: one each, deleted with the pod."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpuflow.resources import read_map, read_maps


def claims_of_pod(spec: Mapping[str, Any], default_class: str | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each ephemeral volume by name with its claim; one without a storage class gets the default."""
    for volume in read_maps(spec.get("volumes"), "spec.volumes"):
        source = read_map(volume.get("ephemeral"), "ephemeral")
        template = read_map(source.get("volumeClaimTemplate"), "volumeClaimTemplate")
        if not template:
            continue
        claim = dict(read_map(template.get("spec"), "volumeClaimTemplate.spec"))
        if "storageClassName" not in claim and default_class is not None:
            claim["storageClassName"] = default_class
        name = str(volume.get("name") or "")
        yield name, {"metadata": {**read_map(template.get("metadata"), "metadata"), "name": name}, "spec": claim}
