"""What a reader of a DAG file should know about it, although nothing is lost.

Among it: in which images a DAG without gpuflow still needs the supervisor.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

from gpuflow.core.errors import Finding, Problem, Rule, Where, rule
from gpuflow.plan import PlannedStep
from gpuflow.runtime import bundle
from gpuflow.spec.text import RUN_DATES
from gpuflow.targets.airflow.alerts import alert_notes
from gpuflow.targets.airflow.facts import AirflowOptions
from gpuflow.targets.airflow.refusals import gang_notes
from gpuflow.targets.capabilities import named_steps
from gpuflow.targets.constructs import uses
from gpuflow.targets.target import Request


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
        yield Finding(
            "GF305",
            f"{named_steps(names)}: the stock operator retries whatever ended the pod, so a drained node or a "
            "preempted pod uses up a retry meant for failures",
            plan.where(names[0]),
            "write retry: N, which means that, or compile without --standalone",
            "note",
        )
    elif names:
        yield Finding(
            "GF324",
            f"{named_steps(names)}: only failures are retried; a drained node or a preempted pod ends the step",
            plan.where(names[0]),
            "write retry: N for N more attempts whatever ended the pod, or add interruptions: M",
            "note",
        )


@rule("GF348", severity="note")
def links_left_out(request: Request) -> Iterator[Problem]:
    """What the site says about pages of tasks, and stock operators cannot show."""
    links = request.site.engine("airflow").links
    if links and request.options_as(AirflowOptions).standalone:
        yield Problem(
            f"tasks of a --standalone file have none of the site's links: {', '.join(links)}",
            Where(request.site.source.file),
            "compile without --standalone, or register them in Airflow as a plugin",
        )


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
