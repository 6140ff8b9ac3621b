"""Parts of constructs that Airflow cannot carry. None can be left out: the run would do something else.

What a gang cannot have on Airflow is here too, with the notes for readers of a gang that stock operators run.

Schedules near a change of the clock: a CronTriggerTimetable runs a time that the clock skips later, and a time that it
shows twice once. With a schedule for every hour it counts real hours instead, over days without any run too, and then
is an hour off. By `gpuflow.cron` a skipped time does not come and a repeated one comes twice. For other schedules both
agree.

The notes say what a reader of a DAG file should know about it, although nothing is lost; among it, in which images a
DAG without gpuflow still needs the supervisor.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final

from gpuflow.core.cron import parse
from gpuflow.core.errors import Finding, Problem, Rule, Where, rule
from gpuflow.plan import PlannedStep, writes_xcom
from gpuflow.pod.gang_kinds import SPELLINGS, Refusal, refusals_of
from gpuflow.runtime import bundle
from gpuflow.spec.engine_options.rules import setups, teardowns
from gpuflow.spec.params import text_of
from gpuflow.spec.schedule import has_rules, missing_rules_problem, zone_of
from gpuflow.spec.step import Step
from gpuflow.spec.text import RUN_DATES, OutputRef, RunRef
from gpuflow.targets.airflow.alerts import alert_notes, alert_refusals
from gpuflow.targets.airflow.engine_options import asset_refusals, dag_options, refused_options, stock_refusals
from gpuflow.targets.airflow.facts import CAPABILITIES, STANDALONE_CANNOT, AirflowOptions
from gpuflow.targets.airflow.flow import tasks_of, tasks_to_watch
from gpuflow.targets.airflow.operators import slots
from gpuflow.targets.airflow.references import Scope
from gpuflow.targets.airflow.standalone import older_refusals
from gpuflow.targets.capabilities import LATER_ATTEMPTS, Loss, RefusalRule, construct_losses, named_steps, refusal
from gpuflow.targets.constructs import Use, uses
from gpuflow.targets.target import Request

BY_LAUNCHER = frozenset(
    ("retry.final_exit_codes", "retry.interruptions", "retry.retryable_exit_codes", *LATER_ATTEMPTS)
)
"""What the pod that looks after a gang keeps, where the stock operator could not."""


def gangs_of(request: Request) -> list[PlannedStep]:
    return [each for each in request.plan.containers if each.step.gang is not None]


@refusal("GF378")
def gang_findings(request: Request) -> Iterator[Finding]:
    """One finding for each thing that the operator of a gang, or its launcher, could not keep."""
    standalone = request.options_as(AirflowOptions).standalone
    for each in gangs_of(request):
        asked = [*gang_refusals(each.step, request.site.gangs.made_as), *_parallel_gangs(each)]
        asked += _of_launcher(each.step) if standalone else ()
        asked += _in_pools(each.step, request) if request.options_as(AirflowOptions).pools else ()
        for field, problem, hint in asked:
            yield Finding("GF378", f'step "{each.name}": {problem}', each.where(*field), hint)


def gang_refusals(step: Step, kind: str) -> Iterator[Refusal]:
    """What no gang on Airflow can have. `kind`: as the site says it."""
    if step.gang is None:
        return
    yield from refusals_of(step, kind)
    if writes_xcom(step):
        hint = "write each output to $GPUFLOW_OUTPUTS/<name> on rank 0, and remove outputs_from"
        yield ("outputs_from",), "Airflow reads no /airflow/xcom/return.json of a rank", hint


def _of_launcher(step: Step) -> Iterator[Refusal]:
    """What only the operator can fill in for each attempt."""
    for place, ref in step.references():
        if isinstance(ref, RunRef) and ref.field == "attempt":
            hint = "let the program read $GPUFLOW_ATTEMPT, or compile without --standalone"
            problem = "the attempts of a gang are not Airflow's tries: {run: attempt} is not known"
            yield tuple(map(str, place[:1])), problem, hint


def _parallel_gangs(each: PlannedStep) -> Iterator[Refusal]:
    """`parallel` counts pods, and the ranks of a gang are none that Airflow's operators could count."""
    around = [each.pipeline.parallel]
    above = each.parent
    while above is not None:
        around += [above.step.parallel, above.pipeline.parallel]
        above = above.parent
    if any(limit is not None for limit in around):
        hint = "remove parallel, and let steps wait for each other with needs, or give the gang a Kueue queue"
        yield ("gang",), "the pipeline's parallel counts pods, and Airflow cannot count the ranks of a gang", hint


def _in_pools(step: Step, request: Request) -> Iterator[Refusal]:
    taken = sorted(slots(step, request.site))
    if len(taken) > 1:
        hint = "give the leader the same kind of GPU as the workers, or none, or compile without pools"
        pools = " and ".join(taken)
        yield ("gang", "leader"), f"a task of Airflow is in one pool, and the gang takes from {pools}", hint


@rule("GF379", "GF388", severity="note")
def gang_notes(request: Request) -> Iterator[Finding]:
    """Who looks after the gangs, what that needs, and what is weaker where it is a pod of the stock operator."""
    gangs = gangs_of(request)
    if not gangs:
        return
    names, where = named_steps(tuple(each.name for each in gangs)), gangs[0].where("gang")
    objects = SPELLINGS[request.site.gangs.made_as].plural
    if not request.options_as(AirflowOptions).standalone:
        text = f"{names}: the accounts of Airflow's workers and triggerer must be allowed to create {objects}"
        hint = "apply what gpuflow site gang --engine airflow prints, once in each namespace in which gangs run"
        yield Finding("GF388", text, where, hint, "note")
        return
    if request.site.gangs.service_account is None:
        text = f"{names}: the pod that looks after the gang must be allowed to create {objects}, and the site names no "
        hint = "set gangs.service_account in the site, and apply what gpuflow site gang prints"
        yield Finding("GF379", text + "account for it", where, hint, "note")
    text = (
        f"{names}: a pod of the stock operator looks after the gang. A task that is cleared after it failed finds the "
        "same counts, and fails again; a pod that is lost in the last of its 4 tries leaves the gang working until it "
        "ends by itself"
    )
    hint = f"compile without --standalone, or delete the gang's {objects} (label gpuflow.dev/step) by hand"
    yield Finding("GF388", text, where, hint, "note")


YEARS = range(2020, 2041)
"""Zones change their rules; a fixed span keeps the answer the same from one day to the next."""
_MINUTE, _DAY = timedelta(minutes=1), timedelta(days=1)


@lru_cache(maxsize=64)
def clock_change(expression: str, zone: str) -> datetime | None:
    """When, on the wall, the clock changes in a way that Airflow and the schedule take differently."""
    cron = parse(expression)
    has_every_hour = len(cron.hours) == 24
    has_every_day = len(cron.months) == 12 and (len(cron.days) == 31 or len(cron.weekdays) == 7)
    for first, past in _clock_changes(zone):
        if has_every_hour and not has_every_day:
            return first
        if has_every_hour and (past - first) % timedelta(hours=1) == timedelta(0):
            continue
        for minute in range((past - first) // _MINUTE):
            clock = first + minute * _MINUTE
            if clock.hour in cron.hours and clock.minute in cron.minutes and cron.is_on(clock.date()):
                return clock
    return None


def _clock_changes(zone: str) -> Iterator[tuple[datetime, datetime]]:
    """The spans of the wall clock that are skipped or repeated, without a time zone."""
    rules = zone_of(zone)

    def offset(moment: datetime) -> timedelta:
        return moment.astimezone(rules).utcoffset() or timedelta(0)

    day, end = datetime(YEARS.start, 1, 1, tzinfo=UTC), datetime(YEARS.stop, 1, 1, tzinfo=UTC)
    while day < end:
        if offset(day) != offset(day + _DAY):
            early, late = day, day + _DAY
            while late - early > _MINUTE:
                middle = early + ((late - early) // _MINUTE // 2) * _MINUTE
                early, late = (middle, late) if offset(middle) == offset(day) else (early, middle)
            walls = sorted(late.replace(tzinfo=None) + offset(each) for each in (early, late))
            yield walls[0], walls[1]
        day += _DAY


@refusal("GF194", "GF301")
def fan_outs(request: Request) -> Iterator[Finding]:
    """References that a copy cannot have, then equal items."""
    if any(planned.step.for_each for planned in request.plan.steps):
        scope = Scope(request.plan, refused=[])
        twins = list(_scope_findings(scope))
        yield from scope.refused or ()
        yield from twins


@refusal("GF365")
def setups_unwatched(request: Request) -> Iterator[Problem]:
    """What runs at the end would have to follow the setup itself, and Airflow lets it follow on success alone."""
    pipeline = request.pipeline
    starts = setups(pipeline)
    for name in tasks_to_watch(tasks_of(Scope(request.plan)), teardowns(pipeline)) if starts else ():
        if name in starts:
            text = f'no step that is sure to run follows the setup "{name}"'
            hint = "let a step without a condition need it, and the teardown need that step"
            yield Problem(text, pipeline.where_step(name), hint)


@refusal("GF301")
def values_nobody_gives(request: Request) -> Iterator[Problem]:
    """Required parameters without a default in a pipeline with scheduled or data-triggered runs."""
    pipeline = request.pipeline
    if pipeline.schedule is None and not pipeline.on_data and dag_options(pipeline).timetable is None:
        return
    for name, param in pipeline.params.items():
        if param.required:
            text = f'airflow starts "{pipeline.name}" automatically, and the parameter "{name}" has no default'
            hint = "give it a default, or start the pipeline by hand only"
            yield Problem(text, pipeline.where("params", name, key=True), hint)


@refusal("GF301", optional=True)
def catch_up(request: Request) -> Iterator[Loss]:
    """Missed times are counted from a start."""
    schedule = request.pipeline.schedule
    if schedule is not None and schedule.catch_up and schedule.start is None:
        yield Loss(
            "airflow does not support schedule.catch_up without schedule.start: it would run for years of missed times",
            request.pipeline.where("schedule", "catch_up"),
            "set schedule.start, or start missed runs with "
            "`airflow backfill create --dag-id … --from-date … --to-date …`",
            "schedule.catch_up",
        )


@refusal("GF301", "GF336", "GF345")
def intervals(request: Request) -> Iterator[Finding]:
    """The start of an interval is the scheduled time before: there must be one, and a run at that time."""
    pipeline = request.pipeline
    use = next((use for use in uses(pipeline) if use.construct == "run.interval_start"), None)
    if use is None:
        return
    schedule, where = pipeline.schedule, pipeline.where(*use.path)
    if schedule is None:
        message = f'airflow does not support {{run: interval_start}} without a schedule (step "{use.step}")'
        yield Finding("GF301", message, where, "add a schedule, or use {run: date}")
    elif not has_rules(schedule.timezone):
        code, text, hint = missing_rules_problem(
            schedule.timezone, f'{{run: interval_start}} (step "{use.step}") cannot be judged'
        )
        yield Finding(code, text, where, hint)
    elif (clock := clock_change(schedule.cron, schedule.timezone)) is not None:
        yield Finding(
            "GF336",
            f'step "{use.step}" uses {{run: interval_start}}, and the clock of {schedule.timezone} changes at a time '
            f'of "{schedule.cron}", for example {clock:%Y-%m-%d %H:%M}: airflow would run at other times there',
            where,
            "choose a time at which the clock does not change, or timezone: UTC",
        )


def _scope_findings(scope: Scope) -> Iterator[Finding]:
    """Equal items; what references cannot be is kept by the scope."""
    for name, planned in scope.steps.items():
        step = planned.step
        for _, ref in step.references():
            if isinstance(ref, OutputRef):
                scope.node(ref, name)
        by_item = step.pipeline is not None or planned.supervision.keeps_state
        if by_item and step.for_each and scope.has_own_list(name):
            yield from equal_items(name, step.for_each, planned.where("for_each"))
        if step.pipeline is not None:
            yield from _scope_findings(scope.scope_of(name))


def equal_items(name: str, sources: Mapping[str, Any], where: Where | None = None) -> Iterator[Finding]:
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


@refusal("GF301")
def standalone_losses(request: Request) -> Iterator[Loss | Finding]:
    """What the stock operators lose besides."""
    if not request.options_as(AirflowOptions).standalone:
        return
    table = {**CAPABILITIES, **STANDALONE_CANNOT}

    def counts(use: Use) -> bool:
        return use.construct not in BY_LAUNCHER or use.step not in {each.name for each in gangs_of(request)}

    for loss in construct_losses(request.pipeline, table, "airflow --standalone", optional=False, counts=counts):
        if loss.construct in STANDALONE_CANNOT:
            yield loss
    yield from stock_refusals(request.plan)


REFUSALS: Final[tuple[RefusalRule[Request], ...]] = (
    older_refusals, values_nobody_gives, catch_up, intervals, alert_refusals, refused_options, asset_refusals,
    setups_unwatched, gang_findings, fan_outs, standalone_losses,
)  # fmt: skip
"""In the order in which they are said."""


def image_lines(request: Request) -> list[str]:
    """For the head of the file: which steps run under gpuflow-run, why, and which need nothing of gpuflow."""
    if not request.options_as(AirflowOptions).standalone:
        return []
    kept, free = _supervised_and_other(request)
    lines = [f"{_image_need(request, kept)}."] if kept else []
    return lines + ([f"Nothing of gpuflow in the image: {', '.join(each.name for each in free)}."] if free else [])


@rule("GF366", severity="note")
def image_notes(request: Request) -> Iterator[Finding]:
    """The same, on the console."""
    if not request.options_as(AirflowOptions).standalone:
        return
    kept, free = _supervised_and_other(request)
    if not kept:
        text = "the DAG imports nothing of gpuflow, and no image needs gpuflow-run"
        yield Finding("GF366", text, request.pipeline.where("steps"), severity="note")
        return
    text = _image_need(request, kept)
    text += f"; {named_steps(tuple(each.name for each in free))} need nothing" if free else ""
    hint = "outputs alone need no gpuflow-run where the program writes /airflow/xcom/return.json: outputs_from: xcom"
    yield Finding("GF366", text, request.plan.where(kept[0].name), hint, "note")


def _supervised_and_other(request: Request) -> tuple[list[PlannedStep], list[PlannedStep]]:
    steps = list(request.plan.containers)
    kept = [each for each in steps if each.supervision.is_supervised]
    return kept, [each for each in steps if each not in kept]


def _image_need(request: Request, kept: list[PlannedStep]) -> str:
    """Where gpuflow-run comes from, and the steps that run under it, each with the reason."""
    runtime = request.site.runtime
    steps = ", ".join(f"{each.name} (for its {_reason(each)})" for each in kept)
    if runtime.delivery == "image":
        return f"gpuflow-run must be in the image: {steps}"
    return f"gpuflow-run is mounted from ConfigMap {bundle.config_map_name(runtime.config_map)}: {steps}"


def _reason(each: PlannedStep) -> str:
    step = each.step
    reasons = {
        "gang": step.gang is not None,
        "checkpoint": step.checkpoint is not None,
        "outputs": bool(step.outputs),
        "retry budget": each.supervision.counts_budgets,
    }
    return " and ".join(name for name, holds in reasons.items() if holds)


KNOWN_PACKAGES = frozenset(
    {
        "airflow", "gpuflow", "hera", "jinja2", "kfp", "kubernetes", "kubernetes_asyncio", "numpy", "pendulum",
        "pydantic", "sqlalchemy", "torch", "yaml",
    }
)  # fmt: skip
"""Packages that DAG files import, and some that these need. A file of their name that is found first is imported."""

DATES = tuple(f"run.{name}" for name in RUN_DATES)


def file_of(pipeline: str) -> str:
    """The DAG file of a pipeline, by the pipeline's name."""
    return f"{pipeline.replace('-', '_')}.py"


@rule("GF305", "GF324", severity="note")
def uncounted_interruptions(request: Request) -> Iterator[Finding]:
    """Whoever counts failures alone may think that a drained node is one. To the stock operator it is."""
    plan = request.plan
    standalone = request.options_as(AirflowOptions).standalone
    # The launcher of a gang counts by itself, also under the stock operator.
    steps = [each for each in plan.containers if not standalone or each.step.gang is None]
    policies = {each.name: each.step.retry for each in steps if each.step.retry is not None}
    names = tuple(name for name, retry in policies.items() if retry.failures and not retry.after_interruptions)
    if names and standalone:
        text = f"{named_steps(names)}: the stock operator retries whatever ended the pod, so a drained node or a "
        text += "preempted pod uses up a retry meant for failures"
        hint = "write retry: N, which means that, or compile without --standalone"
        yield Finding("GF305", text, plan.where(names[0]), hint, "note")
    elif names:
        text = f"{named_steps(names)}: only failures are retried; a drained node or a preempted pod ends the step"
        hint = "write retry: N for N more attempts whatever ended the pod, or add interruptions: M"
        yield Finding("GF324", text, plan.where(names[0]), hint, "note")


@rule("GF348", severity="note")
def links_left_out(request: Request) -> Iterator[Problem]:
    """What the site says about pages of tasks, and stock operators cannot show."""
    links = request.site.engine("airflow").links
    if links and request.options_as(AirflowOptions).standalone:
        text = f"tasks of a --standalone file have none of the site's links: {', '.join(links)}"
        hint = "compile without --standalone, or register them in Airflow as a plugin"
        yield Problem(text, Where(request.site.source.file), hint)


@rule("GF334", severity="note")
def unscheduled_dates(request: Request) -> Iterator[Problem]:
    """Dates of runs that no schedule makes: whoever reads them should know which moment they are."""
    pipeline = request.pipeline
    timed = pipeline.schedule is not None and not pipeline.schedule.suspended
    use = next((use for use in uses(pipeline) if use.construct in DATES), None)
    if use is None or (timed and not pipeline.on_data):
        return
    who = "new data" if pipeline.on_data else "somebody"
    yield Problem(
        f'step "{use.step}" uses {{run: {use.construct.removeprefix("run.")}}}: a run that {who} starts has no '
        "scheduled time, and says the logical date it was given, or else when it was made",
        pipeline.where(*use.path),
    )


@rule("GF320")
def file_name(request: Request) -> Iterator[Finding]:
    """`python dags/x.py` looks for modules in dags/ first, so a DAG file must not be called as one of them."""
    name = request.pipeline.name
    module = file_of(name).removesuffix(".py")
    if module in KNOWN_PACKAGES or module in sys.stdlib_module_names:
        text = f'pipeline "{name}" becomes {file_of(name)}, which has the name of the Python module {module}'
        hint = f'rename the pipeline, for example "{name}-pipeline", or name another file: -o dags/{module}_dag.py'
        yield Finding("GF320", text, request.pipeline.where("name"), hint, "warning")


NOTES: Final[tuple[Rule[Request], ...]] = (
    file_name, uncounted_interruptions, unscheduled_dates, alert_notes, image_notes, gang_notes, links_left_out,
)  # fmt: skip
