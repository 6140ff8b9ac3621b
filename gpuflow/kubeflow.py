"""For kfp users: gpuflow steps inside a hand-written `@dsl.pipeline`.

    train = gpuflow.Step(command=["train", "--lr", {"param": "lr"}], gpu="a100-80gb", memory="64Gi", image="train:1")

    @dsl.pipeline(name="nightly")
    def nightly(lr: float = 1e-4):
        task = gpuflow.kubeflow.component(train, site="site.yaml", name="train")(lr=lr)

`component` makes tasks with everything the step says. `configure` gives a step's resources and policies to a task you
already have: `configure(task, gpuflow.Step(gpu="l4"))`. `load_component` reads a pipeline of one step from a file, as a
component whose tasks can be changed like any other. All raise `GpuflowError` when the step says something KFP
cannot carry.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from kfp import dsl
from kfp.components import load_component_from_text
from kfp.dsl.pipeline_channel import PipelineArtifactChannel, PipelineChannel
from kfp.dsl.types.type_utils import get_parameter_type
from kfp.pipeline_spec.pipeline_spec_pb2 import ParameterType

from gpuflow.core.emit import emit
from gpuflow.core.errors import Finding, Where, fail
from gpuflow.site import Site
from gpuflow.spec.builder import caller
from gpuflow.spec.canonical import to_document
from gpuflow.spec.loading import load, loads, read_bytes
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.rules.remarks import log_findings, step_template_warnings, value_template_warning
from gpuflow.spec.step import Step
from gpuflow.spec.text import Literally
from gpuflow.targets.kubeflow import target
from gpuflow.targets.kubeflow.build import (
    BOOLEAN,
    DOUBLE,
    INTEGER,
    LIST,
    SCHEMA_VERSION,
    STRING,
    STRUCT,
    AnyType,
    ArtifactType,
    Type,
    component_outputs,
    with_paths,
)
from gpuflow.targets.kubeflow.build import component as executor_component
from gpuflow.targets.kubeflow.facts import COMPONENT, KubeflowOptions
from gpuflow.targets.kubeflow.installation import unowned_claims, unowned_warning
from gpuflow.targets.kubeflow.pods import in_order
from gpuflow.targets.kubeflow.references import replaced_part
from gpuflow.targets.kubeflow.single_step import StepMessages, TaskSettings, apply_settings, step_messages
from gpuflow.targets.single_step import refuse_arguments, site_of
from gpuflow.targets.target import Request, compile_with, findings_of

__all__ = ["LoadedComponent", "StepComponent", "component", "configure", "load_component"]

VALUE_HINT = "pass a parameter of the pipeline, or a task's output"
"""What to pass where a template was meant."""
_OF_THE_COMMAND = {
    "working_dir": "KFP has no working directory",
    "checkpoint": "checkpoint needs the supervisor in front of it",
    "outputs": "outputs need the supervisor in front of it",
}
"""What a step says that only its command can carry."""
_OF_THE_TASK = ("image", "command", "args", "script", "description")
"""What a task has of its own."""
_PYTHON_TYPES: dict[type, Type] = {
    str: STRING,
    int: INTEGER,
    float: DOUBLE,
    bool: BOOLEAN,
    list: LIST,
    dict: STRUCT,
}


def component(step: Step, site: Site | str = "nvidia", *, name: str = "step") -> StepComponent:
    """A component that makes tasks of the step. Its references are keyword arguments, which may be kfp channels.

    :param step: what runs, a `gpuflow.Step`.
    :param site: how the cluster names its GPUs and queues: a Site, a preset, or a file.
    :param name: the component's name.
    """
    used, where = site_of(site), caller()
    made = step_messages(step, used, name)
    log_findings([*step_template_warnings(step, where), *_claim_notes(step, name, used, where), *made.weaker], __name__)
    return StepComponent(made)


def configure(
    task: dsl.PipelineTask, step: Step, site: Site | str = "nvidia", *, name: str | None = None
) -> dsl.PipelineTask:
    """Give an existing task what the step says of resources, placement, volumes, environment, retries and caching.

    The task keeps its image and its command, and whatever the step does not speak of: its caching, and the user that it
    runs as. The site's user is for images that were made for it; a task that installs packages when it starts, as
    kfp's own Python components do, may have no place for them as another user.

    :param task: a task of a pipeline of yours.
    :param step: what it needs, a `gpuflow.Step` without a command.
    :param site: as for `component`.
    :param name: the step's name in labels and messages.
    """
    if not isinstance(task, dsl.PipelineTask):
        raise fail("GF301", f"configure takes a task and a step, not a {type(task).__name__}")
    used, where = site_of(site), caller()
    made = step_messages(_with_command(step), used, name or task.name, own_command=False)
    left_alone = [*_ignored_fields(task, step, where), *_claim_notes(step, task.name, used, where), *made.weaker]
    log_findings([*step_template_warnings(step, where), *left_alone], __name__)
    for field, why in _OF_THE_COMMAND.items():
        if getattr(step, field):
            raise fail("GF301", f"configure leaves a task's command alone, and {why}", hint="use component")
    late = [key for key, value in step.env.items() if not isinstance(value, str) and hasattr(value, "canonical")]
    if late:
        raise fail(
            "GF301", f"configure cannot set {late[0]} to a reference: KFP's variables are fixed", hint="use component"
        )
    said, settings = step.security, made.settings
    if said is None or (said.user is None and said.group is None and not said.run_as_root):
        settings = replace(settings, config={k: v for k, v in settings.config.items() if k != "securityContext"})
    if step.cache is None:
        settings = replace(settings, task={k: v for k, v in settings.task.items() if k != "cachingOptions"})
    return apply_settings(task, settings)


def _claim_notes(step: Step, name: str, site: Site, where: Where) -> Iterator[Finding]:
    claims = unowned_claims(step, site)
    if claims:
        yield unowned_warning((name,), tuple(claims), site, where)


def _with_command(step: Step) -> Step:
    """The step with a command of its own, for whoever makes its pod; `configure` uses neither."""
    if not isinstance(step, Step) or not (step.runs_nothing or step.image is None):
        return step
    return step.model_copy(update={"image": step.image or "unused", "command": step.command or ("unused",)})


def _ignored_fields(task: dsl.PipelineTask, step: Step, where: Where) -> Iterator[Finding]:
    """What a step says and its task does not get."""
    unused = [field for field in _OF_THE_TASK if getattr(step, field)]
    if unused:
        yield Finding(
            "GF305",
            f'configure leaves the image and the command of task "{task.name}" alone: {", ".join(unused)} of the step '
            "has no effect",
            where,
            "leave it out, or use component",
            "note",
        )
    cached = task._task_spec.enable_caching if step.cache is None else step.cache
    if cached and (step.env or step.volumes):
        yield Finding(
            "GF305",
            f'task "{task.name}" may get an earlier result: KFP compares image, command and inputs, and looks neither '
            "at variables nor at volumes",
            where,
            "after a change of these, task.set_caching_options(False); or use component, which makes them an input",
            "note",
        )


def load_component(path: str | Path, *, site: Site | str = "nvidia", **fields: Any) -> LoadedComponent:
    """A component from a file: a gpuflow pipeline of one step, or what `gpuflow compile --as component` made of one.

    Its tasks have everything the file says, and everything kfp's tasks can be told. `fields` replace those of the step,
    for a site: `load_component("train.yaml", site="site.yaml", image="mine:2", gpu="h100 x 4")`. A compiled file is
    for a site already, and its step is fixed.

    :param path: the file.
    :param site: as for `component`.
    :param fields: fields of the step, which replace those of the file.
    """
    text = read_bytes(Path(path)).decode("utf-8")
    if text.lstrip().startswith("# Made by gpuflow"):
        if fields:
            text = f"{path} is compiled: {next(iter(fields))} of its step is fixed"
            raise fail("GF398", text, where=caller(), hint="load the pipeline it was compiled from, or change the task")
        return LoadedComponent(text)
    pipeline = _replace_fields(load(path), fields)
    request = Request(pipeline, site_of(site), None, Path(path).name, (), KubeflowOptions(form=COMPONENT))
    made = compile_with(target, request, allow_lossy=False)
    log_findings(findings_of(target, request, made), __name__)
    return LoadedComponent(made.text)


def _replace_fields(pipeline: Pipeline, fields: dict[str, Any]) -> Pipeline:
    """The pipeline with other fields of its only step."""
    if not fields:
        return pipeline
    document = to_document(pipeline)
    for step in document["steps"].values():
        step.update(fields)
    return loads(emit(document), pipeline.source.file or "<text>")


class LoadedComponent:
    """Called in a pipeline, it makes a task with everything its file says.

    :param text: the compiled component.
    """

    def __init__(self, text: str) -> None:
        try:
            spec, *rest = yaml.safe_load_all(text)
            name = spec["pipelineInfo"]["name"]
            found = spec["deploymentSpec"]["executors"].get(f"exec-{name}", {})
            task = spec["root"]["dag"]["tasks"].get(name)
            platforms = rest[0]["platforms"]["kubernetes"] if rest else {}
        except (yaml.YAMLError, KeyError, TypeError, ValueError) as error:
            raise fail(
                "GF398", f"the file is no compiled component: {type(error).__name__}", hint="compile it again"
            ) from None
        if "container" not in found or task is None:
            raise fail(
                "GF398", f'"{name}" is a pipeline, not a component', hint="kfp.components.load_component_from_file"
            )
        config = platforms.get("deploymentSpec", {}).get("executors", {}).get(f"exec-{name}", {})
        given = task.get("inputs", {}).get("parameters", {})
        self.known = {key: one["runtimeValue"]["constant"] for key, one in given.items() if "runtimeValue" in one}
        """The inputs that KFP itself gives a value, or that are fixed."""
        declared = spec["components"][f"comp-{name}"].get("inputDefinitions", {}).get("parameters", {})
        self._settings = TaskSettings(dict(found["container"]), config, {"cachingOptions": {}, **task})
        found["container"].pop("env", None)  # kfp sets variables on tasks only
        self._component = load_component_from_text(emit(spec))
        self.inputs = tuple(key for key in declared if key not in self.known)
        self.component_spec = self._component.component_spec
        self._defaults = {key: _default(one) for key, one in declared.items() if "defaultValue" in one}

    def __call__(self, **arguments: Any) -> dsl.PipelineTask:
        given = {**self._defaults, **self.known, **arguments}
        return apply_settings(self._component(**given), self._settings)


def _default(declared: dict[str, Any]) -> Any:
    """An input's default as kfp wants it: the IR holds every number as a double."""
    value = declared["defaultValue"]
    return int(value) if declared["parameterType"] == "NUMBER_INTEGER" else value


class StepComponent:
    """Called in a pipeline, it makes a task. What an argument is decides the type of the component's input.

    :param made: what the step became.
    """

    def __init__(self, made: StepMessages) -> None:
        self._made = made
        self.inputs = made.arguments

    def __call__(self, **arguments: Any) -> dsl.PipelineTask:
        refuse_arguments(f'component "{self._made.name}"', self.inputs, arguments)
        where = caller()
        # KFP's own placeholders in a constant are filled in by KFP.
        asked = {name: value for name, value in arguments.items() if "{{$." not in str(value)}
        log_findings(
            (each for name in asked for each in value_template_warning(name, asked[name], where, VALUE_HINT)), __name__
        )
        arguments = {name: str(value) if isinstance(value, Literally) else value for name, value in arguments.items()}
        for name, value in arguments.items():
            _refuse_lost(f'component "{self._made.name}"', name, value, self._made.step.env, where)
        known = self._made.known
        types = {name: _type(name, value) for name, value in arguments.items()} | dict.fromkeys(known, STRING)
        return apply_settings(load_component_from_text(self.text(types))(**arguments, **known), self._made.settings)

    def text(self, types: dict[str, AnyType] | None = None) -> str:
        """The component as YAML that `kfp.components.load_component_from_text` reads; inputs are text unless said."""
        made = self._made
        outputs = component_outputs(made.step)
        inputs: dict[str, AnyType] = types or dict.fromkeys((*made.arguments, *made.known), STRING)
        bare = {
            "image": made.settings.container["image"],
            "command": [with_paths(word, inputs) for word in made.settings.container["command"]],
        }
        task = {"componentRef": {"name": f"comp-{made.name}"}, "taskInfo": {"name": made.name}}
        spec = {
            "components": {f"comp-{made.name}": executor_component(f"exec-{made.name}", inputs, outputs)},
            "deploymentSpec": {"executors": {f"exec-{made.name}": {"container": bare}}},
            "pipelineInfo": {"name": made.name},
            "root": {"dag": {"tasks": {made.name: task}}},
            "schemaVersion": SCHEMA_VERSION,
        }
        return emit(in_order(spec))


def _refuse_lost(what: str, name: str, value: Any, variables: Collection[str], where: Where) -> None:
    """A constant that KFP would hand over as something else, as in a pipeline's own document."""
    if not isinstance(value, str) or "{{" in value:  # KFP's own placeholders are for KFP, and others are questioned
        return
    lost = replaced_part(value, lambda: variables)
    if lost is not None:
        hint = "write it in the step's command, or keep it in a file or a ConfigMap"
        raise fail("GF301", f"{what}: {name}={value[:60]!r} holds {lost}", where=where, hint=hint)


def _type(name: str, value: Any) -> AnyType:
    """What an argument is. KFP's launcher brings the files of one artifact, and names no place for a list of them."""
    if isinstance(value, dsl.Collected | PipelineArtifactChannel) and value.is_artifact_list:
        text = f"{name} is a list of artifacts, and KFP tells a container no paths for these"
        hint = "pass the URIs, dsl.Collected(task.outputs['model-uri']) for a step with the output model"
        raise fail("GF301", text, where=caller(), hint=hint)
    if isinstance(value, PipelineArtifactChannel):
        return ArtifactType(str(value.channel_type).partition("@")[0])
    if isinstance(value, PipelineChannel):
        kind = get_parameter_type(value.channel_type)
        return ParameterType.ParameterTypeEnum.Name(kind) if kind else STRING
    return _PYTHON_TYPES.get(type(value), STRING)
