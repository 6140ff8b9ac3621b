"""What steps refer to: the steps that it waits for, and the type of each parameter, output or item that it reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpuflow.graph.order import order
from gpuflow.spec import expression
from gpuflow.spec.fan_out import Range
from gpuflow.spec.step import Pipeline, Step
from gpuflow.spec.text import ItemRef, OutputRef, ParamRef, Ref


def upstream(pipeline: Pipeline) -> dict[str, tuple[str, ...]]:
    """For each step, the steps it waits for: its needs, and every step whose output it uses."""
    result: dict[str, tuple[str, ...]] = {}
    for name in pipeline.steps:
        step = pipeline.effective(name)
        used = (ref.step for _, ref in step.references() if isinstance(ref, OutputRef))
        result[name] = tuple(dict.fromkeys((*step.needs, *used)))
    return result


def every_step(pipeline: Pipeline, inside: str = "") -> Iterator[tuple[str, Step]]:
    """Every step with its defaults, exit steps too, and those of sub-pipelines by their way: `evaluate.score`."""
    for name in (*pipeline.steps, *pipeline.exit):
        step = pipeline.effective(name)
        yield inside + name, step
        if step.pipeline is not None:
            yield from every_step(step.pipeline, f"{inside}{name}.")


def called_pipeline(pipeline: Pipeline, step: Step) -> Pipeline:
    """The sub-pipeline of a step, with the step's arguments as parameters; null for what only the run knows."""
    inner = step.pipeline
    assert inner is not None
    if not step.params:
        return inner
    params = dict(inner.params)
    for name, given in step.params.items():
        if isinstance(given, ParamRef):
            value = pipeline.params[given.name].default
        else:
            value = None if isinstance(given, OutputRef | ItemRef) else given
        params[name] = params[name].model_copy(update={"default": value, "required": value is None})
    return inner.model_copy(update={"params": params})


def edges(pipeline: Pipeline, needs: dict[str, tuple[str, ...]] | None = None) -> dict[str, list[str]]:
    """For each step, the steps that wait for it, in document order; `needs` where they are known already."""
    needs = upstream(pipeline) if needs is None else needs
    after: dict[str, list[str]] = {name: [] for name in needs}
    for name in needs:
        for need in needs[name]:
            after[need].append(name)
    return after


def may_be_skipped(pipeline: Pipeline) -> dict[str, str]:
    """The steps that may not run, each with the reason."""
    reasons: dict[str, str] = {}
    if all(step.when is None for step in pipeline.steps.values()):
        return reasons  # a skip begins at a condition
    needs = upstream(pipeline)
    for name in order(edges(pipeline, needs)):
        step = pipeline.steps[name]
        if step.when is not None:
            reasons[name] = f"it runs only when {expression.render(step.when)}"
        elif step.if_skipped != "run":
            cause = next((need for need in needs[name] if need in reasons), None)
            if cause is not None:
                reasons[name] = f'it is skipped with "{cause}"'
    return reasons


def output_types(step: Step) -> Mapping[str, str]:
    """Each output of a step with the type a reader sees: a fan-out gives a JSON list."""
    if step.pipeline is not None:
        inner = step.pipeline
        types = {
            name: output_types(inner.steps[ref.step]).get(ref.name, "string")
            for name, ref in inner.outputs.items()
            if isinstance(ref, OutputRef) and ref.step in inner.steps
        }
    else:
        types = {name: output.type for name, output in step.outputs.items()}
    return dict.fromkeys(types, "json") if step.for_each else types


def writer_of(pipeline: Pipeline, ref: OutputRef) -> tuple[Pipeline, Step] | None:
    """The step that writes what a reference leads to, through sub-pipelines, and the pipeline in which it stands."""
    if ref.step not in pipeline.steps:
        return None
    step = pipeline.effective(ref.step)
    if step.pipeline is None:
        return (pipeline, step) if ref.name in step.outputs else None
    inner = step.pipeline.outputs.get(ref.name)
    return writer_of(step.pipeline, inner) if isinstance(inner, OutputRef) else None


def type_of(pipeline: Pipeline, step: Step, reference: expression.Reference) -> str:
    """The type of a reference in a condition; a list of values has none that could be compared."""
    ref = reference.ref
    if isinstance(ref, ParamRef) and ref.name in pipeline.params:
        return pipeline.params[ref.name].type
    if isinstance(ref, OutputRef) and ref.step in pipeline.steps:
        kind = output_types(pipeline.steps[ref.step]).get(ref.name, "json")
        if kind == "json" and pipeline.steps[ref.step].for_each:
            text = f'"{ref.step}" is a fan-out, so "{ref.name}" is a list of values'
            hint = "reduce it to one number in a separate step"
            raise expression.ExpressionError(text, reference.offset, hint, "GF162")
        return "string" if kind in ("file", "directory") else kind
    if isinstance(ref, ItemRef):
        return item_type((step.for_each or {}).get(ref.name))
    return "json"


def condition_types(pipeline: Pipeline, step: Step) -> dict[str, str]:
    """The type of each reference in a step's condition, by its canonical spelling."""
    found = expression.references(step.when) if step.when is not None else ()
    return {expression.render(reference): type_of(pipeline, step, reference) for reference in found}


def reference_type(pipeline: Pipeline, step: Step, ref: Ref) -> str:
    """The type of what a reference in a step's text stands for; `json` for a fan-out's list, `string` for a URI."""
    if isinstance(ref, ParamRef):
        return pipeline.params[ref.name].type
    if isinstance(ref, OutputRef):
        return output_types(pipeline.steps[ref.step]).get(ref.name, "string")
    return item_type((step.for_each or {}).get(ref.name)) if isinstance(ref, ItemRef) else "string"


def item_type(source: Any) -> str:
    """The type of one item of a fan-out; items that are only known at run time are text."""
    if isinstance(source, tuple):
        kinds = {type(item) for item in source}
        if kinds <= {int, float}:
            return "int" if kinds == {int} else "float"
        return "bool" if kinds == {bool} else "string"
    return "int" if isinstance(source, Range) else "string"
