"""One DAG of the IR while it is filled: tasks, where their inputs come from, and what the DAG must be handed itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from gpuflow.spec.text import ItemRef, OutputRef, ParamRef, RunRef
from gpuflow.targets.kubeflow.messages import LIST, ArtifactType, Type, constant, ir
from gpuflow.targets.kubeflow.pods import fixed_value
from gpuflow.targets.kubeflow.references import RUN_FACTS, ArtifactRef, Channel, StatusRef, channel_name

_Input: Any = ir.TaskInputsSpec.InputParameterSpec
_Artifact: Any = ir.TaskInputsSpec.InputArtifactSpec
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
    spec: Any
    wants: dict[str, Input] = field(default_factory=dict)
    beside: dict[Channel, AnyType] = field(default_factory=dict)
    """What the DAG around the task must have, although the task itself does not take it: names of claims."""
    outputs: dict[OutputKey, tuple[str, AnyType]] = field(default_factory=dict)
    shown: str | None = None
    """Its name in the user interface; default: the name itself."""


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
                task.spec.inputs.artifacts[name].CopyFrom(self._artifact(source, type_))
            else:
                task.spec.inputs.parameters[name].CopyFrom(self._source(source, type_))
        for channel, type_ in task.beside.items():
            self.used.setdefault(channel, type_)
        task.spec.dependent_tasks.extend(sorted(set(after)))
        task.spec.task_info.name = task.shown or task.name
        self.tasks[task.name] = task.spec
        self.produced.update({ref: (task.name, key, type_) for ref, (key, type_) in task.outputs.items()})

    def input_name(self, channel: Channel) -> str:
        """Under which name the DAG itself is handed the channel."""
        if isinstance(channel, ItemRef):
            return self.items[channel].name
        if channel == self.runs_over:  # the driver takes it away under its own name
            return f"{channel_name(channel)}--list"
        return channel.name if self.direct and isinstance(channel, ParamRef) else channel_name(channel)

    def _artifact(self, source: ArtifactRef, type_: AnyType) -> Any:
        if source in self.produced:
            task, key, _ = self.produced[source]
            made = _Artifact.TaskOutputArtifactSpec(producer_task=task, output_artifact_key=key)
            return _Artifact(task_output_artifact=made)
        self.used.setdefault(source, type_)
        return _Artifact(component_input_artifact=self.input_name(source))

    def _source(self, source: Channel | Constant, type_: AnyType) -> Any:
        match source:
            case Constant(value):
                return _Input(runtime_value=ir.ValueOrRuntimeParameter(constant=constant(value)))
            case RunRef(field):
                return fixed_value(RUN_FACTS[field])
            case ItemRef() if source in self.items:
                item = self.items[source]
                selector = f'parseJson(string_value)["{item.key}"]' if item.key else ""
                return _Input(component_input_parameter=item.input, parameter_expression_selector=selector)
            case OutputRef() if source in self.produced:
                task, key, _ = self.produced[source]
                made = _Input.TaskOutputParameterSpec(producer_task=task, output_parameter_key=key)
                return _Input(task_output_parameter=made)
            case StatusRef() if self.status_of is not None:
                return _Input(task_final_status=_Input.TaskFinalStatus(producer_task=self.status_of))
        self.used.setdefault(source, type_)
        return _Input(component_input_parameter=self.input_name(source))

    def spec(self, outputs: Mapping[str, OutputKey], otherwise: Mapping[OutputRef, tuple[str, str]] = EMPTY) -> Any:
        """The DAG with the outputs it gives, each under its key.

        `otherwise`: the task, and its key, that give an output where the task that produces it did not end well.
        """
        dag = ir.DagSpec(tasks=self.tasks)
        for key, ref in outputs.items():
            task, inner, _ = self.produced[ref]
            if isinstance(ref, ArtifactRef):
                dag.outputs.artifacts[key].artifact_selectors.add(producer_subtask=task, output_artifact_key=inner)
                continue
            given = dag.outputs.parameters[key]
            if ref not in otherwise:
                given.value_from_parameter.producer_subtask = task
                given.value_from_parameter.output_parameter_key = inner
                continue
            for one, own in ((task, inner), otherwise[ref]):
                given.value_from_oneof.parameter_selectors.add(producer_subtask=one, output_parameter_key=own)
        return dag


def list_type(type_: AnyType) -> AnyType:
    """The type of what all items of a loop give."""
    return type_.as_list if isinstance(type_, ArtifactType) else LIST


def inputs_of(types: Mapping[str, AnyType]) -> Any:
    """Input definitions of a component, by name."""
    spec = outputs_of(types, ir.ComponentInputsSpec())
    for parameter in spec.parameters.values():
        if parameter.parameter_type == ir.ParameterType.TASK_FINAL_STATUS:
            parameter.is_optional = True
    return spec


def outputs_of(types: Mapping[str, AnyType], spec: Any = None) -> Any:
    """Output definitions of a component, by name. `spec`: what the definitions are put into instead."""
    spec = ir.ComponentOutputsSpec() if spec is None else spec
    for name, type_ in types.items():
        if isinstance(type_, ArtifactType):
            type_.define(spec.artifacts[name])
        else:
            spec.parameters[name].parameter_type = type_
    return spec
