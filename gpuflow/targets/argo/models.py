"""Hera's models as the measure of a manifest: what went in must come out."""

from __future__ import annotations

from typing import Any

from hera.workflows import models

from gpuflow.errors import fail

KINDS: dict[str, Any] = {
    "WorkflowTemplate": models.WorkflowTemplate,
    "Workflow": models.Workflow,
    "CronWorkflow": models.CronWorkflow,
    "ClusterWorkflowTemplate": models.ClusterWorkflowTemplate,
}


def check_against_hera(manifest: dict[str, Any]) -> None:
    """Hera drops fields it does not know in silence, so a loss stops the compilation.

    gpuflow writes none of them itself; a patch may hold fields of a Kubernetes that is newer than Argo's types.
    """
    model = KINDS[manifest["kind"]].model_validate(manifest)
    lost = differences(manifest, model.model_dump(mode="json", by_alias=True, exclude_none=True))
    if lost:
        raise fail(
            "GF301",
            f"argo: the types of Argo lose or change {', '.join(lost[:5])}",
            hint="take these fields out of kubernetes.merge",
        )


def differences(given: Any, kept: Any, path: str = "") -> list[str]:
    """Paths at which `kept` holds something else than was given."""
    if given == kept:
        return []
    if isinstance(given, dict) and isinstance(kept, dict):
        return [found for key, value in given.items() for found in differences(value, kept.get(key), f"{path}.{key}")]
    if isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        return [found for i, value in enumerate(given) for found in differences(value, kept[i], f"{path}[{i}]")]
    return [f"{path}: {given!r} became {kept!r}"]
