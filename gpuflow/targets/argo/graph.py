"""The steps of a pipeline as DAG templates: tasks, dependencies, conditions, loops, sub-pipelines, exit handler."""

from __future__ import annotations

import itertools
import json
from typing import Any

from gpuflow.errors import fail
from gpuflow.pod.expansion import escaped
from gpuflow.site import Site
from gpuflow.spec.flow import upstream
from gpuflow.spec.params import text_of
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.rules import condition_types, output_types, reference_type
from gpuflow.spec.step import Range, Step
from gpuflow.spec.text import ItemRef, OutputRef, ParamRef
from gpuflow.targets.argo.spelling import (
    PLAIN_TYPES,
    Inputs,
    argument,
    carried,
    condition,
    handed_on,
    hidden_json,
    safe,
    text_value,
    unquoted_item,
    without_tags,
)
from gpuflow.targets.argo.templates import approval_template, step_template

MAIN, EXIT = "main", "exit"


class Templates:
    """All templates of one workflow, in the order they are first needed."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.found: list[dict[str, Any]] = []

    def dag(self, pipeline: Pipeline, title: str, *, nested: bool) -> None:
        """A DAG template for a pipeline, and the templates of its steps."""
        place = len(self.found)
        prefix = f"{title}-" if nested else ""
        tasks = [self._task(pipeline, name, prefix, nested=nested) for name in pipeline.steps]
        template: dict[str, Any] = {"name": title}
        if nested:
            template["inputs"] = {"parameters": [{"name": name} for name in pipeline.params]}
            template["outputs"] = _nested_outputs(pipeline)
            template["parallelism"] = pipeline.parallel
        template["dag"] = {"tasks": tasks}
        self.found.insert(
            place, {key: value for key, value in template.items() if value not in (None, {"parameters": []})}
        )

    def exit(self, pipeline: Pipeline) -> None:
        """The exit handler: every exit step at once, each under its own condition on how the run ended."""
        place = len(self.found)
        tasks = []
        for name in pipeline.exit:
            title, inputs = self._step(pipeline, name, "")
            step = pipeline.effective(name)
            when = {"failure": "{{workflow.status}} != Succeeded", "success": "{{workflow.status}} == Succeeded"}.get(
                step.on or ""
            )
            task = {
                "name": name,
                "template": title,
                "arguments": _arguments(pipeline, inputs, step, nested=False, static=True),
                "when": when,
            }
            tasks.append({key: value for key, value in task.items() if value})
        self.found.insert(place, {"name": EXIT, "dag": {"tasks": tasks}})

    def _step(self, pipeline: Pipeline, name: str, prefix: str) -> tuple[str, Inputs]:
        step, title = pipeline.effective(name), prefix + name
        if step.approval is not None:
            self.found.append(approval_template(step, title))
            return title, Inputs()
        if step.pipeline is not None:
            self.dag(step.pipeline, title, nested=True)
            return title, Inputs()
        template, inputs = step_template(pipeline, name, title, self.site)
        self.found.append(template)
        return title, inputs

    def _task(self, pipeline: Pipeline, name: str, prefix: str, *, nested: bool) -> dict[str, Any]:
        step = pipeline.effective(name)
        place = len(self.found)
        title, inputs = self._step(pipeline, name, prefix)
        static = _is_static(step)
        if static and step.for_each:
            _refuse_items(pipeline, name, step)
        task: dict[str, Any] = {
            "name": name,
            "template": title,
            "depends": _depends(pipeline, name, step),
            "when": condition(step.when, condition_types(pipeline, step), nested=nested)
            if step.when is not None
            else None,
            "arguments": _arguments(pipeline, inputs, step, nested=nested, static=static),
            **_loop(step, nested=nested),
        }
        if step.parallel is not None:
            task = self._capped(pipeline, name, step, task, title, place)
        return {key: value for key, value in task.items() if value}

    def _capped(
        self, pipeline: Pipeline, name: str, step: Step, task: dict[str, Any], title: str, place: int
    ) -> dict[str, Any]:
        """A loop with its own parallelism stands in a template of its own: Argo counts the children of a template."""
        loop = f"{title}-loop"
        arguments = task.pop("arguments") or {"parameters": []}
        outer, inner = [], []
        for parameter in arguments["parameters"]:
            if _uses_item(parameter["value"]):
                inner.append(parameter)
            else:
                outer.append(parameter)
                inner.append({"name": parameter["name"], "value": f"{{{{inputs.parameters.{parameter['name']}}}}}"})
        each: dict[str, Any] = {"name": name, "template": title, "arguments": {"parameters": inner} if inner else None}
        each["withItems"], each["withParam"] = task.pop("withItems", None), task.pop("withParam", None)
        if each["withParam"]:
            outer.append({"name": "items", "value": each["withParam"]})
            each["withParam"] = "{{inputs.parameters.items}}"
        outputs = [
            {"name": output, "valueFrom": {"parameter": f"{{{{tasks.{name}.outputs.parameters.{output}}}}}"}}
            for output in output_types(step)
        ]
        template: dict[str, Any] = {
            "name": loop,
            "inputs": {"parameters": [{"name": parameter["name"]} for parameter in outer]} if outer else None,
            "outputs": {"parameters": outputs} if outputs else None,
            "parallelism": step.parallel,
            "dag": {"tasks": [{key: value for key, value in each.items() if value}]},
        }
        self.found.insert(place, {key: value for key, value in template.items() if value})
        return {**task, "template": loop, "arguments": {"parameters": outer} if outer else None}


def _depends(pipeline: Pipeline, name: str, step: Step) -> str | None:
    """`needs` means done, not skipped: Argo's bare task name would also accept a skipped one."""
    needs = upstream(pipeline)[name]
    done = "{0}.Succeeded" if step.if_skipped != "run" else "({0}.Succeeded || {0}.Skipped || {0}.Omitted)"
    return " && ".join(done.format(need) for need in needs) or None


def _given(step: Step) -> dict[str, Any]:
    """Values for a sub-pipeline's parameters."""
    if step.pipeline is None:
        return {}
    defaults = {name: param.default for name, param in step.pipeline.params.items() if not param.required}
    return {**defaults, **step.params}


def _arguments(pipeline: Pipeline, inputs: Inputs, step: Step, *, nested: bool, static: bool) -> dict[str, Any] | None:
    """Values for the template's inputs: safe text for containers, carried text for a sub-pipeline's parameters."""
    single = len(step.for_each or ()) == 1
    parameters: dict[str, str] = {}
    for name, ref in sorted(inputs.used.items()):
        written = static and isinstance(ref, ItemRef)  # the list itself was written safely
        if isinstance(ref, ItemRef) and static and not single and _is_quoted(step, ref.name):
            parameters[name] = unquoted_item(ref.name)
        elif written or reference_type(pipeline, step, ref) in PLAIN_TYPES:
            parameters[name] = argument(ref, nested=nested, single_item=single)
        else:
            parameters[name] = safe(text_value(ref, nested=nested, single_item=single))
    for name, value in _given(step).items():
        assert step.pipeline is not None
        plain = step.pipeline.params[name].type in PLAIN_TYPES
        if isinstance(value, ParamRef | OutputRef | ItemRef):
            spell = argument if plain else handed_on
            parameters[name] = spell(value, nested=nested, single_item=single)
        else:
            parameters[name] = text_of(value) if plain else carried(text_of(value))
    pairs = [{"name": name, "value": value} for name, value in parameters.items()]
    return {"parameters": pairs} if pairs else None


def _is_quoted(step: Step, name: str) -> bool:
    """Whether Argo hands an item of several variables on with JSON's escapes still in it."""
    texts = (_hidden(text_of(value)) for value in _values((step.for_each or {})[name]))
    return any(json.dumps(text)[1:-1] != text for text in texts)


def _uses_item(value: str) -> bool:
    """Whether an argument's value is made from the loop's item."""
    return "{{item" in value or "(item" in value or " item[" in value


def _is_static(step: Step) -> bool:
    """Whether the loop's items are written out in the manifest."""
    return not any(isinstance(source, ParamRef | OutputRef) for source in (step.for_each or {}).values())


def _loop(step: Step, *, nested: bool) -> dict[str, Any]:
    if not step.for_each:
        return {}
    if not _is_static(step):
        (source,) = step.for_each.values()
        return {"withParam": hidden_json(source, nested=nested)}
    rows = list(itertools.product(*(_values(source) for source in step.for_each.values())))
    if len(step.for_each) == 1:
        return {"withItems": [_hidden(text_of(value)) for (value,) in rows]}
    keys = tuple(step.for_each)
    return {"withItems": [{key: _hidden(text_of(value)) for key, value in zip(keys, row, strict=True)} for row in rows]}


def _refuse_items(pipeline: Pipeline, name: str, step: Step) -> None:
    """Items that Argo cannot carry: it quotes what it replaces as Go does, which is not JSON for the unprintable."""
    where = pipeline.where("steps", name, "for_each")
    for text in _texts(step):
        if not all(character.isprintable() or character in "\n\t\r" for character in text):
            raise fail(
                "GF306", f'step "{name}": Argo cannot carry the item {text!r}', where=where, hint="use printable text"
            )
        if step.pipeline is not None and _hidden(text) != text:
            raise fail(
                "GF306",
                f'step "{name}": the item {text!r} cannot be handed to a sub-pipeline',
                where=where,
                hint="hand items with $ or { over by a parameter instead",
            )


def _texts(step: Step) -> list[str]:
    return [text_of(value) for source in (step.for_each or {}).values() for value in _values(source)]


def _hidden(text: str) -> str:
    """An item as text that neither Argo nor the kubelet changes; numbers too, so that no engine prints them anew."""
    return without_tags(escaped(text, glued=True))


def _values(source: Any) -> list[Any]:
    return list(source.items if isinstance(source, Range) else source)


def _nested_outputs(pipeline: Pipeline) -> dict[str, Any]:
    parameters = []
    for name, ref in pipeline.outputs.items():
        assert isinstance(ref, OutputRef)
        parameters.append({"name": name, "valueFrom": {"parameter": argument(ref, nested=True, single_item=False)}})
    return {"parameters": parameters}
