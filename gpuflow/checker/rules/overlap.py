"""Runs of one pipeline that overlap: how many are counted, and what more of them would meet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gpuflow.checker.outcome import Outcome
from gpuflow.checker.report import Verdict, worst
from gpuflow.demands import Demand
from gpuflow.engines import facts_of
from gpuflow.errors import Finding, Severity

WITHOUT_BOUND: Final = 2**20
"""So many runs stand for any number of them."""
WAY_OUT: Final = "{one} allows one only; --runs N says how many there really are at once"


def runs_counted(demand: Demand, asked: int | None) -> int:
    """How many runs a check counts: as many as were asked for, else as many as the engine has active at once.

    Where nothing bounds them it is one, and `overlap_outcome` says what more would meet.
    """
    if asked is not None:
        return asked
    return (demand.overlap.at_most if demand.overlap is not None else None) or 1


def overlap_outcome(first: Outcome, demand: Demand, asked: int | None, check: Callable[[int], Outcome]) -> Outcome:
    """What the overlap of runs adds to the outcome of those that were counted."""
    overlap = demand.overlap
    if overlap is None or (asked is not None and asked > 1):
        return Outcome()
    if asked is not None:
        text = f"runs may overlap ({overlap.because}), and this check counts one run"
        return _said(demand, "always", text, "--runs N counts N runs at once; {one} allows one only")
    title = facts_of(demand.engine).title
    if overlap.at_most is not None:
        text = f"runs may overlap ({overlap.because}): {overlap.at_most} at once are counted, the most that {title} has"
        return _said(demand, "always", f"{text} active", WAY_OUT)
    many = check(WITHOUT_BOUND)
    if worst((first.verdict, many.verdict)) == first.verdict:
        text = f"runs may overlap ({overlap.because}), and any number of them gets the same answer"
        return _said(demand, "always", text, "--runs N shows the peak of N runs at once")
    text = f"runs may overlap ({overlap.because}), in any number: the lines count one run, and others may have to wait"
    return _said(demand, "unknown" if many.verdict == "unknown" else "may-queue", text, WAY_OUT)


def _said(demand: Demand, verdict: Verdict, text: str, hint: str) -> Outcome:
    assert demand.overlap is not None
    severity: Severity = "note" if verdict == "always" else "warning"
    words = {"Pipeline": "concurrency: forbid", "DAG": "max_active_runs=1"}
    one = words.get(demand.kind, "concurrencyPolicy: Forbid")
    way_out = hint.format(one=one)
    return Outcome(verdict, findings=(Finding("GF553", text, demand.overlap.where, way_out, severity=severity),))
