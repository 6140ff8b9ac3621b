"""KFP's types of artifacts, in the definitions of components and in their commands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpuflow.spec.step import Step
from gpuflow.targets.kubeflow.handover import handover
from gpuflow.targets.kubeflow.messages import ir
from gpuflow.targets.kubeflow.names import placeholder
from gpuflow.targets.kubeflow.values import Type, output_type

TITLES = {
    "artifact": "system.Artifact",
    "dataset": "system.Dataset",
    "model": "system.Model",
    "metrics": "system.Metrics",
    "classification-metrics": "system.ClassificationMetrics",
    "html": "system.HTML",
    "markdown": "system.Markdown",
}
"""What kfp calls each kind of artifact."""
SCHEMA_VERSION = "0.0.1"
"""That of all of them in kfp 2."""


@dataclass(frozen=True, slots=True)
class ArtifactType:
    """The type of an artifact; `many`: of a list of them, one for each item of a loop."""

    title: str
    many: bool = False

    @property
    def gathered(self) -> ArtifactType:
        return replace(self, many=True)

    def define(self, spec: Any) -> None:
        """Write it into an input's or output's definition."""
        spec.artifact_type.CopyFrom(ir.ArtifactTypeSchema(schema_title=self.title, schema_version=SCHEMA_VERSION))
        if self.many:
            spec.is_artifact_list = True


def artifact_types(step: Step) -> dict[str, ArtifactType]:
    """The step's outputs that are artifacts of KFP."""
    return {name: ArtifactType(TITLES[kind]) for name, kind in handover(step).kinds.items()}


def component_outputs(step: Step) -> dict[str, Type | ArtifactType]:
    """All that the component of a step on its own gives."""
    keys = handover(step).keys
    return {keys[name]: output_type(output.type, None) for name, output in step.outputs.items()} | artifact_types(step)


def with_paths(word: str, inputs: Mapping[str, Type | ArtifactType]) -> str:
    """A word of a command in which an input that is an artifact is the path where KFP's launcher leaves its files."""
    for name, type_ in inputs.items():
        if isinstance(type_, ArtifactType):
            word = word.replace(placeholder(name), f"{{{{$.inputs.artifacts['{name}'].path}}}}")
    return word
