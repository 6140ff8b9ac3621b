"""What is asked of a cluster: a demand is a value of its own, `demand_of(pipeline, site)` makes that of a pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuflow.demands.model import (
    ClaimDemand,
    Deadline,
    Demand,
    LaterAttempts,
    Overlap,
    PodSet,
    StepDemand,
    UnseenPart,
    graph_of,
)
from gpuflow.demands.peaks import ALIASES, Bound, peaks_of

if TYPE_CHECKING:
    from gpuflow.demands.of_pipeline import demand_of

__all__ = [
    "ALIASES",
    "Bound",
    "ClaimDemand",
    "Deadline",
    "Demand",
    "LaterAttempts",
    "Overlap",
    "PodSet",
    "StepDemand",
    "UnseenPart",
    "demand_of",
    "graph_of",
    "peaks_of",
]


def __getattr__(name: str) -> Any:
    # The checker takes demands of any origin: it is not to load the pipeline's models with them.
    if name == "demand_of":
        from gpuflow.demands.of_pipeline import demand_of

        return demand_of
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
