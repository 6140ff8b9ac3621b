"""A pipeline of one step as a primitive component: one container, which kfp users adjust like any task of theirs.

kfp keeps a component's container, inputs and outputs, and takes resources, retries, caching and Kubernetes settings
from tasks only. So kfp's own loader leaves those of the file out, and `gpuflow.kubeflow.load_component` gives them to
each task. Run by itself, the file is a whole pipeline. Variables of fixed text stand in the command, where every loader
keeps them, and where KFP's cache compares them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpuflow.errors import Finding
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.text import OutputRef
from gpuflow.targets.frame import Request
from gpuflow.targets.kubeflow.alone import FLOW, SETTINGS, Alone, alone
from gpuflow.targets.kubeflow.artifacts import ArtifactType, component_outputs
from gpuflow.targets.kubeflow.build import component, parameters_of
from gpuflow.targets.kubeflow.command import RUN_AS_IT_IS
from gpuflow.targets.kubeflow.dag import AnyType
from gpuflow.targets.kubeflow.messages import SCHEMA_VERSION, ir
from gpuflow.targets.kubeflow.own_words import set_caching
from gpuflow.targets.kubeflow.plain import plain
from gpuflow.targets.kubeflow.pods import fixed
from gpuflow.targets.kubeflow.text import BRACE
from gpuflow.targets.kubeflow.values import STRING, constant, param_types, wanted_types
from gpuflow.version import __version__

HEADER = (
    "A component: gpuflow.kubeflow.load_component(FILE) makes tasks with everything in this file. kfp's own loader,",
    "load_component_from_file, keeps image, command, inputs and outputs, and leaves out resources, retries, caching",
    "and Kubernetes settings (nodes, volumes, Secrets, user, labels): set those on each task.",
)
_OF_A_PIPELINE = ("schedule", "on_data", "deadline", "parallel", "notify", "claims", "exit")


def component_refusals(pipeline: Pipeline) -> Iterator[Finding]:
    """Why a pipeline is not one component, each reason by name."""
    hint = "compile it as a pipeline, without --as component"

    def refusal(message: str, *place: str | int) -> Finding:
        return Finding(
            "GF398", f'pipeline "{pipeline.name}" is not one component: {message}', pipeline.where(*place), hint
        )

    if len(pipeline.steps) != 1:
        shown = ", ".join(f'"{name}"' for name in list(pipeline.steps)[:4])
        more = f" and {len(pipeline.steps) - 4} more" if len(pipeline.steps) > 4 else ""
        yield refusal(f"it has {len(pipeline.steps)} steps, {shown}{more}", "steps")
        return
    for field in _OF_A_PIPELINE:
        if getattr(pipeline, field):
            yield refusal(f"{field} belongs to the pipeline that uses the component", field)
    (name,) = pipeline.steps
    for field, instead in FLOW.items():
        if getattr(pipeline.effective(name), field):
            yield refusal(f'{field} of step "{name}" is written with {instead}', "steps", name)
    for out, ref in pipeline.outputs.items():
        if isinstance(ref, OutputRef) and ref.name != out:
            yield refusal(f'its output "{out}" is called "{ref.name}" in step "{name}"', "outputs", out)


def component_documents(request: Request) -> tuple[dict[str, Any], dict[str, Any]]:
    """The component and its platform document, as plain data."""
    pipeline = request.pipeline
    (name,) = pipeline.steps
    made = alone(pipeline.effective(name), request.site, pipeline.name, judged=True, labels=pipeline.labels)
    types = param_types(pipeline, wanted_types(pipeline, {}))
    spec = ir.PipelineSpec(schema_version=SCHEMA_VERSION, sdk_version=f"gpuflow-{__version__}")
    spec.pipeline_info.name = pipeline.name
    spec.pipeline_info.description = pipeline.description or ""
    outputs = component_outputs(made.step)
    inputs: dict[str, AnyType] = {**types, **dict.fromkeys(made.known, STRING)}
    label = f"comp-{pipeline.name}"
    spec.components[label].CopyFrom(component(f"exec-{pipeline.name}", inputs, outputs))
    given = parameters_of(pipeline, types)
    declared = spec.components[label].input_definitions.parameters
    for key in types:
        declared[key].CopyFrom(given.parameters[key])
    if SETTINGS in made.known:  # nobody's to give; kfp's own loader would ask for it
        declared[SETTINGS].is_optional = True
        declared[SETTINGS].default_value.CopyFrom(constant(made.known[SETTINGS]))
    _root(spec, pipeline, made, given, outputs)
    executor = ir.PipelineDeploymentConfig.ExecutorSpec(container=_portable(made.container))
    executors = plain(ir.PipelineDeploymentConfig(executors={f"exec-{pipeline.name}": executor}))
    written = dict(sorted({**plain(spec), "deploymentSpec": executors}.items()))
    config = plain(made.config)
    if not config:
        return written, {}
    kubernetes = {"deploymentSpec": {"executors": {f"exec-{pipeline.name}": config}}}
    return written, {"platforms": {"kubernetes": kubernetes}}


def _root(spec: Any, pipeline: Pipeline, made: Alone, given: Any, outputs: Mapping[str, AnyType]) -> None:
    """The component as the only task, so that the file runs by itself."""
    task = spec.root.dag.tasks[pipeline.name]
    task.component_ref.name, task.task_info.name = f"comp-{pipeline.name}", pipeline.name
    set_caching(task.caching_options, made.step)
    if made.policy is not None:
        task.retry_policy.CopyFrom(made.policy)
    for key in pipeline.params:
        task.inputs.parameters[key].component_input_parameter = key
    for key, value in made.known.items():
        task.inputs.parameters[key].CopyFrom(fixed(value))
    if pipeline.params:
        spec.root.input_definitions.CopyFrom(given)
    for out, type_ in outputs.items():
        if isinstance(type_, ArtifactType):
            type_.define(spec.root.output_definitions.artifacts[out])
            spec.root.dag.outputs.artifacts[out].artifact_selectors.add(
                producer_subtask=pipeline.name, output_artifact_key=out
            )
            continue
        spec.root.output_definitions.parameters[out].parameter_type = type_
        chosen = spec.root.dag.outputs.parameters[out].value_from_parameter
        chosen.producer_subtask, chosen.output_parameter_key = pipeline.name, out


def _portable(container: Any) -> Any:
    """The container with its variables in the command. The brace is left to whoever keeps variables."""
    moved = [f"{entry.name}={entry.value}" for entry in container.env if entry.name != BRACE]
    if not moved:
        return container
    made = type(container)()
    made.CopyFrom(container)
    kept = [entry for entry in container.env if entry.name == BRACE]
    del made.env[:]
    made.env.extend(kept)
    words = list(container.command)
    if "=" in words[0]:
        words = ["sh", "-c", RUN_AS_IT_IS, *words]
    del made.command[:]
    made.command.extend(["env", *moved, *words])
    return made
