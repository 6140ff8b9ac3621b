"""Parts of constructs that Airflow cannot carry. None can be left out: the run would do something else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from gpuflow.errors import Finding, Where
from gpuflow.pod.supervision import keeps_state
from gpuflow.site import Site
from gpuflow.spec.engine_words.setup_teardown import setups, teardowns
from gpuflow.spec.params import text_of
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.text import OutputRef
from gpuflow.spec.zones import has_rules, no_rules
from gpuflow.targets.airflow.alerts import alert_refusals
from gpuflow.targets.airflow.assets import refused_assets
from gpuflow.targets.airflow.capabilities import CAPABILITIES, STANDALONE_CANNOT
from gpuflow.targets.airflow.clock import clock_change
from gpuflow.targets.airflow.flow import tasks_of, watched
from gpuflow.targets.airflow.gangs import gang_findings, kept_by_launcher
from gpuflow.targets.airflow.older import older_refusals
from gpuflow.targets.airflow.options import AirflowOptions
from gpuflow.targets.airflow.own_words import dag_words, refused_words, stock_refusals
from gpuflow.targets.airflow.references import Scope
from gpuflow.targets.constructs import Use, uses
from gpuflow.targets.frame import Request
from gpuflow.targets.losses import Loss, construct_losses, left_out, refused


def partial_losses(request: Request) -> Iterator[Loss]:
    """All that is in the way of compiling this pipeline for Airflow."""
    yield from map(refused, older_refusals(request))
    yield from map(refused, _unattended(request.pipeline))
    yield from _catch_up(request.pipeline)
    yield from map(refused, _intervals(request.pipeline))
    yield from (left_out(finding) for finding in alert_refusals(request))
    yield from map(refused, refused_words(request.pipeline))
    yield from map(refused, refused_assets(request.pipeline, request.site))
    yield from map(refused, _setups_unwatched(request.pipeline))
    yield from map(refused, gang_findings(request))
    if any(planned.step.for_each for planned in request.plan.steps):
        scope = Scope(request.pipeline, refused=[])
        twins = [refused(finding) for finding in _inside(scope, request.site)]
        yield from map(refused, scope.refused or ())
        yield from twins
    if request.options_as(AirflowOptions).standalone:
        yield from _standalone(request)


def _setups_unwatched(pipeline: Pipeline) -> Iterator[Finding]:
    """What runs at the end would have to follow the setup itself, and Airflow lets it follow on success alone."""
    starts = setups(pipeline)
    for name in watched(tasks_of(Scope(pipeline)), teardowns(pipeline)) if starts else ():
        if name in starts:
            text = f'no step that is sure to run follows the setup "{name}"'
            hint = "let a step without a condition need it, and the teardown need that step"
            yield Finding("GF365", text, pipeline.where_step(name), hint)


def _unattended(pipeline: Pipeline) -> Iterator[Finding]:
    """Runs that start by the clock or by new data have nobody to give a value."""
    if pipeline.schedule is None and not pipeline.on_data and dag_words(pipeline).timetable is None:
        return
    for name, param in pipeline.params.items():
        if param.required:
            yield Finding(
                "GF301",
                f'airflow starts "{pipeline.name}" automatically, and the parameter "{name}" has no default',
                pipeline.where("params", name, key=True),
                "give it a default, or start the pipeline by hand only",
            )


def _catch_up(pipeline: Pipeline) -> Iterator[Loss]:
    """Missed times are counted from a start."""
    schedule = pipeline.schedule
    if schedule is not None and schedule.catch_up and schedule.start is None:
        yield Loss(
            "airflow does not support schedule.catch_up without schedule.start: it would run for years of missed times",
            pipeline.where("schedule", "catch_up"),
            "set schedule.start, or start missed runs with "
            "`airflow backfill create --dag-id … --from-date … --to-date …`",
            "schedule.catch_up",
        )


def _intervals(pipeline: Pipeline) -> Iterator[Finding]:
    """The start of an interval is the scheduled time before: there must be one, and a run at that time."""
    use = next((use for use in uses(pipeline) if use.construct == "run.interval_start"), None)
    if use is None:
        return
    schedule, where = pipeline.schedule, pipeline.where(*use.path)
    if schedule is None:
        yield Finding(
            "GF301",
            f'airflow does not support {{run: interval_start}} without a schedule (step "{use.step}")',
            where,
            "add a schedule, or use {run: date}",
        )
    elif not has_rules(schedule.timezone):
        code, text, hint = no_rules(schedule.timezone, f'{{run: interval_start}} (step "{use.step}") cannot be judged')
        yield Finding(code, text, where, hint)
    elif (clock := clock_change(schedule.cron, schedule.timezone)) is not None:
        yield Finding(
            "GF336",
            f'step "{use.step}" uses {{run: interval_start}}, and the clock of {schedule.timezone} changes at a time '
            f'of "{schedule.cron}", for example {clock:%Y-%m-%d %H:%M}: airflow would run at other times there',
            where,
            "choose a time at which the clock does not change, or timezone: UTC",
        )


def _inside(scope: Scope, site: Site) -> Iterator[Finding]:
    """Equal items; what references cannot be is kept by the scope."""
    pipeline = scope.pipeline
    for name in (*pipeline.steps, *pipeline.exit):
        step = pipeline.effective(name)
        for _, ref in step.references():
            if isinstance(ref, OutputRef):
                scope.node(ref, name)
        if step.for_each and scope.has_own_list(name) and (step.pipeline is not None or keeps_state(step, site)):
            yield from twins(name, step.for_each, pipeline.where("steps", name, "for_each"))
        if step.pipeline is not None:
            yield from _inside(scope.inner(name), site)


def twins(name: str, sources: Mapping[str, Any], where: Where | None = None) -> Iterator[Finding]:
    """Equal items: what belongs to an item (checkpoints, counts, a sub-pipeline's outputs) is found by it."""
    for key, source in sources.items():
        values = source if isinstance(source, tuple) else ()
        twice = next((text for text, count in Counter(map(text_of, values)).items() if count > 1), None)
        if twice is not None:
            yield Finding(
                "GF194",
                f'step "{name}" runs twice over {twice} in "{key}", and airflow keeps the copies apart by their items',
                where or Where(),
                "give every item a unique value, for example by adding a number",
            )


def _standalone(request: Request) -> Iterator[Loss]:
    """What the stock operators lose besides."""
    table = {**CAPABILITIES, **STANDALONE_CANNOT}

    def counts(use: Use) -> bool:
        return not kept_by_launcher(request, use)

    for loss in construct_losses(request.pipeline, table, "airflow --standalone", optional=False, counts=counts):
        if loss.construct in STANDALONE_CANNOT:
            yield loss
    yield from map(refused, stock_refusals(request.pipeline))
