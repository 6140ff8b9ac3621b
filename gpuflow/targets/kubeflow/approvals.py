"""A pipeline without its approvals, for those who accept that loss: KFP has no step that waits for a person."""

from __future__ import annotations

from typing import Any

from gpuflow.graph.order import order
from gpuflow.spec.expression import Expression, Logic
from gpuflow.spec.flow import edges
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.step import Step


def without_approvals(pipeline: Pipeline) -> Pipeline:
    """Whatever waited for an approval waits for what the approval waited for, and runs under its condition too."""
    steps: dict[str, Step] = {}
    if not any(step.approval or step.pipeline for step in pipeline.steps.values()):
        return pipeline
    for name in order(edges(pipeline)):
        step = pipeline.steps[name]
        asked = [steps[need] for need in step.needs if steps[need].approval is not None]
        needs = [inner for need in step.needs for inner in (steps[need].needs if steps[need].approval else (need,))]
        conditions = [one for one in (*(before.when for before in asked), step.when) if one is not None]
        changes: dict[str, Any] = {"needs": tuple(dict.fromkeys(needs)), "when": _all(conditions)}
        if step.pipeline is not None:
            changes["pipeline"] = without_approvals(step.pipeline)
        steps[name] = step.model_copy(update=changes)
    kept = {name: steps[name] for name in pipeline.steps if steps[name].approval is None}
    return pipeline.model_copy(update={"steps": kept})


def _all(conditions: list[Expression]) -> Expression | None:
    return Logic("and", tuple(conditions)) if len(conditions) > 1 else conditions[0] if conditions else None
