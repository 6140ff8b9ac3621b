"""Templates of gpuflow's own that look after a gang: the JobSet stands in their command."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuflow.readers.argo.values import listing, mapping, text_of
from gpuflow.readers.gangs import manifest_in


def launches_gang(tree: Mapping[str, Any]) -> bool:
    """Whether the container of a template is `gpuflow-run gang`."""
    return gang_manifest(tree) is not None


def gang_manifest(tree: Mapping[str, Any]) -> dict[str, Any] | None:
    """The JobSet, as the kubelet hands it to the launcher. What only the run fills in is empty, and no amount."""
    return manifest_in(gang_words(tree))


def gang_words(tree: Mapping[str, Any]) -> list[str]:
    """The command of a template's container."""
    container = mapping(tree.get("container"))
    written = [word for field in ("command", "args") for word in listing(container.get(field))]
    return [text_of(word) or "" for word in written]
