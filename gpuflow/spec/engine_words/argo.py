"""Argo's own words: what a workflow and a template take that is not the pipeline's to decide."""

from __future__ import annotations

from typing import ClassVar, Literal

from gpuflow.spec.engine_words.words import EngineWords
from gpuflow.spec.model import DurationField, Model


class PodGC(Model):
    """When Argo deletes finished pods."""

    strategy: Literal["OnPodSuccess", "OnPodCompletion", "OnWorkflowSuccess", "OnWorkflowCompletion"] = "OnPodSuccess"
    """As Argo calls it. The two on success keep failed pods."""
    delay: DurationField | None = None
    """How long a pod stays before it is deleted, so that its logs can be read."""


class Ttl(Model):
    """How long Argo keeps finished runs; what is not given is kept."""

    success: DurationField | None = None
    """After a run has succeeded."""
    failure: DurationField | None = None
    """After a run has failed."""


class ArgoWorkflow(EngineWords):
    """What Argo takes for the workflow."""

    TITLE: ClassVar[str] = "Argo"

    pod_gc: PodGC | None = None
    """When finished pods are deleted; default: what the site says."""
    ttl: Ttl | None = None
    """How long finished runs are kept; default: what the site says."""


class ArgoTemplate(EngineWords):
    """What Argo takes for the template of a step."""

    TITLE: ClassVar[str] = "Argo"
