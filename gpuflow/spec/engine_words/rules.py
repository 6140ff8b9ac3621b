"""What an engine's own words may not say beside the rest of the pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
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


def vain_words(pipeline: Pipeline) -> Iterator[Finding]:
    """A warning for every word that the rest of the pipeline leaves nothing to do, the sub-pipelines included."""
    for section in ("steps", "exit"):
        for name, step in getattr(pipeline, section).items():
            if step.pipeline is not None:
                yield from vain_words(step.pipeline)
                continue
            words = step.engines.kubeflow if step.engines is not None else None
            if words is not None and words.cache_key is not None and not pipeline.effective(name).cache:
                text = f'step "{name}": cache_key of Kubeflow says nothing, because the step has no cache: true'
                where = pipeline.where(section, name, "engines", "kubeflow", "cache_key")
                yield Finding("GF358", text, where, "add cache: true, or remove cache_key", "warning")
    dag = pipeline.engines.airflow if pipeline.engines is not None else None
    start = pipeline.schedule.begins if pipeline.schedule is not None else None
    if dag is not None and dag.end_date is not None and start is not None:
        end = datetime.fromisoformat(dag.end_date)
        if end.tzinfo is None:
            end = end.replace(tzinfo=start.tzinfo)
        if end < start:
            text = f"end_date {dag.end_date} is before the schedule's start, so Airflow never starts a run"
            where = pipeline.where("engines", "airflow", "end_date")
            yield Finding("GF358", text, where, "set end_date after schedule.start", "warning")
