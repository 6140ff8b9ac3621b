"""The whole DAG as data: its own settings, its tasks in their groups, and the edges between them."""

from __future__ import annotations

import builtins
import keyword
import re
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from gpuflow.core import printable
from gpuflow.spec.engine_options.rules import setups, teardowns
from gpuflow.spec.params import Param
from gpuflow.spec.pipeline import Pipeline
from gpuflow.targets.airflow.alerts import callbacks
from gpuflow.targets.airflow.engine_options import datetime_call, with_engine_options
from gpuflow.targets.airflow.facts import AirflowOptions
from gpuflow.targets.airflow.flow import Task, tasks_of, tasks_to_watch
from gpuflow.targets.airflow.operators import claim_stem, fixed_items, item_list, operator, span
from gpuflow.targets.airflow.python_source import HOMES, Call, Method, Name
from gpuflow.targets.airflow.references import Scope
from gpuflow.targets.cron import airflow_cron
from gpuflow.targets.target import Request

EXIT_RULES = {"always": "all_done", "failure": "all_done", "success": "none_failed"}
WHY_ALL_DONE = "Waits until every task has ended: Airflow gives up on a task while others before it still run."
_JSON_TYPES = {"string": "string", "int": "integer", "float": "number", "bool": "boolean"}


@dataclass(frozen=True, slots=True)
class DagTask:
    """A task: the variable it is kept in, the group it stands in, and the call that makes it."""

    variable: str
    group: tuple[str, ...]
    call: Any


@dataclass(slots=True)
class Dag:
    """Everything a DAG file says."""

    settings: dict[str, Any]
    tasks: list[DagTask] = field(default_factory=list)
    edges: list[tuple[tuple[str, ...], str]] = field(default_factory=list)
    """Variables of the tasks before, variable of the task after."""
    taken: set[str] = field(default_factory=lambda: {"dag"})
    functions: tuple[str, ...] = ()
    """What the file defines itself, as text."""
    roles: list[Method] = field(default_factory=list)
    """What makes tasks setups and teardowns."""

    def add(self, name: str, group: tuple[str, ...], call: Any, before: list[str]) -> str:
        """Keep a task in a variable of its own; the variable."""
        variable = _variable(".".join((*group, name)), self.taken)
        self.taken.add(variable)
        self.tasks.append(DagTask(variable, group, call))
        if before:
            self.edges.append((tuple(before), variable))
        return variable


def dag_of(request: Request) -> Dag:
    pipeline = request.pipeline
    settings = _settings(pipeline, whole_run=request.options_as(AirflowOptions).standalone) | _docs(request)
    dag = Dag(with_engine_options(settings | callbacks(request), pipeline))
    root = Scope(request.plan)
    tasks = tasks_of(root)
    variables: dict[str, str] = {}
    claims = [dag.add(f"claim-{name}", (), _claim(root, name, request), []) for name in pipeline.claims]
    for task in tasks:
        _add(dag, task, request, variables, claims)
    cleaning = teardowns(pipeline)
    dag.roles += _roles(pipeline, variables)
    failing = [variables[name] for name, each in cleaning.items() if each.on_failure_fail_dagrun]
    ends = [*(variables[name] for name in tasks_to_watch(tasks, cleaning)), *failing]
    over = _all_done(dag, ends, pipeline, variables) if pipeline.exit or claims else []
    exits = []
    for planned in (each for each in root.steps.values() if each.section == "exit"):
        name, step = planned.own_name, planned.step
        task = Task(root, planned, when=None if step.when is None else root.condition(step.when))
        call = operator(task, request)
        more: dict[str, Any] = {"trigger_rule": EXIT_RULES[step.on or "always"]}
        if step.on == "failure":
            more["only_after_failure"] = True
        # What decides whether it runs is how the steps ended; `over` only says that they did.
        before = over if step.on in (None, "always") else [*dict.fromkeys([*ends, *over])]
        exits.append(dag.add(name, (), Call(call.name, (), {**call.named, **more}), before))
    ignored = {variables[name] for name in cleaning} - {*failing}
    followed = {variable for before, after in dag.edges if after not in ignored for variable in before}
    if exits or any(end in followed for end in ends) or claims:
        _outcome(dag, [*ends, *exits], [*over, *exits], claims, pipeline)
    return dag


def _all_done(dag: Dag, ends: list[str], pipeline: Pipeline, variables: dict[str, str]) -> list[str]:
    """What is done when every task is: the tasks themselves where nothing follows one, or a task that waits for all.

    The last tasks are not enough: Airflow marks a task upstream_failed, or skipped, as soon as one task before it is,
    while others before it still run.
    """
    owned = {setup for each in teardowns(pipeline).values() for setup in each.setups}
    started = {name: variables[name] for name in setups(pipeline)}
    alone = [variable for name, variable in started.items() if name not in owned]
    # A setup can be followed by what needs its success, and by its teardown, which waits for it.
    every = [made.variable for made in dag.tasks if made.variable not in started.values()]
    if set(every) == set(ends) and not alone:
        return ends
    named = {"task_id": _task_id(pipeline, "all-done"), "doc_md": WHY_ALL_DONE, "trigger_rule": "all_done"}
    last = dag.add(named["task_id"], (), Call("EmptyOperator", (), named), every)
    if alone:
        # Without a teardown before them, Airflow would leave out exit steps and deletions when such a setup fails.
        dag.roles = [role for role in dag.roles if role.name != "as_setup"]
        dag.roles.append(_teardown(last, alone))
    return [last]


def _task_id(pipeline: Pipeline, wish: str) -> str:
    """An id for a task that is no step, which no step has."""
    while wish in pipeline.steps or wish in pipeline.exit:
        wish += "-of-run"
    return wish


def _roles(pipeline: Pipeline, variables: dict[str, str]) -> list[Method]:
    """`create.as_setup()` and `drop.as_teardown(setups=create)`; a teardown's setups need no word of their own."""
    ends = teardowns(pipeline)
    named = {setup for each in ends.values() for setup in each.setups}
    found = [Method(Name(variables[name]), "as_setup") for name in setups(pipeline) if name not in named]
    for name, each in ends.items():
        more = {"on_failure_fail_dagrun": True} if each.on_failure_fail_dagrun else {}
        found.append(_teardown(variables[name], [variables[setup] for setup in each.setups], **more))
    return found


def _teardown(variable: str, owned: list[str], **more: Any) -> Method:
    names = [Name(setup) for setup in owned]
    return Method(Name(variable), "as_teardown", (), {"setups": names if len(names) > 1 else names[0], **more})


def _add(dag: Dag, task: Task, request: Request, variables: dict[str, str], claims: list[str]) -> None:
    scope, group = task.scope, task.scope.group
    before = [variables[need] for need in task.after] or claims
    if not (task.is_mapped or task.is_list):
        variables[task.id] = dag.add(task.name, group, operator(task, request), before)
    elif not task.lists_items and not scope.keys:
        variables[task.id] = dag.add(task.name, group, operator(task, request, fixed_items(task)), before)
    elif not task.lists_items:
        lister = scope.lister if task.mark else scope.list_id(task.name)
        assert lister is not None
        call = operator(task, request, Name(f"{variables[lister]}.output"))
        variables[task.id] = dag.add(task.name, group, call, before)
    else:
        lister = scope.list_id(task.name)
        variables[lister] = dag.add(lister.rpartition(".")[2], group, item_list(task, lister), before)
        if not task.is_list:
            plain = replace(task, when=None, run_anyway=False, gate=None)
            call = operator(plain, request, Name(f"{variables[lister]}.output"))
            variables[task.id] = dag.add(task.name, group, call, [])


def _outcome(dag: Dag, ends: list[str], over: list[str], claims: list[str], pipeline: Pipeline) -> None:
    """A last task that fails when any task did: Airflow looks at the last tasks alone. Volumes outlive `over`."""
    why = "Fails when a task of the run failed: Airflow decides by the last tasks alone."
    named = {"task_id": _task_id(pipeline, "outcome"), "doc_md": why, "trigger_rule": "none_failed"}
    last = dag.add(named["task_id"], (), Call("EmptyOperator", (), named), ends)
    for claim in claims:
        made = next(made for made in dag.tasks if made.variable == claim)
        task_id = f"delete-{made.call.named['task_id']}"
        named = {"task_id": task_id, "name": made.call.named["name"]}
        if "namespace" in made.call.named:
            named["namespace"] = made.call.named["namespace"]
        dag.add(task_id, (), Call("DeleteClaim", (), {**named, "trigger_rule": "all_done"}), over)
        dag.edges.append(((dag.tasks[-1].variable,), last))


def _claim(scope: Scope, name: str, request: Request) -> Call:
    claim = scope.pipeline.claims[name]
    named: dict[str, Any] = {"task_id": f"claim-{name}"}
    if request.namespace is not None:
        named["namespace"] = request.namespace
    named |= {"name": Call("claim", (claim_stem(scope, name),)), "size": str(claim.size), "access": claim.access}
    if claim.storage_class is not None:
        named["storage_class"] = claim.storage_class
    return Call("MakeClaim", (), named)


def _settings(pipeline: Pipeline, *, whole_run: bool) -> dict[str, Any]:
    """The DAG's own settings. `whole_run`: Airflow ends a run that takes too long, and its exit steps with it."""
    settings: dict[str, Any] = {"dag_id": pipeline.name}
    if pipeline.description:
        settings["description"] = pipeline.description
    settings["schedule"] = _schedule(pipeline)
    start = None if pipeline.schedule is None else pipeline.schedule.start
    if pipeline.schedule is not None and start is not None:
        settings["start_date"] = _date_call(start, pipeline.schedule.timezone)
    settings["catchup"] = start is not None and pipeline.schedule is not None and pipeline.schedule.catch_up
    if pipeline.schedule is not None and pipeline.schedule.concurrency == "forbid":
        settings["max_active_runs"] = 1
    if pipeline.parallel is not None:
        settings["max_active_tasks"] = pipeline.parallel
    if pipeline.deadline is not None and whole_run:
        settings["dagrun_timeout"] = span(pipeline.deadline)
    if pipeline.params:
        settings["params"] = {name: _param(param) for name, param in pipeline.params.items()}
    return settings


def _docs(request: Request) -> dict[str, str]:
    """What the DAG's page shows: what it does, and where to change it."""
    pipeline, lines = request.pipeline, []
    if pipeline.description:
        lines.append(pipeline.description.strip())
    if pipeline.source.file is not None:
        lines.append(f"Made by gpuflow from {printable.md_code(request.shown_source)}. Change that file, not this DAG.")
    return {"doc_md": "\n\n".join(lines)} if lines else {}


def _schedule(pipeline: Pipeline) -> Any:
    schedule, assets = pipeline.schedule, tuple(Call("Asset", (uri,)) for uri in pipeline.on_data)
    data: Any = [assets[0]] if len(assets) == 1 else Call("AssetAny", assets)
    # A suspended schedule is none at all: pausing a DAG is state of the server, not of the file.
    if schedule is None or schedule.suspended:
        return data if assets else None
    # A timetable of its own: of a bare cron expression, settings of the server decide what its dates mean.
    times = Call("CronTriggerTimetable", (airflow_cron(schedule.cron),), {"timezone": schedule.timezone})
    return Call("AssetOrTimeSchedule", (), {"timetable": times, "assets": data}) if assets else times


def _date_call(text: str, zone: str) -> Call:
    """A day or a time as Python writes it, in the time zone unless it has an offset."""
    moment = datetime.fromisoformat(text)
    return datetime_call(moment, zone) if moment.tzinfo is None else Call("datetime.fromisoformat", (text,))


def _param(param: Param) -> Call:
    named: dict[str, Any] = _json_type(param)
    for key, bound in (("minimum", param.min), ("maximum", param.max)):
        if bound is not None:
            named[key] = int(bound) if bound == int(bound) else bound
    if param.enum is not None:
        named["enum"] = list(param.enum)
    if param.description:
        named["description"] = param.description
    return Call("Param", () if param.required else (param.default,), named)


def _json_type(param: Param) -> dict[str, Any]:
    """The JSON Schema type, chosen so that the trigger form shows the right field."""
    if param.type != "json":
        return {"type": _JSON_TYPES[param.type]}
    if isinstance(param.default, list):
        texts = all(isinstance(value, str) for value in param.default)
        # Without `items` the form takes one text per line; with it, JSON.
        return {"type": "array"} if texts else {"type": "array", "items": {}}
    if isinstance(param.default, dict):
        return {"type": "object"}
    return {"type": ["object", "array", "string", "number", "boolean", "null"]}


RESERVED_NAMES = {*dir(builtins), *HOMES, "airflow", "ends", "run_name", "deployment"}
"""Names that no task's variable has."""


def _variable(name: str, taken: set[str]) -> str:
    """A Python name for a task, readable and its own."""
    plain = re.sub(r"\W", "_", name)
    while plain in taken or plain in RESERVED_NAMES or keyword.iskeyword(plain):
        plain += "_"
    return plain
