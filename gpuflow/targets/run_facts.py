"""Where a pipeline asks for the dates of its run, and dates that no run of it has."""

from __future__ import annotations

from collections.abc import Iterator

from gpuflow.errors import Finding, Where
from gpuflow.plan import Plan, PlannedStep
from gpuflow.spec.text import RunRef


def dates_of(plan: Plan, *fields: str) -> Iterator[tuple[PlannedStep, RunRef, Where]]:
    """The references to dates of the run, or to these of them, with their places."""
    for each in plan.steps:
        for path, ref in each.step.references():
            if isinstance(ref, RunRef) and ref.is_date and (not fields or ref.field in fields):
                yield each, ref, each.where(*path)


def no_interval(plan: Plan, target: str) -> Iterator[Finding]:
    """An interval begins at a scheduled time, so a pipeline without a schedule has none."""
    if plan.pipeline.schedule is not None:
        return
    for each, ref, where in dates_of(plan, "interval_start"):
        yield Finding(
            "GF301",
            f'{target} does not support {{run: {ref.field}}} (step "{each.name}"): without a schedule a run has no '
            "interval",
            where,
            "use {run: logical_date}, or give the pipeline a schedule",
        )
