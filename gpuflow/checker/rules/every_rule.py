"""All findings with a way out that no verdict needs: what will hurt, and what can never work as set up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuflow.checker.quota.namespace import Judged, Surroundings
from gpuflow.checker.report import Scope
from gpuflow.checker.rules.best_effort import best_effort
from gpuflow.checker.rules.deadline_and_schedule import counted_waiting, overlapping
from gpuflow.checker.rules.deadlocks import deadlocks, gated, oversized
from gpuflow.checker.rules.engine_driver import refused_driver
from gpuflow.demands import Demand
from gpuflow.errors import Finding


def advice(
    demand: Demand, around: Surroundings, judged: Sequence[Judged], lines: Sequence[Scope], runs: int
) -> Iterator[Finding]:
    """The findings. Those that are errors mean *never*."""
    yield from refused_driver(demand, around)
    yield from oversized(demand, around, judged)
    yield from deadlocks(demand, around, judged, runs)
    yield from gated(demand, judged, lines)
    yield from best_effort(demand, judged)
    yield from counted_waiting(demand, lines)
    yield from overlapping(demand, runs)
