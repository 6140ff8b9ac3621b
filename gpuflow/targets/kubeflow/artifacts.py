"""A step's files as KFP's typed artifacts.

An output with a `kind` is an artifact of the task under its own name, so that ML Metadata has it and other components
take it. Its URI, which gpuflow's own steps read, is a parameter beside it: kfp gives every output of a component a name
of its own, be it a parameter or an artifact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gpuflow.spec.step import Step
from gpuflow.targets.kubeflow.messages import ir
from gpuflow.targets.kubeflow.names import placeholder
from gpuflow.targets.kubeflow.own_words import task_words
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
TASK = "{{$}}"
"""What KFP's launcher replaces with all it knows of a task: where artifacts go, and where it reads about them."""


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


@dataclass(frozen=True, slots=True)
class Handover:
    """How a step's outputs reach KFP: the parameter of each, the kind of those that are artifacts, and whose files KFP
    keeps too."""

    keys: Mapping[str, str] = field(default_factory=dict)
    kinds: Mapping[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ()

    def words(self) -> list[str]:
        """The options of the supervisor that say it."""
        told = [f"--output-kind={name}={kind}" for name, kind in self.kinds.items()]
        told += [f"--hand-over={name}" for name in self.files]
        return [
            *(f"--deliver={name}={{{{$.outputs.parameters['{key}'].output_file}}}}" for name, key in self.keys.items()),
            *(told and [*told, f"--kubeflow={TASK}"]),
        ]


def handover(step: Step, *, alone: bool = False) -> Handover:
    """What a step hands over. `alone`: in a hand-written pipeline, where KFP's own components may read its files."""
    said = task_words(step).hand_over
    files = alone if said is None else said
    kinds = {name: output.kind for name, output in step.outputs.items() if output.kind is not None}
    keys = {name: f"{name}-uri" if name in kinds else name for name in step.outputs}  # no output has '-' in its name
    return Handover(keys, kinds, tuple(kinds) if files else ())


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
