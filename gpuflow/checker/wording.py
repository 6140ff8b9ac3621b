"""Steps by the names that a demand gives them: `train`, or `tune.train` inside a sub-pipeline."""

from __future__ import annotations

from collections.abc import Sequence

from gpuflow.demands import Demand
from gpuflow.errors import Where, listed, shortened

__all__ = ["asking", "listed", "shortened", "where_of"]


def where_of(demand: Demand, name: str) -> Where:
    """Where a step, or the sub-pipeline it belongs to, is written."""
    return demand.where(name)


def asking(witness: Sequence[str], named: Sequence[str] = ()) -> str:
    """The subject and verb of what steps ask for at the worst moment; `named` are in the same sentence already."""
    if len(witness) == 1:
        return f"{witness[0]} asks"
    return "together they ask" if set(witness) == set(named) else f"{shortened(witness)} together ask"
