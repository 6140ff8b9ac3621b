"""A pipeline as components, executors and their Kubernetes configs; conditions and loops as sub-DAGs around a task.

The IR is KFP's protobuf messages in their JSON form, as plain data: tests parse all of it as the backend does. First
comes what flows between tasks, and one DAG while it is filled: its tasks, and where their inputs come from.

A condition is one expression in CEL, the language of KFP's driver, `and` and `or` included, so a step has one
condition's sub-DAG however long its condition is. KFP hands every number over as a double; ints are converted back, as
KFP's own compiler does.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from gpuflow.graph.order import order
from gpuflow.plan import Plan, PlannedStep
from gpuflow.pod import Engine
from gpuflow.pod.supervision import DEFAULT_GRACE
from gpuflow.pod.volumes import run_claim_volume
from gpuflow.spec.expression import Compare, Expression, Literal, Logic, Member, Not, Reference, asks_item, references
from gpuflow.spec.fan_out import Range
from gpuflow.spec.params import Param, text_of
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.references import output_types
from gpuflow.spec.step import Step
from gpuflow.spec.text import ItemRef, OutputRef, ParamRef, RunRef
from gpuflow.targets.kubeflow import containers
from gpuflow.targets.kubeflow.exit_steps import asks_outcome, condition_on, defaults_of, defaults_step, outcome_channel
from gpuflow.targets.kubeflow.facts import FACTS, adds_containers
from gpuflow.targets.kubeflow.gangs import task_pod
from gpuflow.targets.kubeflow.pods import Data, claim_channels, container_spec, executor_config, fixed_value
from gpuflow.targets.kubeflow.references import (
    CACHE_SETTINGS,
    RUN_FACTS,
    RUN_LABEL,
    ArtifactRef,
    Channel,
    ClaimRef,
    KubeflowSpelling,
    Names,
    StatusRef,
    channel_name,
    input_name,
    placeholder,
)
from gpuflow.targets.kubeflow.retries import retry_policy

SCHEMA_VERSION = "2.1.0"
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
    return {name: ArtifactType(TITLES[kind]) for name, kind in containers.step_outputs(step).kinds.items()}


def component_outputs(step: Step) -> dict[str, Type | ArtifactType]:
    """All that the component of a step on its own gives."""
    keys = containers.step_outputs(step).keys
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


_DOLLAR = re.compile(r"\$(?=[$(]|[^\x00-\x7f])")
"""A dollar that a kubelet may take for more than that (gpuflow/kubernetes/expansion.py)."""
_LOGIC = {"and": " && ", "or": " || "}


class Cel:
    """Translates conditions; `type_of` and `name_of` know the references."""

    def __init__(self, type_of: Callable[[Channel], Type], name_of: Callable[[Channel], str] = channel_name) -> None:
        self._type_of, self._name_of = type_of, name_of

    def render(self, tree: Expression) -> str:
        """The condition as the driver reads it."""
        if isinstance(tree, Logic):
            terms = (f"({self.render(each)})" if isinstance(each, Logic) else self.render(each) for each in tree.terms)
            return _LOGIC[tree.operator].join(terms)
        if isinstance(tree, Not):
            return f"!({self.render(tree.term)})"
        if isinstance(tree, Member):
            options = ", ".join(_constant(option.value, self._is_double(tree.value)) for option in tree.options)
            found = f"{self._operand(tree.value, self._is_double(tree.value))} in [{options}]"
            return f"!({found})" if tree.negated else found
        if isinstance(tree, Compare):
            double = self._is_double(tree.left) or self._is_double(tree.right)
            return f"{self._operand(tree.left, double)} {tree.operator} {self._operand(tree.right, double)}"
        if isinstance(tree, Reference):
            return f"{self._operand(tree, False)} == true"
        return _constant(tree.value, False)

    def _is_double(self, tree: Expression) -> bool:
        if isinstance(tree, Literal):
            return isinstance(tree.value, float)
        return isinstance(tree, Reference) and self._type_of(tree.ref) == DOUBLE

    def _operand(self, tree: Expression, double: bool) -> str:
        if isinstance(tree, Literal):
            return _constant(tree.value, double)
        if isinstance(tree, Reference):
            value = f"inputs.parameter_values['{self._name_of(tree.ref)}']"
            whole = f"int({value})" if self._type_of(tree.ref) == INTEGER else value
            return f"double({whole})" if double and whole != value else whole
        return f"({self.render(tree)})"


def _constant(value: str | int | float | bool, double: bool) -> str:
    if isinstance(value, str):
        escaped = json.dumps(value, ensure_ascii=False)[1:-1].replace('\\"', '"').replace("'", "\\'")
        # On the way Argo would read a literal {{, and the driver's kubelet $$ and $(NAME).
        return "'" + _DOLLAR.sub(r"\\u0024", escaped.replace("{{", "{\\u007b")) + "'"
    if isinstance(value, bool):
        return str(value).lower()
    return f"double({value})" if double and isinstance(value, int) else str(value)


@dataclass(frozen=True, slots=True)
class Loop:
    """One loop: its item, and either fixed items or the channel that gives them."""

    items: dict[ItemRef, Item]
    raw: str | None
    source: ParamRef | OutputRef | None
    limit: int | None


def loops(step: Step, builder: Builder) -> list[Loop]:
    """The loops of a fan-out, outermost first. Fixed lists are multiplied out; others nest."""
    if step.for_each is None:
        return []
    fixed = {name: _fixed_items(source) for name, source in step.for_each.items()}
    if len(fixed) == 1 or any(items is None for items in fixed.values()):
        return _nested_loops(step, fixed, builder)
    lists = {name: items for name, items in fixed.items() if items is not None}
    rows = [dict(zip(lists, row, strict=True)) for row in itertools.product(*lists.values())]
    item = builder.names.group("pipelinechannel--loop-item-param", set())
    columns = {ItemRef(name): Item(item, items_type(items), name) for name, items in lists.items()}
    return [Loop(columns, json.dumps(rows, sort_keys=True), None, step.parallel)]


def _fixed_items(source: Any) -> list[Any] | None:
    if isinstance(source, Range):
        return list(source.items)
    return list(source) if isinstance(source, tuple) else None


def _nested_loops(step: Step, fixed: dict[str, list[Any] | None], builder: Builder) -> list[Loop]:
    """One loop per variable. Two variables over the same list have an item each, where kfp's compiler mixes them up.

    KFP limits each loop by itself: the outermost gets the limit, those inside run one item at a time.
    """
    made: list[Loop] = []
    for name, source in (step.for_each or {}).items():
        items, ref = fixed[name], ItemRef(name)
        if items is None and all(loop.source != source for loop in made):
            own = f"{channel_name(source)}-loop-item"
        else:
            own = builder.names.group("pipelinechannel--loop-item-param", set())
        type_ = _found_type(ref, step) if items is None else items_type(items)
        raw = None if items is None else json.dumps(items, sort_keys=True)
        limit = 1 if made and step.parallel is not None else step.parallel
        made.append(Loop({ref: Item(own, type_)}, raw, source if items is None else None, limit))
    return made


def _found_type(ref: ItemRef, step: Step) -> Type:
    """The type of items that are only known in the run: text, or what the sub-pipeline wants that is handed them."""
    if step.pipeline is None:
        return STRING
    types = param_types(step.pipeline, wanted_types(step.pipeline, {}))
    return next((types[name] for name, value in step.params.items() if value == ref), STRING)


def in_loop(builder: Builder, task: Task, loop: Loop, around: Items) -> Task:
    """The task, once per item."""
    group, spec = _group(builder, "for-loop")
    first = next(iter(loop.items.values()))
    if loop.limit is not None:
        spec["iteratorPolicy"] = {"parallelismLimit": loop.limit}
    inner = Dag(direct=False, items={**around, **loop.items}, runs_over=loop.source)
    inner.add(task)
    lists: dict[str, Input] = {}
    if loop.source is not None:
        lists[channel_name(loop.source)] = (loop.source, LIST)
    given = {"raw": loop.raw or "[]"} if loop.source is None else {"inputParameter": channel_name(loop.source)}
    spec["parameterIterator"] = {"itemInput": first.input, "items": given}
    item_type = first.type if first.key is None else STRUCT
    own = {first.input: item_type}
    return _group_task(builder, group, spec, inner, task, own, set(loop.items), lists=lists, many=True)


def in_condition(builder: Builder, task: Task, tree: Expression, items: Items, outer: Dag) -> Task:
    """The task, only when the condition holds."""
    group, spec = _group(builder, "condition")
    inner = Dag(direct=False, items={ref: Item(item.name, item.type) for ref, item in items.items()})
    inner.add(task)

    def type_of(channel: Channel) -> Type:
        found = builder.type_of(channel, outer, items)
        assert not isinstance(found, ArtifactType)  # conditions compare values
        return found

    for reference in references(tree):
        inner.used.setdefault(reference.ref, type_of(reference.ref))
    spec["triggerPolicy"] = {"condition": Cel(type_of, inner.input_name).render(tree)}
    return _group_task(builder, group, spec, inner, task, {}, set(), lists={}, many=False)


def _group(builder: Builder, kind: str) -> tuple[str, Data]:
    name = builder.names.group(kind, builder.step_names)
    return name, component_task(name)


def component_task(label: str, *, cached: Data | None = None) -> Data:
    """A task of a component. `cached`: its CachingOptions."""
    task: Data = {"componentRef": {"name": f"comp-{label}"}}
    return task if cached is None else {**task, "cachingOptions": cached}


def _group_task(
    builder: Builder,
    group: str,
    spec: Data,
    inner: Dag,
    task: Task,
    own: dict[str, Type],
    mine: set[ItemRef],
    *,
    lists: dict[str, Input],
    many: bool,
) -> Task:
    """The group as a task of the DAG around it. `own`: inputs the loop gives itself; `mine`: the items behind them;
    `lists`: the input with the list that it runs over."""
    surfaced = {channel_name(ref): ref for ref in task.outputs}
    outputs = {
        ref: (channel_name(ref), list_type(type_) if many else type_) for ref, (_, type_) in task.outputs.items()
    }
    # A variable of a loop further out is handed in like any other value.
    read = [source for source, _ in task.wants.values()]
    passed = {ref: item for ref, item in inner.items.items() if ref not in mine and ref in read}
    used: dict[str, Input] = {inner.input_name(channel): (channel, type_) for channel, type_ in inner.used.items()}
    used |= {item.name: (ref, item.type) for ref, item in passed.items()} | lists
    types: dict[str, AnyType] = {**own, **{name: type_ for name, (_, type_) in used.items()}}
    component = {"dag": inner.spec(surfaced), "inputDefinitions": inputs_of(types)}
    if surfaced:
        component["outputDefinitions"] = outputs_of(dict(outputs.values()))
    builder.components[f"comp-{group}"] = component
    return Task(group, spec, used, {}, outputs)


ENGINE = Engine(
    FACTS.supervisor, FACTS.outputs_dir, grace=DEFAULT_GRACE, run_id=RUN_LABEL, requests_disk=FACTS.requests_disk
)
"""Its cache compares commands and inputs: the id of the run is in neither, or no step would
ever find a result."""


class Builder:
    """Collects what the IR is made of. One builder serves a pipeline and all its sub-pipelines."""

    def __init__(
        self,
        plan: Plan,
        within: PlannedStep | None = None,
        parent: Builder | None = None,
        *,
        prefix: str = "",
        outside: Mapping[str, Type] | None = None,
    ) -> None:
        """`plan`: as Kubeflow starts its steps again. `within`: the step that the pipeline is, of a sub-pipeline;
        `prefix`: the steps around it; `outside`: what readers outside want its outputs to be."""
        pipeline = plan.pipeline if within is None else within.step.pipeline
        assert pipeline is not None
        self.plan, self.pipeline, self.prefix = plan, pipeline, prefix
        # kfp takes a pipeline for a single component when a component bears the pipeline's name.
        self.names: Names = parent.names if parent else Names(pipeline.name)
        self.components: dict[str, Data] = parent.components if parent else {}
        self.executors: dict[str, Data] = parent.executors if parent else {}
        self.configs: dict[str, Data] = parent.configs if parent else {}
        self.step_names = {*pipeline.steps, *pipeline.exit}
        self.planned = {each.own_name: each for each in plan.steps_by_parent.get(within.name if within else "", ())}
        self.steps = {name: each.step for name, each in self.planned.items()}
        self.reads = {
            name: [ref for _, ref in step.references() if isinstance(ref, OutputRef)]
            for name, step in self.steps.items()
        }
        self.consumed = {*pipeline.outputs.values(), *(ref for refs in self.reads.values() for ref in refs)}
        self.wanted = wanted_types(pipeline, outside or {})
        self.param_types = param_types(pipeline, self.wanted)
        self.handed_out = defaults_of(pipeline) if defaults_step(pipeline) else {}
        """The outputs that exit steps read, where a step writes their defaults."""
        self.claim_volumes = {name: run_claim_volume(name) for name in pipeline.claims}
        self.adds_containers = adds_containers(plan.site)
        self.engine = replace(ENGINE, within=prefix.rstrip("-"))

    def type_of(self, channel: Channel, dag: Dag, items: Items) -> AnyType:
        """The type of what flows through a channel, as seen from a DAG and inside the loops that give the items."""
        if isinstance(channel, ArtifactRef):
            return dag.produced[channel][2]
        if isinstance(channel, ItemRef):
            return items[channel].type
        if isinstance(channel, ParamRef):
            return self.param_types[channel.name]
        if isinstance(channel, OutputRef):
            return dag.produced[channel][2] if channel in dag.produced else STRING
        return STATUS if isinstance(channel, StatusRef) else STRING

    def fill(self, dag: Dag) -> None:
        """Place every step in the DAG, producers first."""
        needs = {
            name: {*self.steps[name].needs, *(ref.step for ref in self.reads[name])} for name in self.pipeline.steps
        }
        waiting: dict[str, list[str]] = {name: [] for name in needs}
        for name in needs:
            for need in needs[name]:
                waiting[need].append(name)
        tasks: dict[str, str] = {}
        for name in order(waiting):
            task = self.step_task(name, dag)
            dag.add(task, [tasks[need] for need in needs[name]])
            tasks[name] = task.name

    def step_task(self, name: str, dag: Dag) -> Task:
        """A step with its loops and conditions around it."""
        step = self.steps[name]
        layers = loops(step, self)
        items: dict[ItemRef, Item] = {ref: item for layer in layers for ref, item in layer.items.items()}
        task = self.sub_pipeline(name, step) if step.pipeline is not None else self.container(name, step, dag, items)
        condition = step.when
        each_time = asks_item(condition)
        if condition is not None and each_time:
            task = in_condition(self, task, condition, items, dag)
        for index, layer in reversed(list(enumerate(layers))):
            around = {ref: item for outer in layers[:index] for ref, item in outer.items.items()}
            task = in_loop(self, task, layer, around)
        if condition is not None and not each_time:
            task = in_condition(self, task, condition, {}, dag)
        return task

    def container(self, name: str, step: Step, dag: Dag, items: Items) -> Task:
        """The step's own container as a task."""
        label = self.names.unique_name(f"{self.prefix}{name}")
        used, claims, settings = self._executor(label, name, step)
        wants: dict[str, Input] = {
            input_name(channel): (self._source(name, channel), self.type_of(channel, dag, items)) for channel in used
        }
        wants |= {
            input_name(taken): (taken, dag.produced[taken][2]) for taken in self._input_artifacts(name, used, dag)
        }
        if settings is not None:
            wants[CACHE_SETTINGS] = (Constant(settings), STRING)
        made = self._step_outputs(name, step)
        inputs = {key: type_ for key, (_, type_) in wants.items()}
        self.components[f"comp-{label}"] = component(f"exec-{label}", inputs, dict(made.values()))
        spec = component_task(label, cached=containers.caching_options(step))
        policy = retry_policy(self.planned[name])
        if policy is not None:
            spec["retryPolicy"] = policy
        if asks_outcome(step):
            spec["triggerPolicy"] = {"condition": condition_on(self.pipeline, step)}
        given = {ref: key for ref, key in made.items() if OutputRef(ref.step, ref.name) in self.consumed}
        return Task(name, spec, wants, dict.fromkeys(claims, STRING), given, containers.task_options(step).display_name)

    def _step_outputs(self, name: str, step: Step) -> dict[OutputKey, tuple[str, AnyType]]:
        """What a step gives: the text of every output, and the artifacts behind some."""
        if not step.outputs:
            return {}
        keys, made = containers.step_outputs(step).keys, dict[OutputKey, tuple[str, AnyType]]()
        for out, output in step.outputs.items():
            ref = OutputRef(name, out)
            made[ref] = (keys[out], output_type(output.type, self.wanted.get(ref)))
        return made | {ArtifactRef(name, out): (out, type_) for out, type_ in artifact_types(step).items()}

    def _input_artifacts(self, name: str, used: list[Channel], dag: Dag) -> list[ArtifactRef]:
        """The artifacts behind the outputs that a step reads. An exit step reads what may not be there."""
        if name in self.pipeline.exit:
            return []
        behind = [ArtifactRef(channel.step, channel.name) for channel in used if isinstance(channel, OutputRef)]
        return [artifact for artifact in behind if artifact in dag.produced]

    def _source(self, name: str, channel: Channel) -> Channel | Constant:
        """Where a step finds a value: outputs that no step hands out to exit steps are their defaults."""
        if name not in self.pipeline.exit or not isinstance(channel, OutputRef) or channel in self.handed_out:
            return channel
        if channel.step not in self.pipeline.steps:
            return channel
        return Constant(text_of(self.steps[channel.step].outputs[channel.name].default))

    def _executor(self, label: str, name: str, step: Step) -> tuple[list[Channel], list[ClaimRef], str | None]:
        """Adds the step's container and its Kubernetes settings.

        Gives what its text refers to, its claims, and a hash of what KFP's cache does not look at.
        """
        spelling = KubeflowSpelling()
        pod = task_pod(self.planned[name], spelling, self.engine)
        claims = claim_channels(pod, self.claim_volumes)
        container = container_spec(pod["spec"]["containers"][0], outputs=containers.step_outputs(step))
        self.executors[f"exec-{label}"] = {"container": container}
        named = {volume: channel_name(claim) for volume, claim in claims.items()}
        config = executor_config(pod, named)
        if self.adds_containers:  # which the installed SDK may have no message for
            config = dict(sorted({**config, **containers.helper_config(pod)}.items()))
        self.configs[f"exec-{label}"] = config
        outcome = [outcome_channel(self.pipeline)] if asks_outcome(step) else []
        return [*spelling.used, *outcome], list(claims.values()), containers.cached_settings(step, pod)

    def sub_pipeline(self, name: str, step: Step) -> Task:
        """Another pipeline as one task."""
        assert step.pipeline is not None
        outside = {
            ref.name: type_ for ref, type_ in self.wanted.items() if isinstance(ref, OutputRef) and ref.step == name
        }
        inner = Builder(self.plan, self.planned[name], self, prefix=f"{self.prefix}{name}-", outside=outside)
        body = Dag(direct=True)
        inner.fill(body)
        label = self.names.unique_name(f"{self.prefix}{name}")
        outer = {out: OutputRef(name, out) for out in output_types(step) if OutputRef(name, out) in self.consumed}
        given = self._pipeline_outputs(name, {out: step.pipeline.outputs[out] for out in outer}, body)
        made = {"dag": body.spec(given[1]), "inputDefinitions": parameters_of(inner.pipeline, inner.param_types)}
        if given[0]:
            made["outputDefinitions"] = outputs_of(dict(given[0].values()))
        self.components[f"comp-{label}"] = made
        wants: dict[str, Input] = {}
        for param, value in step.params.items():
            channel = value if isinstance(value, ParamRef | OutputRef | ItemRef) else Constant(value)
            wants[param] = (channel, inner.param_types[param])
        return Task(name, component_task(label, cached={}), wants, {}, given[0])

    def _pipeline_outputs(
        self, name: str, inner: Mapping[str, OutputRef], body: Dag
    ) -> tuple[dict[OutputKey, tuple[str, AnyType]], dict[str, OutputKey]]:
        """What a sub-pipeline gives, and what that is inside: texts under their names, artifacts beside them."""
        given: dict[OutputKey, tuple[str, AnyType]] = {}
        inside: dict[str, OutputKey] = {}
        for out, ref in inner.items():
            given[OutputRef(name, out)], inside[out] = (out, body.produced[ref][2]), ref
            behind, key = ArtifactRef(ref.step, ref.name), f"{out}-artifact"
            if behind in body.produced and key not in inner:
                given[ArtifactRef(name, out)], inside[key] = (key, body.produced[behind][2]), behind
        return given, inside


def component(label: str, inputs: Mapping[str, AnyType], outputs: Mapping[str, AnyType]) -> Data:
    """A component that one executor runs."""
    spec: Data = {"executorLabel": label}
    if inputs:
        spec["inputDefinitions"] = inputs_of(inputs)
    if outputs:
        spec["outputDefinitions"] = outputs_of(outputs)
    return spec


def parameters_of(pipeline: Pipeline, types: Mapping[str, Type]) -> Data:
    """A pipeline's parameters as input definitions."""
    found = {name: _parameter(param, types[name]) for name, param in pipeline.params.items()}
    return {"parameters": found} if found else {}


def _parameter(param: Param, type_: Type) -> Data:
    entry: Data = {"parameterType": type_}
    if not param.required:
        entry["isOptional"] = True
        if param.default is not None:
            entry["defaultValue"] = constant(param.default)
    if param.description:
        entry["description"] = param.description
    if param.enum:
        entry["literals"] = [constant(value) for value in param.enum]
    return entry
