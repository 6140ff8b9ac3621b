"""Steps by the names that a demand gives them: `train`, or `tune.train` inside a sub-pipeline."""

from __future__ import annotations

from collections.abc import Sequence

from gpuflow.demands import Demand
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
    return f'{noun} "{names[0]}"' if len(names) == 1 else f"{noun}s {shortened(names)}"


def shortened(names: Sequence[str]) -> str:
    """`a, b`, `a, b, c, d, e and 7 more`."""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"{', '.join(names[:MOST_NAMES])}{more}"


def asking(witness: Sequence[str], named: Sequence[str] = ()) -> str:
    """The subject and verb of what steps ask for at the worst moment; `named` are in the same sentence already."""
    if len(witness) == 1:
        return f"{witness[0]} asks"
    return "together they ask" if set(witness) == set(named) else f"{shortened(witness)} together ask"
