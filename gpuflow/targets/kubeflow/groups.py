"""Sub-DAGs around a task: conditions and loops."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpuflow.spec.expression import Expression, references
from gpuflow.spec.fan_out import Range
from gpuflow.spec.step import Step
from gpuflow.spec.text import ItemRef, OutputRef, ParamRef
from gpuflow.targets.kubeflow.artifacts import ArtifactType
from gpuflow.targets.kubeflow.conditions import Cel
from gpuflow.targets.kubeflow.dag import AnyType, Dag, Item, Items, Task, Want, gathered, inputs_of, outputs_of
from gpuflow.targets.kubeflow.messages import ir
from gpuflow.targets.kubeflow.names import Channel, channel_name
from gpuflow.targets.kubeflow.values import LIST, STRING, STRUCT, Type, items_type, param_types, wanted_types

if TYPE_CHECKING:
    from gpuflow.targets.kubeflow.build import Builder


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
    fixed = {name: _fixed(source) for name, source in step.for_each.items()}
    if len(fixed) == 1 or any(items is None for items in fixed.values()):
        return _limited(_nested(step, fixed, builder), step.parallel)
    lists = {name: items for name, items in fixed.items() if items is not None}
    rows = [dict(zip(lists, row, strict=True)) for row in itertools.product(*lists.values())]
    item = builder.names.group("pipelinechannel--loop-item-param", set())
    columns = {ItemRef(name): Item(item, items_type(items), name) for name, items in lists.items()}
    return [Loop(columns, json.dumps(rows, sort_keys=True), None, step.parallel)]


def _fixed(source: Any) -> list[Any] | None:
    if isinstance(source, Range):
        return list(source.items)
    return list(source) if isinstance(source, tuple) else None


def _nested(step: Step, fixed: dict[str, list[Any] | None], builder: Builder) -> list[Loop]:
    """One loop per variable. Two variables over the same list have an item each, where kfp's compiler mixes them up."""
    made: list[Loop] = []
    for name, source in (step.for_each or {}).items():
        items, ref = fixed[name], ItemRef(name)
        if items is None and all(loop.source != source for loop in made):
            own = f"{channel_name(source)}-loop-item"
        else:
            own = builder.names.group("pipelinechannel--loop-item-param", set())
        type_ = _found_type(ref, step) if items is None else items_type(items)
        raw = None if items is None else json.dumps(items, sort_keys=True)
        made.append(Loop({ref: Item(own, type_)}, raw, source if items is None else None, None))
    return made


def _found_type(ref: ItemRef, step: Step) -> Type:
    """The type of items that are only known in the run: text, or what the sub-pipeline wants that is handed them."""
    if step.pipeline is None:
        return STRING
    types = param_types(step.pipeline, wanted_types(step.pipeline, {}))
    return next((types[name] for name, value in step.params.items() if value == ref), STRING)


def _limited(made: list[Loop], limit: int | None) -> list[Loop]:
    """KFP limits each loop by itself: the outermost gets the limit, those inside run one item at a time."""
    if limit is None:
        return made
    outer, *inner = made
    limited = [Loop(outer.items, outer.raw, outer.source, limit)]
    return limited + [Loop(loop.items, loop.raw, loop.source, 1) for loop in inner]


def in_loop(builder: Builder, task: Task, loop: Loop, around: Items) -> Task:
    """The task, once per item."""
    group, spec = _group(builder, "for-loop")
    iterator = spec.parameter_iterator
    first = next(iter(loop.items.values()))
    iterator.item_input = first.input
    if loop.limit is not None:
        spec.iterator_policy.parallelism_limit = loop.limit
    inner = Dag(direct=False, items={**around, **loop.items}, runs_over=loop.source)
    inner.add(task)
    lists: dict[str, Want] = {}
    if loop.source is not None:
        iterator.items.input_parameter = channel_name(loop.source)
        lists[channel_name(loop.source)] = (loop.source, LIST)
    else:
        iterator.items.raw = loop.raw or "[]"
    item_type = first.type if first.key is None else STRUCT
    own = {first.input: item_type}
    return _closed(builder, group, spec, inner, task, own, set(loop.items), lists=lists, many=True)


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
    spec.trigger_policy.condition = Cel(type_of, inner.input_name).render(tree)
    return _closed(builder, group, spec, inner, task, {}, set(), lists={}, many=False)


def _group(builder: Builder, kind: str) -> tuple[str, Any]:
    name = builder.names.group(kind, builder.step_names)
    return name, ir.PipelineTaskSpec(component_ref=ir.ComponentRef(name=f"comp-{name}"))


def _closed(
    builder: Builder,
    group: str,
    spec: Any,
    inner: Dag,
    task: Task,
    own: dict[str, Type],
    mine: set[ItemRef],
    *,
    lists: dict[str, Want],
    many: bool,
) -> Task:
    """The group as a task of the DAG around it. `own`: inputs the loop gives itself; `mine`: the items behind them;
    `lists`: the input with the list that it runs over."""
    surfaced = {channel_name(ref): ref for ref in task.outputs}
    outputs = {ref: (channel_name(ref), gathered(type_) if many else type_) for ref, (_, type_) in task.outputs.items()}
    # A variable of a loop further out is handed in like any other value.
    passed = {ref: inner.items[ref] for ref in inner.items if ref not in mine and _reads(task, ref)}
    used: dict[str, Want] = {inner.input_name(channel): (channel, type_) for channel, type_ in inner.used.items()}
    used |= {item.name: (ref, item.type) for ref, item in passed.items()} | lists
    types: dict[str, AnyType] = {**own, **{name: type_ for name, (_, type_) in used.items()}}
    component = ir.ComponentSpec(dag=inner.spec(surfaced), input_definitions=inputs_of(types))
    if surfaced:
        component.output_definitions.CopyFrom(outputs_of(dict(outputs.values())))
    builder.components[f"comp-{group}"] = component
    return Task(group, spec, used, {}, outputs)


def _reads(task: Task, ref: ItemRef) -> bool:
    return any(source == ref for source, _ in task.wants.values())
