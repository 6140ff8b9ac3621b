"""How the steps of a pipeline hang together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpuflow.graph.order import order
from gpuflow.spec import expression
from gpuflow.spec.text import ItemRef, OutputRef, ParamRef

if TYPE_CHECKING:
    from gpuflow.spec.pipeline import Pipeline
    from gpuflow.spec.step import Step


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


def called(pipeline: Pipeline, step: Step) -> Pipeline:
    """The sub-pipeline of a step, its parameters being what this step hands over; what only the run knows is null."""
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


def edges(pipeline: Pipeline) -> dict[str, list[str]]:
    """For each step, the steps that wait for it, in document order."""
    return _turned(upstream(pipeline))


def _turned(needs: dict[str, tuple[str, ...]]) -> dict[str, list[str]]:
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
    for name in order(_turned(needs)):
        step = pipeline.steps[name]
        if step.when is not None:
            reasons[name] = f"it runs only when {expression.render(step.when)}"
        elif step.if_skipped != "run":
            cause = next((need for need in needs[name] if need in reasons), None)
            if cause is not None:
                reasons[name] = f'it is skipped with "{cause}"'
    return reasons
