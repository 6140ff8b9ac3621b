"""Argo Workflows: YAML fit to commit, built on Hera's typed models."""

from __future__ import annotations

from collections.abc import Iterable

from gpuflow.errors import Finding
from gpuflow.targets.argo.capabilities import CAPABILITIES
from gpuflow.targets.argo.facts import FACTS
from gpuflow.targets.argo.kustomize import kustomized
from gpuflow.targets.argo.notes import request_notes
from gpuflow.targets.argo.options import ArgoOptions
from gpuflow.targets.argo.refusals import partial_losses
from gpuflow.targets.frame import Artifact, Batch, Request, Target
from gpuflow.targets.losses import Loss


class Argo(Target):
    """Compiles to a WorkflowTemplate, or to a CronWorkflow when there is a schedule; --as selects another kind."""

    facts = FACTS
    capabilities = CAPABILITIES
    options = ArgoOptions
    separator = "---\n"

    def partial_losses(self, request: Request) -> Iterable[Loss]:
        return partial_losses(request)

    def notes(self, request: Request) -> Iterable[Finding]:
        return request_notes(request)

    def compile(self, request: Request) -> tuple[Artifact, ...]:
        from gpuflow.targets.argo.workflow import compile_request  # loads Hera

        return (compile_request(request),)

    def beside(self, batch: Batch) -> Iterable[Artifact]:
        return kustomized(batch)


target = Argo()
