"""What flows between tasks, and one DAG of the IR while it is filled: tasks and where their inputs come from.

The IR is KFP's protobuf messages in their JSON form, as plain data: tests parse all of it as the backend does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from gpuflow.spec.params import Param
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.step import Step
from gpuflow.spec.text import ItemRef, OutputRef, ParamRef, RunRef
from gpuflow.targets.kubeflow.containers import step_outputs
from gpuflow.targets.kubeflow.references import (
    RUN_FACTS,
    ArtifactRef,
    Channel,
    StatusRef,
    channel_name,
    placeholder,
)

SCHEMA_VERSION = "2.1.0"
Data = dict[str, Any]
"""A message in its JSON form."""
Type = str
"""A member of KFP's ParameterTypeEnum."""
STRING, INTEGER, DOUBLE, BOOLEAN = "STRING", "NUMBER_INTEGER", "NUMBER_DOUBLE", "BOOLEAN"
LIST, STRUCT, STATUS = "LIST", "STRUCT", "TASK_FINAL_STATUS"
_SCALARS: dict[str, Type] = {
    "string": STRING,
    "int": INTEGER,
    "float": DOUBLE,
    "bool": BOOLEAN,
    "file": STRING,
    "directory": STRING,
}


def wanted_types(pipeline: Pipeline, outside: Mapping[str, Type]) -> dict[ParamRef | OutputRef, Type]:
    """What readers want parameters and outputs to be: a fan-out a list, a sub-pipeline what its parameter is.

    `outside`: what readers outside want the pipeline's own outputs to be.
    """
    found = {ref: outside[name] for name, ref in pipeline.outputs.items() if name in outside}
    for step in pipeline.steps.values():
        sources = (step.for_each or {}).values()
        found.update({source: LIST for source in sources if isinstance(source, ParamRef | OutputRef)})
        if step.pipeline is not None:
            inner = param_types(step.pipeline, wanted_types(step.pipeline, {}))
            given = step.params.items()
            found.update({value: inner[name] for name, value in given if isinstance(value, ParamRef | OutputRef)})
    return found


def param_types(pipeline: Pipeline, wanted: Mapping[ParamRef | OutputRef, Type]) -> dict[str, Type]:
    """The types of a pipeline's parameters. JSON is a list or a map by its default; without one, by its readers."""
    return {name: _param_type(param, wanted.get(ParamRef(name))) for name, param in pipeline.params.items()}


def _param_type(param: Param, wanted: Type | None) -> Type:
    if param.type != "json":
        return _SCALARS[param.type]
    if param.default is None:
        return wanted if wanted in (LIST, STRUCT) else STRUCT
    return LIST if isinstance(param.default, list) else STRUCT


def output_type(kind: str, wanted: Type | None) -> Type:
    """An output's type. JSON stays text, so that it arrives as it was written, unless its reader needs the data."""
    if kind == "json":
        return wanted if wanted in (LIST, STRUCT) else STRING
    return _SCALARS[kind]


def items_type(items: list[Any]) -> Type:
    """The common type of a fixed list of items."""
    kinds = {type(item) for item in items}
    if kinds <= {int, float} and bool not in kinds:
        return _SCALARS["int" if kinds == {int} else "float"]
    single = kinds.pop() if len(kinds) == 1 else None
    return {bool: _SCALARS["bool"], dict: STRUCT, list: LIST}.get(single or str, STRING)


def constant(value: Any) -> Any:
    """Plain data as the IR holds it: every number is a double."""
    if isinstance(value, dict):
        return {key: constant(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [constant(item) for item in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def fixed_value(text: str) -> Data:
    """A value that is known now, as the backend wants it: in the form of a task's input."""
    return {"runtimeValue": {"constant": text}}


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
ARTIFACT_SCHEMA_VERSION = "0.0.1"
"""That of all of them in kfp 2."""


@dataclass(frozen=True, slots=True)
class ArtifactType:
    """The type of an artifact; `many`: of a list of them, one for each item of a loop."""

    title: str
    many: bool = False

    @property
    def as_list(self) -> ArtifactType:
        return replace(self, many=True)

    @property
    def definition(self) -> Data:
        """What an input or output of this type is declared as."""
        kind = {"schemaTitle": self.title, "schemaVersion": ARTIFACT_SCHEMA_VERSION}
        return {"artifactType": kind, "isArtifactList": True} if self.many else {"artifactType": kind}


def artifact_types(step: Step) -> dict[str, ArtifactType]:
    """The step's outputs that are artifacts of KFP."""
    return {name: ArtifactType(TITLES[kind]) for name, kind in step_outputs(step).kinds.items()}


def component_outputs(step: Step) -> dict[str, Type | ArtifactType]:
    """All that the component of a step on its own gives."""
    keys = step_outputs(step).keys
    return {keys[name]: output_type(output.type, None) for name, output in step.outputs.items()} | artifact_types(step)


def with_paths(word: str, inputs: Mapping[str, Type | ArtifactType]) -> str:
    """A word of a command in which an input that is an artifact is the path where KFP's launcher leaves its files."""
    for name, type_ in inputs.items():
        if isinstance(type_, ArtifactType):
            word = word.replace(placeholder(name), f"{{{{$.inputs.artifacts['{name}'].path}}}}")
    return word


EMPTY: Mapping[Any, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Constant:
    """A value that is known when the pipeline is compiled."""

    value: Any


@dataclass(frozen=True, slots=True)
class Item:
    """How a loop's body reads one variable of the fan-out: an input, and a key when the items are maps."""

    input: str
    type: Type
    key: str | None = None

    @property
    def name(self) -> str:
        """The input of a group further inside that is handed the variable."""
        return f"{self.input}-subvar-{self.key}" if self.key else self.input


Items = Mapping[ItemRef, Item]
AnyType = Type | ArtifactType
"""Of a value, or of an artifact."""
Input = tuple[Channel | Constant, AnyType]
OutputKey = OutputRef | ArtifactRef
"""What a task gives."""


@dataclass(slots=True)
class Task:
    """A task that is not placed yet: what it wants handed in, and which outputs it gives under which keys."""

    name: str
    spec: Data
    wants: dict[str, Input] = field(default_factory=dict)
    beside: dict[Channel, AnyType] = field(default_factory=dict)
    """What the DAG around the task must have, although the task itself does not take it: names of claims."""
    outputs: dict[OutputKey, tuple[str, AnyType]] = field(default_factory=dict)
    shown: str | None = None
    """Its name in the user interface; default: the name itself."""

    def give(self, kind: str, name: str, source: Data) -> None:
        """An input. `kind`: parameters or artifacts."""
        self.spec.setdefault("inputs", {}).setdefault(kind, {})[name] = source


@dataclass(slots=True)
class Dag:
    """Tasks and their wiring. `direct`: a pipeline's own DAG, whose inputs are the parameters under their own names."""

    direct: bool
    items: Items = field(default_factory=dict)
    runs_over: Channel | None = None
    """The list of the loop that the DAG is the body of."""
    tasks: dict[str, Any] = field(default_factory=dict)
    produced: dict[OutputKey, tuple[str, str, AnyType]] = field(default_factory=dict)
    used: dict[Channel, AnyType] = field(default_factory=dict)
    status_of: str | None = None
    """The task whose final status exit steps read; None where the status is handed in."""

    def add(self, task: Task, after: Iterable[str] = ()) -> None:
        """Place a task: wire its inputs and let it wait for the tasks it needs."""
        for name, (source, type_) in task.wants.items():
            if isinstance(source, ArtifactRef):
                task.give("artifacts", name, self._artifact(source, type_))
            else:
                task.give("parameters", name, self._source(source, type_))
        for channel, type_ in task.beside.items():
            self.used.setdefault(channel, type_)
        if waits := sorted(set(after)):
            task.spec["dependentTasks"] = waits
        task.spec["taskInfo"] = {"name": task.shown or task.name}
        self.tasks[task.name] = task.spec
        self.produced.update({ref: (task.name, key, type_) for ref, (key, type_) in task.outputs.items()})

    def input_name(self, channel: Channel) -> str:
        """Under which name the DAG itself is handed the channel."""
        if isinstance(channel, ItemRef):
            return self.items[channel].name
        if channel == self.runs_over:  # the driver takes it away under its own name
            return f"{channel_name(channel)}--list"
        return channel.name if self.direct and isinstance(channel, ParamRef) else channel_name(channel)

    def _artifact(self, source: ArtifactRef, type_: AnyType) -> Data:
        if source in self.produced:
            task, key, _ = self.produced[source]
            return {"taskOutputArtifact": {"producerTask": task, "outputArtifactKey": key}}
        self.used.setdefault(source, type_)
        return {"componentInputArtifact": self.input_name(source)}

    def _source(self, source: Channel | Constant, type_: AnyType) -> Data:
        match source:
            case Constant(value):
                return {"runtimeValue": {"constant": constant(value)}}
            case RunRef(field):
                return fixed_value(RUN_FACTS[field])
            case ItemRef() if source in self.items:
                item = self.items[source]
                selector = {"parameterExpressionSelector": f'parseJson(string_value)["{item.key}"]'} if item.key else {}
                return {"componentInputParameter": item.input, **selector}
            case OutputRef() if source in self.produced:
                task, key, _ = self.produced[source]
                return {"taskOutputParameter": {"producerTask": task, "outputParameterKey": key}}
            case StatusRef() if self.status_of is not None:
                return {"taskFinalStatus": {"producerTask": self.status_of}}
        self.used.setdefault(source, type_)
        return {"componentInputParameter": self.input_name(source)}

    def spec(self, outputs: Mapping[str, OutputKey], otherwise: Mapping[OutputRef, tuple[str, str]] = EMPTY) -> Data:
        """The DAG with the outputs it gives, each under its key.

        `otherwise`: the task, and its key, that give an output where the task that produces it did not end well.
        """
        given: dict[str, Data] = {}
        for key, ref in outputs.items():
            task, inner, _ = self.produced[ref]
            if isinstance(ref, ArtifactRef):
                selector = {"producerSubtask": task, "outputArtifactKey": inner}
                given.setdefault("artifacts", {})[key] = {"artifactSelectors": [selector]}
                continue
            places = [(task, inner), *([otherwise[ref]] if ref in otherwise else [])]
            chosen = [{"producerSubtask": one, "outputParameterKey": own} for one, own in places]
            value = {"valueFromParameter": chosen[0]}
            given.setdefault("parameters", {})[key] = (
                {"valueFromOneof": {"parameterSelectors": chosen}} if ref in otherwise else value
            )
        return {**({"tasks": self.tasks} if self.tasks else {}), **({"outputs": given} if given else {})}


def list_type(type_: AnyType) -> AnyType:
    """The type of what all items of a loop give."""
    return type_.as_list if isinstance(type_, ArtifactType) else LIST


def inputs_of(types: Mapping[str, AnyType]) -> Data:
    """Input definitions of a component, by name. The status of the steps need not be given."""
    spec = outputs_of(types)
    for definition in spec.get("parameters", {}).values():
        if definition["parameterType"] == STATUS:
            definition["isOptional"] = True
    return spec


def outputs_of(types: Mapping[str, AnyType]) -> Data:
    """Output definitions of a component, by name."""
    spec: Data = {}
    for name, type_ in types.items():
        if isinstance(type_, ArtifactType):
            spec.setdefault("artifacts", {})[name] = type_.definition
        else:
            spec.setdefault("parameters", {})[name] = {"parameterType": type_}
    return spec


def in_order(value: Any) -> Any:
    """Plain data with the keys of every map sorted."""
    if isinstance(value, dict):  # most of what is inside is text, so without a call
        return {key: item if type(item := value[key]) is str else in_order(item) for key in sorted(value)}
    if isinstance(value, list):
        return [item if type(item) is str else in_order(item) for item in value]
    return value
