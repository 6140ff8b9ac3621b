"""`--standalone --airflow 2.10`: the same DAG file in the words of an older Airflow.

gpuflow.airflow itself needs Airflow 3.2. A standalone file needs only stock operators, which older Airflows have too;
what differs is where names are imported from, how delays grow, what a DAG must say, and how its runs are named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from gpuflow.errors import Finding, Where
from gpuflow.spec.flow import every_step
from gpuflow.spec.pipeline import Pipeline
from gpuflow.targets.airflow.assets import has_assets
from gpuflow.targets.airflow.dag import Dag
from gpuflow.targets.airflow.homes import HOMES
from gpuflow.targets.airflow.options import AirflowOptions
from gpuflow.targets.airflow.python import Call, Method
from gpuflow.targets.airflow.rendered_once import rendered_once
from gpuflow.targets.airflow.run_facts import SCHEDULED_TIME
from gpuflow.targets.frame import Request

OLDER = ("2.10", "2.11", "3.0", "3.1")
"""What a file can be written for besides; each was tried (docs/reference/versions.md)."""
CURRENT = ("3.2", "3.3")
IN_2 = {
    "CronTriggerTimetable": "airflow.timetables.trigger",
    "DAG": "airflow.models.dag",
    "EmptyOperator": "airflow.operators.empty",
    "Param": "airflow.models.param",
    "TaskGroup": "airflow.utils.task_group",
    "literal": "airflow.utils.template",
}
IN_3_0 = {
    "AssetOrTimeSchedule": "airflow.timetables.assets",
    "CronTriggerTimetable": "airflow.timetables.trigger",
    "literal": "airflow.sdk.definitions.template",  # airflow.sdk of 3.0 and 3.1 names it, and cannot import it
}
SCHEDULED_IN_2 = 'dag_run.data_interval_end if dag_run.run_type in ("scheduled", "backfill") else dag_run.logical_date'
"""Airflow 2 has no `run_after`; of its own timetables the end of the interval is when a run is due."""
FIRST_DAY = Call("datetime", (2020, 1, 1))
"""Airflow 2 refuses tasks without a start date. Without catch-up it is of no consequence."""

RUN_NAME = '''def run_name(dag_id: str, run_id: str) -> str:
    """A short name of the run, safe in paths and in Kubernetes names. Airflow's own id holds colons and plus signs."""
    import hashlib

    whole = f"{deployment()}/{dag_id}/{run_id}"
    return f"r{hashlib.sha256(whole.encode()).hexdigest()[:15]}"'''
DEPLOYMENT_IN_2 = '''def deployment() -> str:
    """What tells this Airflow from others: `[gpuflow] deployment`, or an id that its first task keeps as a Variable."""
    import uuid

    from airflow.configuration import conf
    from airflow.models import Variable

    name = str(conf.get("gpuflow", "deployment", fallback="") or "").strip()
    return name or str(Variable.setdefault("gpuflow_deployment", uuid.uuid4().hex))'''
DEPLOYMENT_IN_3_0 = '''def deployment() -> str:
    """What tells this Airflow from others: `[gpuflow] deployment`, or the Variable `gpuflow_deployment`."""
    from airflow.configuration import conf
    from airflow.exceptions import AirflowException
    from airflow.sdk import Variable

    name = str(conf.get("gpuflow", "deployment", fallback="") or "").strip()
    name = name or str(Variable.get("gpuflow_deployment", default=None) or "")
    if not name:
        # Not made here: this Airflow also says "not there" when it is only out of reach.
        raise AirflowException("create the Variable gpuflow_deployment, or set [gpuflow] deployment in airflow.cfg")
    return name'''


def homes(version: str | None) -> Mapping[str, str]:
    """Where a file of this Airflow imports its names from."""
    if version is None or version in CURRENT:
        return HOMES
    return {**HOMES, **(IN_2 if version.startswith("2.") else IN_3_0)}


def in_words_of(dag: Dag, version: str | None) -> Dag:
    """A standalone DAG in the words of another Airflow."""
    if version is None or version in CURRENT:
        return dag
    is_2 = version.startswith("2.")
    settings: dict[str, Any] = _rewritten(dag.settings, is_2)
    if is_2:
        settings.setdefault("start_date", FIRST_DAY)
    functions = dag.functions
    if functions:
        functions = (RUN_NAME, DEPLOYMENT_IN_2 if is_2 else DEPLOYMENT_IN_3_0)
    tasks = [replace(made, call=_rewritten(made.call, is_2)) for made in dag.tasks]
    older = replace(dag, settings=settings, tasks=tasks, functions=functions)
    return rendered_once(older) if is_2 else older


def _rewritten(tree: Any, is_2: bool) -> Any:
    if isinstance(tree, Call):
        named = _with_backoff({key: _rewritten(value, is_2) for key, value in tree.named.items()})
        if tree.name == "ApprovalOperator" and "response_timeout" in named:
            # Its older provider has no other word for it, and newer ones still understand this one.
            named = {"execution_timeout" if key == "response_timeout" else key: named[key] for key in named}
        return Call(tree.name, tuple(_rewritten(arg, is_2) for arg in tree.args), named)
    if isinstance(tree, Method):
        named = {key: _rewritten(value, is_2) for key, value in tree.named.items()}
        args = tuple(_rewritten(arg, is_2) for arg in tree.args)
        return Method(_rewritten(tree.target, is_2), tree.name, args, named)
    if isinstance(tree, dict):
        return {key: _rewritten(value, is_2) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_rewritten(value, is_2) for value in tree]
    return tree.replace(SCHEDULED_TIME, SCHEDULED_IN_2) if isinstance(tree, str) and is_2 else tree


def _with_backoff(named: dict[str, Any]) -> dict[str, Any]:
    """Before 3.2 delays double, or they do not grow."""
    return {**named, "retry_exponential_backoff": True} if "retry_exponential_backoff" in named else named


def older_refusals(request: Request) -> Iterator[Finding]:
    """What the Airflow that was asked for cannot say."""
    options = request.options_as(AirflowOptions)
    version = options.airflow
    if version is None:
        return
    if version not in (*OLDER, *CURRENT):
        known = ", ".join((*OLDER, *CURRENT))
        yield Finding("GF370", f"--airflow {version} is no Airflow that a file can be written for", hint=known)
        return
    if not options.standalone and version in OLDER:
        text = f"gpuflow.airflow needs Airflow 3.2, and --airflow {version} asks for an older one"
        yield Finding("GF370", text, hint="add --standalone: a file with stock operators alone")
        return
    if version in OLDER:
        yield from _not_there(request.pipeline, version)


def _not_there(pipeline: Pipeline, version: str) -> Iterator[Finding]:
    for name, step in every_step(pipeline):
        where = pipeline.where_step(name.split(".")[0])
        if step.approval is not None and version != "3.1":
            hint = "Airflow asks people from 3.1 on"
            yield Finding("GF370", f'step "{name}": Airflow {version} has no approvals', where, hint)
        backoff = step.retry.backoff if step.retry is not None else None
        if backoff is not None and backoff.factor not in (1, 2):
            text = f'step "{name}": delays of Airflow {version} double or stay, and cannot grow by {backoff.factor:g}'
            yield Finding("GF370", text, where, "write backoff: {factor: 2}")
    if version.startswith("2.") and has_assets(pipeline):
        text = f"Airflow {version} knows no assets, which on_data and artifacts with a fixed uri become"
        yield Finding("GF370", text, Where(pipeline.source.file), "start it by a schedule, or use Airflow 3")
