"""Compiling a pipeline's text for Kubeflow, as the command line does."""

from __future__ import annotations

from typing import Any

import yaml

from gpuflow.site import Site
from gpuflow.spec.loading import loads
from gpuflow.targets.kubeflow import target
from gpuflow.targets.kubeflow.facts import KubeflowOptions
from gpuflow.targets.target import Request, compile_with

HEAD = "apiVersion: gpuflow/v1\nkind: Pipeline\n"


def compiled(
    source: str, *, site: Site | None = None, lossy: bool = False, namespace: str | None = None, **options: str
) -> str:
    """The artifact's text."""
    pipeline = loads(HEAD + source.lstrip())
    request = Request(pipeline, site or Site.load("nvidia"), namespace, "pipeline.yaml", (), KubeflowOptions(**options))
    return compile_with(target, request, allow_lossy=lossy).artifact.text


def documents(source: str, **options: Any) -> list[dict[str, Any]]:
    """The artifact's documents."""
    return list(yaml.safe_load_all(compiled(source, **options)))
