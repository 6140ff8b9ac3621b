"""Steps by the names that a demand gives them: `train`, or `tune.train` inside a sub-pipeline."""

from __future__ import annotations

from collections.abc import Sequence

from gpuflow.demand import Demand
from gpuflow.errors import Where
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.step import Step

MOST_NAMES = 5


def home_of(demand: Demand, name: str) -> tuple[Pipeline, str]:
    """The pipeline that a step stands in, and its name there."""
    *path, last = name.split(".")
    pipeline = demand.pipeline
    for part in path:
        inner = pipeline.effective(part).pipeline
        assert inner is not None  # only sub-pipelines have steps inside
        pipeline = inner
    return pipeline, last


def step_of(demand: Demand, name: str) -> Step:
    """A step with the defaults of its pipeline filled in."""
    pipeline, last = home_of(demand, name)
    return pipeline.effective(last)


def where_of(demand: Demand, name: str) -> Where:
    """Where a step, or the sub-pipeline it belongs to, is written."""
    top = name.split(".")[0]
    return demand.pipeline.where("steps" if top in demand.pipeline.steps else "exit", top, key=True)


def listed(names: Sequence[str], noun: str = "step") -> str:
    """`step "a"`, `steps a, b`, `steps a, b, c, d, e and 7 more`."""
    if len(names) == 1:
        return f'{noun} "{names[0]}"'
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"{noun}s {', '.join(names[:MOST_NAMES])}{more}"
