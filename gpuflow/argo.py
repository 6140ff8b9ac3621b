"""For Hera users: a pipeline as Hera objects, to go on with in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hera.workflows import CronWorkflow, WorkflowTemplate

from gpuflow.errors import GpuflowError
from gpuflow.site import Site
from gpuflow.spec.loading import load
from gpuflow.spec.pipeline import Pipeline
from gpuflow.targets.argo.capabilities import CAPABILITIES
from gpuflow.targets.argo.workflow import build
from gpuflow.targets.frame import Request, losses

__all__ = ["to_hera"]


def to_hera(pipeline: Pipeline | str | Path, site: Site | str = "nvidia", *, namespace: str | None = None) -> Any:
    """A Hera `WorkflowTemplate`, or a `CronWorkflow` when the pipeline has a schedule."""
    checked = pipeline if isinstance(pipeline, Pipeline) else load(pipeline)
    where = site if isinstance(site, Site) else Site.load(site)
    request = Request(checked, where, namespace or where.namespace, str(checked.source.file))
    missing = losses(checked, CAPABILITIES)
    if missing:
        raise GpuflowError(loss.finding("argo") for loss in missing)
    manifest = build(request)
    kind = CronWorkflow if manifest["kind"] == "CronWorkflow" else WorkflowTemplate
    return kind.from_dict(manifest)
