"""Several pipelines at the same time: one report about all of them together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpuflow.checker.report import Report, worst
from gpuflow.checker.rules.active_deadline import with_deadline
from gpuflow.checker.rules.overlap import runs_counted
from gpuflow.checker.run import check
from gpuflow.checker.snapshot.prepared import PreparedCluster
from gpuflow.demands import Demand
from gpuflow.demands.together import together
from gpuflow.errors import Finding, Where, listed


def check_together(
    demands: Sequence[Demand], alone: Sequence[Report], cluster: PreparedCluster, namespace: str, runs: int | None
) -> Report:
    """What the cluster says to these pipelines side by side, each with as many runs as it was checked with alone.

    No pipeline gets a better answer together with others than alone.
    """
    counted = [(with_deadline(demand), runs_counted(demand, runs)) for demand in demands]
    report = check(together(counted), cluster, namespace, runs=1)
    return replace(report, verdict=worst((report.verdict, *(each.verdict for each in alone))))


def checked_alone(report: Report, others: Sequence[Report]) -> Report:
    """The report with a note that the other pipelines of the same command were not counted."""
    names = listed([each.pipeline for each in others], "pipeline")
    note = Finding(
        "GF530",
        f"checked alone: {names} of the same command is not counted"
        if len(others) == 1
        else f"checked alone: {names} of the same command are not counted",
        Where(report.file),
        "--together checks them side by side",
        severity="note",
    )
    return replace(report, findings=(*report.findings, note))
