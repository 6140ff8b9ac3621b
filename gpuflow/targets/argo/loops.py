"""Fan-out as a loop of one task, and the DAG templates that stand around a step: `<step>-loop` and `<step>-export`.

A list that is written in the pipeline stands in `withItems`, each text spelled so that neither Argo nor the kubelet
changes it. A list that is only known at run time is a `withParam`; several lists become one there, by an expression
that makes every combination. A condition on the item must see the text as it is, so such a list is a `withParam` too.

Argo counts the children of a template, so a loop with its own parallelism needs one, `<step>-loop`. There the outputs
of all copies become one output: with a default, for a loop whose condition may leave every item out, or exported, for
an exit step that reads them.

An exit handler sees no task, so an output that an exit step reads is exported to the whole workflow. Argo exports what
a pod leaves as soon as the pod ends. What a loop gathers, or a cache answers, it exports when the DAG around it has
succeeded, which a run that fails never does; so these get a DAG of their own, `<step>-export`.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

from gpuflow.core.errors import Finding, Where
from gpuflow.kubernetes.expansion import escape
from gpuflow.spec import expression
from gpuflow.spec.fan_out import Range
from gpuflow.spec.params import text_of
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.references import condition_types, output_types
from gpuflow.spec.step import Step
from gpuflow.spec.text import ItemRef, OutputRef, ParamRef, Ref
from gpuflow.targets.argo.references import (
    PLAIN_TYPES,
    Defaults,
    Scope,
    condition,
    constant,
    hidden_json,
    input_name,
    percent_decoded,
    percent_encoded,
    without_tags,
)
from gpuflow.targets.argo.templates import PLACE_INPUT, PLACE_TAG
from gpuflow.targets.refusals import fan_out_finding


def exported_outputs(pipeline: Pipeline) -> frozenset[OutputRef]:
    """The outputs that some exit step uses."""
    steps = (pipeline.effective(name) for name in pipeline.exit)
    return frozenset(ref for step in steps for _, ref in step.references() if isinstance(ref, OutputRef))


def with_exports(outputs: dict[str, Any], step: str, wanted: frozenset[OutputRef]) -> dict[str, Any]:
    """A template's outputs, those that are wanted under a name that is global to the workflow."""
    refs = [(one, OutputRef(step, one["name"])) for one in outputs["parameters"]]
    named = [{**one, "globalName": input_name(ref)} if ref in wanted else one for one, ref in refs]
    return {**outputs, "parameters": named}


def exported_value(pipeline: Pipeline, ref: OutputRef) -> str:
    """The expression for an exported output's text: its default when the step failed, was skipped or never came."""
    step = pipeline.steps[ref.step]
    default = "[]" if step.for_each else text_of(step.outputs[ref.name].default)
    # Argo ends the expression at the first pair of closing braces, so the default's are written as escapes.
    return f"(workflow.outputs?.parameters?.['{input_name(ref)}'] ?? {constant(default)})"


def is_late(name: str, step: Step, wanted: frozenset[OutputRef]) -> bool:
    """Whether an exit step reads something that no pod of this run leaves by itself."""
    return any(ref.step == name for ref in wanted) and bool(step.for_each or step.cache)


def export_template(name: str, step: Step, task: dict[str, Any], title: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The template `title` around the step's template, and the task that calls it in place of `task`."""
    given = (task["arguments"] or {"parameters": []})["parameters"]
    handed = [{"name": one["name"], "value": f"{{{{inputs.parameters.{one['name']}}}}}"} for one in given]
    left = [
        {"name": output, "valueFrom": {"parameter": f"{{{{tasks.{name}.outputs.parameters.{output}}}}}"}}
        for output in output_types(step)
    ]
    inner = {"name": name, "template": task["template"], "arguments": {"parameters": handed} if handed else None}
    template = {
        "name": title,
        "inputs": {"parameters": [{"name": one["name"]} for one in given]} if given else None,
        "outputs": {"parameters": left},
        "dag": {"tasks": [{key: value for key, value in inner.items() if value}]},
    }
    return {key: value for key, value in template.items() if value}, {**task, "template": title}


AS_TEXT = "type(#) == 'string' ? # : toJson(#)"


def is_static(step: Step) -> bool:
    """Whether the loop's items stand in the manifest in their safe spelling."""
    return not expression.asks_item(step.when) and is_written(step)


def is_written(step: Step) -> bool:
    """Whether the loop's items stand in the manifest at all."""
    return not any(_is_open(source) for source in (step.for_each or {}).values())


def scope_of(step: Step, *, nested: bool, defaults: Defaults) -> Scope:
    """How the step's task reads what it refers to. `defaults`: for outputs of steps that were skipped."""
    return Scope(nested, len(step.for_each or ()) == 1, is_written(step), defaults)


def _is_open(source: Any) -> bool:
    return isinstance(source, ParamRef | OutputRef)


def loop(step: Step, scope: Scope) -> dict[str, Any]:
    """`withItems` or `withParam`, or nothing for a step that is no fan-out."""
    if not step.for_each:
        return {}
    keys, sources = tuple(step.for_each), tuple(step.for_each.values())
    if is_written(step):
        spell = _protect_item if is_static(step) else str
        rows = [[spell(text_of(value)) for value in row] for row in itertools.product(*map(_values, sources))]
        items = [row[0] if len(keys) == 1 else dict(zip(keys, row, strict=True)) for row in rows]
        # As JSON in which Argo finds no tag.
        text = json.dumps(items, ensure_ascii=False).replace("{{", "{\\u007b")
        return {"withItems": items} if is_static(step) else {"withParam": text}
    if len(keys) == 1:
        return {"withParam": hidden_json(scope.text(sources[0]))}
    return {"withParam": hidden_json(_combinations(step.for_each, scope))}


def _combinations(sources: dict[str, Any], scope: Scope) -> str:
    """The expression for every combination as a list of maps of texts. Braces never touch: `}}` would end the tag."""
    *outer, last = sources
    texts = {name: _texts_of(source, scope) for name, source in sources.items()}
    fields = ", ".join(f"'{name}': v{number}" for number, name in enumerate(outer))
    result = f"map({texts[last]}, {{ {{{fields}, '{last}': #}} }})"
    for number, name in reversed(list(enumerate(outer))):
        result = f"map({texts[name]}, {{let v{number} = #; {result} }})"
    return f"toJson(flatten({result}))"


def _texts_of(source: Any, scope: Scope) -> str:
    if _is_open(source):
        return f"map(fromJSON({scope.text(source)}), {AS_TEXT})"
    return "[" + ", ".join(constant(text_of(value)) for value in _values(source)) + "]"


def is_quoted(step: Step, name: str) -> bool:
    """Whether Argo hands an item of several variables on with JSON's escapes still in it."""
    texts = (_protect_item(text_of(value)) for value in _values((step.for_each or {})[name]))
    return any(json.dumps(text)[1:-1] != text for text in texts)


def item_findings(pipeline: Pipeline, name: str, step: Step) -> Iterator[Finding]:
    """Items that Argo cannot express: it quotes what it replaces as Go does, which is not JSON for the unprintable."""
    where = pipeline.where("steps", name, "for_each") if step.for_each else Where()
    written = [source for source in (step.for_each or {}).values() if not _is_open(source)]
    too_large = fan_out_finding(step, name, "Argo", where)
    if too_large is not None:
        yield too_large
        return
    for text in (text_of(value) for source in written for value in _values(source)):
        if not all(character.isprintable() or character in "\n\t\r" for character in text):
            yield Finding("GF306", f'step "{name}": Argo cannot express the item {text!r}', where, "use printable text")
        elif step.pipeline is not None and is_static(step) and _protect_item(text) != text:
            message = f'step "{name}": the item {text!r} cannot be passed to a sub-pipeline'
            yield Finding("GF306", message, where, "pass items with $ or { through a parameter instead")


def _protect_item(text: str) -> str:
    """An item as text that neither Argo nor the kubelet changes; numbers too, so that no engine prints them anew."""
    return without_tags(escape(text, glued=True))


def _values(source: Any) -> list[Any]:
    return list(source.items if isinstance(source, Range) else source)


Task = dict[str, Any]
ITEMS = "items"
"""The input that carries the loop's list; `items--all` where the step uses a parameter of that name."""


def needs_template(name: str, step: Step, wanted: frozenset[OutputRef]) -> bool:
    """Whether the step is a loop that cannot stand in its pipeline's own DAG."""
    if not step.for_each:
        return False
    is_read = any(ref.step == name for ref in wanted)
    return step.parallel is not None or is_read or (expression.asks_item(step.when) and bool(output_types(step)))


def loop_template(
    pipeline: Pipeline, name: str, task: Task, title: str, scope: Scope, wanted: frozenset[OutputRef]
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
                outer.append({"name": PLACE_INPUT, "value": PLACE_TAG})
        else:
            outer.append(parameter)
            inner.append({"name": parameter["name"], "value": f"{{{{inputs.parameters.{parameter['name']}}}}}"})
    each: Task = {"name": name, "template": task["template"], "when": None}
    if expression.asks_item(step.when):
        task["when"], each["when"] = None, _inner_condition(pipeline, step, scope)
        outer += _condition_inputs(pipeline, step, scope)
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
        if not is_static(step):
            source["default"] = "[]"  # Argo has no value at all when every item was left out, or there are none
        parameters.append({"name": output, "valueFrom": source})
    return with_exports({"parameters": parameters}, name, wanted) if parameters else None


def _uses_item(value: str) -> bool:
    """Whether an argument's value is made from the loop's item."""
    return "{{item" in value or "(item" in value or " item[" in value


def _outer_references(step: Step, scope: Scope) -> dict[str, expression.Reference]:
    """References of the condition that the loop's own template cannot see, by the input that carries each."""
    assert step.when is not None
    kinds = (OutputRef, ParamRef) if scope.nested else (OutputRef,)
    found = [reference for reference in expression.references(step.when) if isinstance(reference.ref, kinds)]
    return {f"when--{input_name(reference.ref)}": reference for reference in found}


def _condition_inputs(pipeline: Pipeline, step: Step, scope: Scope) -> list[dict[str, str]]:
    types, handed = condition_types(pipeline, step), []
    for name, reference in sorted(_outer_references(step, scope).items()):
        kind, ref = types[expression.render(reference)], reference.ref
        # Text for a sub-pipeline's parameter passes through Argo once more, so it travels without braces.
        plain = kind in PLAIN_TYPES
        value = scope.checked_number(ref, kind) if plain else percent_encoded(scope.text(ref))
        handed.append({"name": name, "value": value})
    return handed


def _inner_condition(pipeline: Pipeline, step: Step, scope: Scope) -> str:
    assert step.when is not None
    carriers = {reference.ref: name for name, reference in _outer_references(step, scope).items()}

    def read(ref: Ref, kind: str) -> str:
        if isinstance(ref, ItemRef) or ref not in carriers:
            return scope.read(ref, kind)
        value = f"inputs.parameters['{carriers[ref]}']"
        return value if kind in PLAIN_TYPES else percent_decoded(value)

    return f"{{{{={condition(step.when, condition_types(pipeline, step), read)}}}}}"
