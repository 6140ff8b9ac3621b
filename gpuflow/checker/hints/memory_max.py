"""How much memory a retry may ask for where a LimitRange refuses what it asks for now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from gpuflow.checker.hints.trials import Trials
from gpuflow.checker.outcome import Outcome
from gpuflow.cluster import Manifest
from gpuflow.demands import Demand
from gpuflow.demands.model import LaterAttempts
from gpuflow.quantity import Quantity

MOST: Final = 2
"""So many bounds are tried, the largest first."""


def memory_max(
    first: Outcome, demand: Demand, later: LaterAttempts, limit_ranges: Sequence[Manifest], trials: Trials
) -> str | None:
    """The largest bound of a LimitRange that, as `more_memory.max`, lets the last attempt in as the first one is."""
    if demand.pipeline is None:
        return None
    for most in sorted(set(_bounds(limit_ranges)), reverse=True)[:MOST]:
        changed = demand.pipeline.with_memory_max(demand, later.steps, most)
        # A bound that is no more than what the step has at first would be a policy that does nothing.
        if changed is None or not any(set(later.steps) <= set(each.steps) for each in changed.later):
            continue
        if trials.verdict(changed) == first.verdict:
            return f"say more_memory.max: {most}: then a later attempt finds what the first one finds"
    return None


def _bounds(limit_ranges: Sequence[Manifest]) -> Iterator[Quantity]:
    for item in limit_ranges:
        for bounds in item.body["spec"].get("limits") or ():
            most = (bounds.get("max") or {}).get("memory")
            if bounds.get("type") in ("Container", "Pod") and most is not None:
                yield Quantity(most)
