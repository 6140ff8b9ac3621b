"""A loop in a DAG template of its own: `<step>-loop`.

Argo counts the children of a template, so a loop with its own parallelism needs one. It is also the place where the
outputs of all copies become one output: with a default, for a loop whose condition may leave every item out, or
exported, for an exit step that reads them.
"""

from __future__ import annotations

from typing import Any

from gpuflow.spec import expression
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.step import Step
from gpuflow.spec.text import ItemRef, OutputRef, ParamRef, Ref
from gpuflow.spec.types import condition_types, output_types
from gpuflow.targets.argo.exports import with_exports
from gpuflow.targets.argo.loops import asks_item, is_written, item_reading
from gpuflow.targets.argo.places import PLACE, PLACE_TAG
from gpuflow.targets.argo.spelling import (
    PLAIN_TYPES,
    Defaults,
    condition,
    handed_on,
    input_name,
    number,
    uncarried,
)

Task = dict[str, Any]
ITEMS = "items"
"""The input that carries the loop's list; `items--all` where the step uses a parameter of that name."""


def needs_template(name: str, step: Step, wanted: frozenset[OutputRef]) -> bool:
    """Whether the step is a loop that cannot stand in its pipeline's own DAG."""
    if not step.for_each:
        return False
    is_read = any(ref.step == name for ref in wanted)
    return step.parallel is not None or is_read or (asks_item(step) and bool(output_types(step)))


def loop_template(
    pipeline: Pipeline,
    name: str,
    task: Task,
    title: str,
    *,
    nested: bool,
    wanted: frozenset[OutputRef],
    defaults: Defaults,
) -> tuple[dict[str, Any], Task]:
    """The template `title` around the loop, and the task that calls it in place of `task`."""
    step = pipeline.effective(name)
    task = dict(task)
    outer: list[dict[str, str]] = []
    inner: list[dict[str, str]] = []
    for parameter in (task.pop("arguments") or {"parameters": []})["parameters"]:
        if _uses_item(parameter["value"]):
            inner.append(parameter)
            if parameter["value"].startswith(PLACE_TAG):
                outer.append({"name": PLACE, "value": PLACE_TAG})
        else:
            outer.append(parameter)
            inner.append({"name": parameter["name"], "value": f"{{{{inputs.parameters.{parameter['name']}}}}}"})
    each: Task = {"name": name, "template": task["template"], "when": None}
    if asks_item(step):
        task["when"], each["when"] = None, _inner_condition(pipeline, step, nested=nested)
        outer += _handed(pipeline, step, nested=nested, defaults=defaults)
    each["arguments"] = {"parameters": inner} if inner else None
    each["withItems"], each["withParam"] = task.pop("withItems", None), task.pop("withParam", None)
    if each["withParam"]:
        items = ITEMS if all(parameter["name"] != ITEMS for parameter in outer) else f"{ITEMS}--all"
        outer.append({"name": items, "value": each["withParam"]})
        each["withParam"] = f"{{{{inputs.parameters.{items}}}}}"
    template: dict[str, Any] = {
        "name": title,
        "inputs": {"parameters": [{"name": parameter["name"]} for parameter in outer]} if outer else None,
        "outputs": _outputs(name, step, wanted),
        "parallelism": step.parallel,
        "dag": {"tasks": [{key: value for key, value in each.items() if value}]},
    }
    call = {**task, "template": title, "arguments": {"parameters": outer} if outer else None}
    return {key: value for key, value in template.items() if value}, call


def _outputs(name: str, step: Step, wanted: frozenset[OutputRef]) -> dict[str, Any] | None:
    parameters = []
    for output in output_types(step):
        source = {"parameter": f"{{{{tasks.{name}.outputs.parameters.{output}}}}}"}
        if asks_item(step) or not is_written(step):
            source["default"] = "[]"  # Argo has no value at all when every item was left out, or there are none
        parameters.append({"name": output, "valueFrom": source})
    return with_exports({"parameters": parameters}, name, wanted) if parameters else None


def _uses_item(value: str) -> bool:
    """Whether an argument's value is made from the loop's item."""
    return "{{item" in value or "(item" in value or " item[" in value


def _outside(step: Step, *, nested: bool) -> dict[str, expression.Reference]:
    """References of the condition that the loop's own template cannot see, by the input that carries each."""
    assert step.when is not None
    found = {}
    for reference in expression.references(step.when):
        if isinstance(reference.ref, OutputRef) or (nested and isinstance(reference.ref, ParamRef)):
            found[f"when--{input_name(reference.ref)}"] = reference
    return found


def _handed(pipeline: Pipeline, step: Step, *, nested: bool, defaults: Defaults) -> list[dict[str, str]]:
    types, handed = condition_types(pipeline, step), []
    for name, reference in sorted(_outside(step, nested=nested).items()):
        kind, ref = types[expression.render(reference)], reference.ref
        if kind in PLAIN_TYPES:
            value = number(ref, kind, nested=nested, single_item=False, defaults=defaults)
        else:
            value = handed_on(ref, nested=nested, single_item=False, defaults=defaults)
        handed.append({"name": name, "value": value})
    return handed


def _inner_condition(pipeline: Pipeline, step: Step, *, nested: bool) -> str:
    assert step.when is not None
    carriers = {reference.ref: name for name, reference in _outside(step, nested=nested).items()}
    plain = item_reading(step, nested=nested)

    def read(ref: Ref, kind: str) -> str:
        if isinstance(ref, ItemRef) or ref not in carriers:
            return plain(ref, kind)
        value = f"inputs.parameters['{carriers[ref]}']"
        return value if kind in PLAIN_TYPES else uncarried(value)

    return f"{{{{={condition(step.when, condition_types(pipeline, step), read)}}}}}"
