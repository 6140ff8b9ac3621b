"""Argo Workflows: YAML fit to commit, built on Hera's typed models."""

from __future__ import annotations

from collections.abc import Iterable

from gpuflow.errors import Finding
from gpuflow.targets.argo.capabilities import CAPABILITIES
from gpuflow.targets.argo.facts import FACTS
from gpuflow.targets.frame import Artifact, Request, Target


class Argo(Target):
    """Compiles to a WorkflowTemplate, or to a CronWorkflow when there is a schedule; --as asks for another kind."""

    facts = FACTS
    capabilities = CAPABILITIES

    def notes(self, request: Request) -> Iterable[Finding]:
        from gpuflow.targets.argo.notes import request_notes

        return request_notes(request)

    def compile(self, request: Request) -> Artifact:
        from gpuflow.targets.argo.workflow import compile_request  # loads Hera

        return compile_request(request)


target = Argo()
