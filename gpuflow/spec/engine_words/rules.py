"""What an engine's own words may not say beside the rest of the pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from gpuflow.errors import Finding
from gpuflow.spec.step_rules import finding_at

if TYPE_CHECKING:
    from gpuflow.spec.pipeline import Pipeline


def word_faults(pipeline: Pipeline) -> Iterator[Finding]:
    """Where Airflow's words for the DAG contradict when and how often the pipeline starts."""
    words = pipeline.engines.airflow if pipeline.engines is not None else None
    if words is None:
        return
    at, place = partial(finding_at, pipeline), ("engines", "airflow")
    schedule, runs = pipeline.schedule, words.max_active_runs
    if schedule is not None and schedule.concurrency != "allow" and runs is not None and runs > 1:
        text = f"max_active_runs: {runs} contradicts the schedule's concurrency: {schedule.concurrency}"
        hint = "write schedule: {cron: …, concurrency: allow}, or leave max_active_runs out"
        yield at("GF353", text, (*place, "max_active_runs"), hint=hint)
    other = "schedule" if schedule is not None else "on_data" if pipeline.on_data else None
    if words.timetable is not None and other is not None:
        text = f"the pipeline has {other} and a timetable of Airflow, and both say when a run starts"
        yield at("GF354", text, (*place, "timetable"), hint=f"keep one: remove timetable or {other}", key=True)
