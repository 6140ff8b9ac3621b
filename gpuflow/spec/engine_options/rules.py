"""What an engine's options must not say beside the rest of the pipeline, and Airflow's setups and teardowns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial

from gpuflow.core.errors import Finding, Problem, did_you_mean, rule
from gpuflow.engines import AIRFLOW, KUBEFLOW
from gpuflow.graph.order import reachable
from gpuflow.spec.engine_options.airflow import ROLES, AirflowTask, Teardown
from gpuflow.spec.references import upstream
from gpuflow.spec.rules.step_rules import finding_at
from gpuflow.spec.step import Pipeline, Step


def teardowns(pipeline: Pipeline) -> dict[str, Teardown]:
    """The steps that clean up, and what for."""
    words = {name: _airflow_options(step) for name, step in pipeline.steps.items()}
    return {name: each.teardown for name, each in words.items() if each is not None and each.teardown is not None}


def setups(pipeline: Pipeline) -> list[str]:
    """The steps that make what others clean up, by their own word or by a teardown's."""
    words = {name: _airflow_options(step) for name, step in pipeline.steps.items()}
    named = {name for each in teardowns(pipeline).values() for name in each.setups}
    return [name for name, each in words.items() if name in named or (each is not None and each.setup)]


def role_faults(pipeline: Pipeline) -> Iterator[Finding]:
    """Where the pipeline contradicts what its steps are said to be."""
    for name, step in pipeline.exit.items():
        words = _airflow_options(step)
        for word in ROLES if words is not None else ():
            if getattr(words, word) is not None:
                hint = f"remove {word}: exit steps run at the end of every run, on every engine"
                text = f'exit step "{name}" is no {word}'
                yield Finding("GF365", text, pipeline.where("exit", name, "engines", AIRFLOW, word), hint)
    ends, starts = teardowns(pipeline), setups(pipeline)
    if not ends and not starts:
        return
    needs = upstream(pipeline)
    for name, teardown in ends.items():
        yield from _teardown(pipeline, name, teardown, needs)
        for reader in (each for each, before in needs.items() if name in before and each not in ends):
            text = f'step "{reader}" needs "{name}", a teardown, whose failure must not stop others'
            yield Finding("GF365", text, pipeline.where_step(reader), "let it need the steps before the teardown")
    for name in starts:
        if pipeline.steps.get(name) is not None and pipeline.steps[name].for_each:
            text = f'step "{name}" is a setup, and has for_each'
            yield Finding("GF365", text, pipeline.where_step(name, "for_each"), "make it one step for all items")
        for reader in (each for each, before in needs.items() if name in before and each not in ends):
            if pipeline.steps[reader].if_skipped == "run":
                text = f'step "{reader}" has if_skipped: run, and follows the setup "{name}": '
                text += "Airflow runs what follows a setup only after its success"
                hint = "remove if_skipped, or let it need a step after the setup"
                yield Finding("GF365", text, pipeline.where_step(reader, "if_skipped"), hint)


def _teardown(
    pipeline: Pipeline, name: str, teardown: Teardown, needs: Mapping[str, Sequence[str]]
) -> Iterator[Finding]:
    where = pipeline.where_step(name, "engines", AIRFLOW, "teardown")
    step, before = pipeline.steps[name], reachable(needs, [name])
    for setup in teardown.setups:
        if setup not in pipeline.steps:
            text = f'teardown "{name}" belongs to "{setup}", which is no step'
            yield Finding("GF365", text, where, did_you_mean(setup, set(pipeline.steps)))
        elif setup not in before:
            text = f'teardown "{name}" does not come after its setup "{setup}"'
            yield Finding("GF365", text, where, f'let "{name}" need the steps that use what "{setup}" makes')
    own = _airflow_options(step)
    if (own is not None and own.setup) or any(name in each.setups for each in teardowns(pipeline).values()):
        yield Finding("GF365", f'step "{name}" is a setup and a teardown', where, "keep one of them")
    for field in ("for_each", "if_skipped"):
        if getattr(step, field):
            hint = "a teardown runs whenever its setups have succeeded" if field == "if_skipped" else "make it one step"
            text = f'step "{name}" is a teardown, and has {field}'
            yield Finding("GF365", text, pipeline.where_step(name, field), hint)


def _airflow_options(step: Step) -> AirflowTask | None:
    return step.engines.airflow if step.engines is not None else None


def option_faults(pipeline: Pipeline) -> Iterator[Finding]:
    """Where Airflow's words for the DAG contradict when and how often the pipeline starts."""
    words = pipeline.engines.airflow if pipeline.engines is not None else None
    if words is None:
        return
    at, place = partial(finding_at, pipeline), ("engines", AIRFLOW)
    schedule, runs = pipeline.schedule, words.max_active_runs
    if schedule is not None and schedule.concurrency != "allow" and runs is not None and runs > 1:
        text = f"max_active_runs: {runs} contradicts the schedule's concurrency: {schedule.concurrency}"
        hint = "write schedule: {cron: …, concurrency: allow}, or leave max_active_runs out"
        yield at("GF353", text, (*place, "max_active_runs"), hint=hint)
    other = "schedule" if schedule is not None else "on_data" if pipeline.on_data else None
    if words.timetable is not None and other is not None:
        text = f"the pipeline has {other} and a timetable of Airflow, and both say when a run starts"
        yield at("GF354", text, (*place, "timetable"), hint=f"keep one: remove timetable or {other}", key=True)


@rule("GF358")
def ineffective_options(pipeline: Pipeline) -> Iterator[Problem | Finding]:
    """A warning for every word that the rest of the pipeline leaves nothing to do, the sub-pipelines included."""
    for name, step in (*pipeline.steps.items(), *pipeline.exit.items()):
        if step.pipeline is not None:
            yield from ineffective_options(step.pipeline)
            continue
        words = step.engines.kubeflow if step.engines is not None else None
        if words is not None and words.cache_key is not None and not pipeline.effective(name).cache:
            text = f'step "{name}": cache_key of Kubeflow says nothing, because the step has no cache: true'
            where = pipeline.where_step(name, "engines", KUBEFLOW, "cache_key")
            yield Problem(text, where, "add cache: true, or remove cache_key")
    dag = pipeline.engines.airflow if pipeline.engines is not None else None
    start = pipeline.schedule.begins if pipeline.schedule is not None else None
    if dag is not None and dag.end_date is not None and start is not None:
        end = datetime.fromisoformat(dag.end_date)
        if end.tzinfo is None:
            end = end.replace(tzinfo=start.tzinfo)
        if end < start:
            text = f"end_date {dag.end_date} is before the schedule's start, so Airflow never starts a run"
            where = pipeline.where("engines", AIRFLOW, "end_date")
            yield Problem(text, where, "set end_date after schedule.start")
