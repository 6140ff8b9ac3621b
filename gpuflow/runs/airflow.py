"""Runs on Airflow 3, through its REST API v2. A run of a compiled DAG is named `DAG/RUN_ID`.

A step is a task, an attempt is one of Airflow's tries, with however many pods it had, and a copy is a mapped task. What
gpuflow adds to a DAG (lists of items, marks, volumes, the outcome) is no step and does not show.

`stop` marks a run failed, as Airflow's UI does, and leaves a note with the time by which it is told from a failure.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from gpuflow.core.errors import Finding, fail
from gpuflow.graph.order import order, reachable
from gpuflow.local.record import FAILED, INTERRUPTED, NOT_RUN, RUNNING, SKIPPED, SUCCEEDED, WAITING
from gpuflow.plan import Plan, PlannedStep
from gpuflow.runs.airflow_api import WHERE, Answer, Api, path_of
from gpuflow.runs.airflow_dags import Dag
from gpuflow.runs.model import (
    STEP_ENDS,
    Connection,
    LogPart,
    LogQuery,
    RunState,
    Started,
    StepState,
    Submission,
    Unreachable,
)
from gpuflow.spec.params import text_of

HELPERS = ("ListItems", "Mark", "MakeClaim", "DeleteClaim", "EmptyOperator")
"""Operators of tasks that are no steps."""
STATES: Mapping[str | None, tuple[str, str]] = {
    None: (WAITING, ""),
    "scheduled": (WAITING, "for a slot of its pool, or of Airflow's limits"),
    "queued": (WAITING, "for a worker of Airflow"),
    "up_for_retry": (WAITING, "for the next attempt"),
    "up_for_reschedule": (WAITING, "for Airflow's next look"),
    "awaiting_input": (WAITING, "for a person's answer"),
    "success": (SUCCEEDED, ""),
    "failed": (FAILED, ""),
    "upstream_failed": (NOT_RUN, "what it needs failed"),
    "skipped": (SKIPPED, ""),
}
"""What the state of a task means; in any other it runs."""
NOT_STARTED = (None, "scheduled", "queued", "skipped", "upstream_failed")
RUN_STATES = {"queued": WAITING, "running": RUNNING, "success": SUCCEEDED, "failed": FAILED}
ACTIVE_WORDS = ("running", "ended", "succeeded", "failed", "being deleted", "the API server")
"""How the trigger's sentence begins about a pod that waits for nothing."""
MOST_ASKED = 50
"""Deferred tasks of which one look asks what their pods do."""
STOPPED = "gpuflow stop "
EVERY = 2.0
PROGRAM = re.compile(r"^\[(?:main|base)\] ?")
"""How the operators begin a line that the program wrote."""
Task = Mapping[str, Any]
"""A task instance, as the API describes it."""


def connect(connection: Connection) -> AirflowClient:
    """The client; nothing is asked yet."""
    return AirflowClient(Api(connection.url, connection.timeout))


class AirflowClient:
    """The runs of one Airflow."""

    engine = "airflow"

    def __init__(self, api: Api) -> None:
        self._api = api
        self._known: dict[tuple[Any, ...], Any] = {}
        """What does not change any more: outputs and reasons of tries that have ended."""

    # -- start, stop, retry

    def submit(self, submission: Submission) -> Started:
        dag = submission.plan.pipeline.name
        run = submission.name or f"gpuflow-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
        if submission.name and self._api.get("dags", dag, "dagRuns", run) is not None:
            return self._already_there(dag, run)
        with contextlib.ExitStack() as undo:
            findings = tuple(Dag(self._api, submission).ready(undo))
            body = {"dag_run_id": run, "logical_date": None, "conf": dict(submission.params)}
            try:
                answer = self._api.ask("POST", "dags", dag, "dagRuns", body=body, accept=(409,))
            except Unreachable:
                if self._api.get("dags", dag, "dagRuns", run) is None:
                    raise
                answer = Answer(200, None)  # it was started, and the answer was lost
            undo.pop_all()
        if answer.status == 409:
            return self._already_there(dag, run)
        return Started(f"{dag}/{run}", self._url(dag, run), findings=findings)

    def _already_there(self, dag: str, run: str) -> Started:
        note = Finding("GF956", f"run {dag}/{run} was there already: nothing was started", WHERE, severity="note")
        return Started(f"{dag}/{run}", self._url(dag, run), is_new=False, findings=(note,))

    def stop(self, run: str) -> RunState:
        """Airflow ends the tasks, these delete their pods, and programs have their grace."""
        place, answer = self._find(run)
        if answer.body["state"] in ("queued", "running"):
            moment = parsedate_to_datetime(answer.date) if answer.date else datetime.now(UTC)
            note = "\n".join(filter(None, (_note(answer.body), f"{STOPPED}{moment.isoformat()}")))
            self._api.ask("PATCH", *place, body={"state": "failed", "note": note})
        return self.state(run)

    def retry(self, run: str) -> Started:
        """Clear what failed or was stopped, and what follows from it, exit steps too."""
        place, answer = self._find(run)
        tasks, stopped = self._tasks(place), _stopped_at(answer.body)
        failed = [each for each in tasks if _has_failed(each, stopped)]
        if answer.body["state"] != "failed" or not failed:
            raise fail("GF953", f"run {run} is {answer.body['state']}: nothing is to be retried", where=WHERE)
        if any(each["operator"] == "DeleteClaim" and each["state"] == "success" for each in tasks):
            text = f"run {run} cannot be retried: its volumes were deleted at its end, with what its steps left there"
            raise fail("GF953", text, where=WHERE, hint="gpuflow submit starts another run")
        after = reachable(self._successors(place[1]), {each["task_id"] for each in failed})
        # A copy that succeeded behind one that failed stays: it followed another copy.
        again = [
            each
            for each in tasks
            if each["task_id"] in after and (each["state"], each["map_index"] < 0) != ("success", False)
        ]
        ids = [(each["task_id"], each["map_index"]) for each in (*failed, *again)]
        body = {"dag_run_id": place[3], "dry_run": False, "only_failed": False, "reset_dag_runs": True}
        body["task_ids"] = [name if index < 0 else [name, index] for name, index in dict.fromkeys(ids)]
        if stopped is not None:
            self._api.ask("PATCH", *place, body={"note": _note(answer.body)})
        self._api.ask("POST", "dags", place[1], "clearTaskInstances", body=body)
        return Started(run, self._url(place[1], place[3]))

    # -- look

    def state(self, run: str, plan: Plan | None = None) -> RunState:
        place, answer = self._find(run)
        tasks, stopped, dag = self._tasks(place), _stopped_at(answer.body), place[1]
        names = [each.name for each in plan.steps if each.step.pipeline is None] if plan else self._steps(dag, tasks)
        deferred = [each["id"] for each in tasks if each["state"] == "deferred"]
        leaves: dict[str, StepState] = {}
        for name in names:
            own = [each for each in tasks if each["task_id"] == name]
            for task in own:
                key = copy_name(name, task["map_index"], plan)
                leaves[key] = self._step(key, task, stopped, ask=task["id"] not in deferred[MOST_ASKED:])
            if not own:
                leaves[name] = StepState(name)
        state, because = RUN_STATES.get(answer.body["state"], RUNNING), ""
        if state == WAITING:
            is_paused = (self._api.get("dags", dag) or {}).get("is_paused")
            because = "the DAG is paused" if is_paused else "Airflow has not begun it, perhaps for its max_active_runs"
        elif state == FAILED and stopped is not None:
            state, because = (
                INTERRUPTED,
                f"stopped at {stopped:%H:%M:%S} UTC, without exit steps{self._volumes_text(tasks)}",
            )
        elif len(deferred) > MOST_ASKED:
            because = f"of {len(deferred)} pods, {MOST_ASKED} were asked whether they run or wait"
        return RunState(run, self.engine, dag, self._url(dag, place[3]), state, tuple(_tree("", leaves)), because)

    def _find(self, run: str) -> tuple[tuple[str, str, str, str], Answer]:
        """The path of a run, and what is known of it."""
        dag, _, run_id = run.partition("/")
        place = ("dags", dag, "dagRuns", run_id)
        answer = self._api.ask("GET", *place, accept=(404,)) if dag and run_id else Answer(404, None)
        if answer.body is None:
            hint = "a run on Airflow is named DAG/RUN_ID, as gpuflow submit prints it"
            raise fail("GF951", f'Airflow at {self._api.url} has no run "{run}"', where=WHERE, hint=hint)
        return place, answer

    def _tasks(self, place: tuple[str, ...]) -> list[dict[str, Any]]:
        """The task instances, copies in their order."""
        found = self._api.pages("task_instances", *place, "taskInstances", order_by="id")
        return sorted((each for each in found if each["state"] != "removed"), key=lambda each: int(each["map_index"]))

    def _successors(self, dag: str) -> dict[str, list[str]]:
        found = (self._api.get("dags", dag, "tasks") or {}).get("tasks") or ()
        return {each["task_id"]: each["downstream_task_ids"] for each in found}

    def _steps(self, dag: str, tasks: list[dict[str, Any]]) -> list[str]:
        """The steps of a run whose pipeline is not at hand, each after those it needs."""
        operators = {each["task_id"]: each["operator"] for each in tasks}
        names = [*order(self._successors(dag)), *operators]
        return [name for name in dict.fromkeys(names) if operators.get(name, HELPERS[0]) not in HELPERS]

    def _step(self, key: str, task: Task, stopped: datetime | None, *, ask: bool) -> StepState:
        state, because = STATES.get(task["state"], (RUNNING, ""))
        if state in (FAILED, SKIPPED) and _ended_after(task, stopped):
            state, because = (
                (INTERRUPTED, "the run was stopped") if state == FAILED else (NOT_RUN, "the run was stopped")
            )
        elif task["state"] == "deferred" and ask:
            state, because = self._waits(task)
        elif task["state"] in ("failed", "up_for_retry"):
            because = "; ".join(filter(None, (because, self._reason(task))))
        outputs = {name: text_of(value) for name, value in self._outputs(task).items()} if state == SUCCEEDED else {}
        attempts = int(task["try_number"]) - (1 if task["state"] in NOT_STARTED and task["try_number"] else 0)
        return StepState(key, state, attempts, outputs, because, task["start_date"] or "", task["end_date"] or "")

    def _waits(self, task: Task) -> tuple[str, str]:
        """Whether the pod of a deferred task runs, or what it waits for."""
        if task["operator"] in ("Approve", "ApprovalOperator"):
            return STATES["awaiting_input"]
        found = self._api.get(*_place(task), "xcomEntries", "gpuflow_status", map_index=task["map_index"]) or {}
        words = str(found.get("value") or "").strip('"')
        return (RUNNING, "") if not words or words.startswith(ACTIVE_WORDS) else (WAITING, words)

    def _outputs(self, task: Task) -> dict[str, Any]:
        """What it handed over."""
        key = ("outputs", task["id"], task["try_number"])
        if key not in self._known:
            query = {"map_index": task["map_index"], "deserialize": "true"}
            value = (self._api.get(*_place(task), "xcomEntries", "return_value", **query) or {}).get("value")
            self._known[key] = value if isinstance(value, dict) else {} if value is None else {"return_value": value}
        found: dict[str, Any] = self._known[key]
        return found

    def _reason(self, task: Task) -> str:
        """Why its last try failed: the error at the end of its log, which is all that Airflow keeps."""
        key = ("reason", task["id"], task["try_number"])
        if key not in self._known:
            entries, _ = self._log(task, task["try_number"], "")
            told = [each for entry in entries if isinstance(entry, dict) for each in entry.get("error_detail") or ()]
            self._known[key] = " ".join(str(told[-1].get("exc_value")).split())[:500] if told else ""
        return str(self._known[key])

    def _volumes_text(self, tasks: list[dict[str, Any]]) -> str:
        """The volumes that a stopped run leaves."""
        made = [each for each in tasks if each["operator"] == "MakeClaim" and each["state"] == "success"]
        names = [str(self._outputs(each).get("return_value")) for each in made]
        return f"; its volumes stay until somebody deletes them: {', '.join(names)}" if names else ""

    def _url(self, dag: str, run_id: str) -> str:
        return f"{self._api.url}{path_of('dags', dag, 'runs', run_id)}"

    # -- logs

    def logs(self, run: str, query: LogQuery) -> Iterator[LogPart]:
        """What programs wrote, as Airflow has kept it; of a gang that is rank 0."""
        place, _ = self._find(run)
        if query.rank:
            hint = "kubectl logs shows the pods of other ranks, as long as they are there"
            raise fail("GF927", "Airflow keeps the log of rank 0 alone", where=WHERE, hint=hint)
        logs: dict[tuple[str, int], _Log] = {}
        while True:
            tasks = [each for each in self._tasks(place) if _is_part_of(each, query.step)]
            for task in tasks:
                for number in range(1, task["try_number"] + 1):
                    if query.attempt in (None, number):
                        log = logs.setdefault((f"{task['task_id']}@{task['map_index']}", number), _Log())
                        yield from self._more(log, task, number)
            if not query.follow or all(map(_is_over, tasks)):
                break
            time.sleep(EVERY)
        if not logs:
            hint = f"gpuflow status {run} --engine airflow lists its steps"
            raise fail("GF927", f'run {run} has no log of "{query.step}"', where=WHERE, hint=hint)

    def _more(self, log: _Log, task: Task, number: int) -> Iterator[LogPart]:
        """What is new in the log of one attempt. Airflow's own lines are shown where no program wrote any."""
        if log.is_read:
            return
        entries, token = self._log(task, number, log.token)
        lines = [str(each.get("event")) if isinstance(each, dict) else str(each) for each in entries]
        if lines[:1] == ["::group::Log message source details"]:
            lines = lines[lines.index("::endgroup::") + 1 :]
        # Between two deferrals Airflow takes the task for one that has ended, and does not say where to go on.
        lines = lines if log.token else lines[log.count :]
        log.count, log.token = log.count + len(lines), token
        log.is_read = number < task["try_number"] or _is_over(task)
        program = [PROGRAM.sub("", line) for line in lines if PROGRAM.match(line)]
        log.has_program |= bool(program)
        log.others += [line for line in lines if not line.startswith("::")]
        if shown := program or (log.others if log.is_read and not log.has_program else []):
            yield LogPart(f"{copy_name(task['task_id'], task['map_index'])}, attempt {number}", "\n".join([*shown, ""]))

    def _log(self, task: Task, number: int, token: str) -> tuple[list[Any], str]:
        query = {"map_index": task["map_index"], "full_content": "false"} | ({"token": token} if token else {})
        found = self._api.get(*_place(task), "logs", number, **query) or {}
        content = found.get("content") or []
        return content if isinstance(content, list) else [content], found.get("continuation_token") or ""


class _Log:
    """How far the log of an attempt was shown."""

    def __init__(self) -> None:
        self.token, self.count, self.is_read, self.has_program = "", 0, False, False
        self.others: list[str] = []


def _place(task: Task) -> tuple[str, ...]:
    return ("dags", task["dag_id"], "dagRuns", task["dag_run_id"], "taskInstances", task["task_id"])


def _is_over(task: Task) -> bool:
    return STATES.get(task["state"], (RUNNING, ""))[0] in STEP_ENDS


def _is_part_of(task: Task, step: str) -> bool:
    """Whether a step's name means this task: its own, that of a copy, or that of a sub-pipeline around it."""
    plain, numbers = re.sub(r"@\d+", "", step), re.findall(r"@(\d+)", step)
    if task["operator"] in HELPERS or not f"{task['task_id']}.".startswith(f"{plain}."):
        return False
    if len(numbers) > 1:
        hint = f"{plain}@N, with the number of the task in Airflow's UI"
        raise fail("GF927", f'Airflow does not say which copy of {plain} is "{step}"', where=WHERE, hint=hint)
    return not numbers or task["map_index"] == int(numbers[0])


def _stopped_at(run: Mapping[str, Any]) -> datetime | None:
    """When `gpuflow stop` ended the run."""
    _, _, moment = str(run["note"] or "").rpartition(STOPPED)
    with contextlib.suppress(ValueError):
        return datetime.fromisoformat(moment)
    return None


def _note(run: Mapping[str, Any]) -> str:
    """The run's note without what `stop` left there."""
    return str(run["note"] or "").partition(STOPPED)[0].rstrip()


def _ended_after(task: Task, stopped: datetime | None) -> bool:
    return stopped is not None and (not task["end_date"] or datetime.fromisoformat(task["end_date"]) >= stopped)


def _has_failed(task: Task, stopped: datetime | None) -> bool:
    """Whether it is to be retried. What a stop has skipped cannot be told from a step that its condition skipped,
    which is skipped again."""
    return task["state"] in ("failed", "upstream_failed") or (task["state"] == "skipped" and stopped is not None)


def copy_name(task: str, index: int, plan: Plan | None = None) -> str:
    """The name of a mapped task: `tune@1.train@0`. Airflow numbers all copies through, so without the plan, or where a
    list inside another is only known in the run, it is `tune.train@2`."""
    chain, each = list[PlannedStep](), plan.by_name[task] if plan is not None and index >= 0 else None
    while each is not None:
        chain.append(each)
        each = each.parent
    mapped = [each for each in chain if each.step.for_each]
    sizes = [each.copies for each in mapped[:-1] if isinstance(each.copies, int) and each.copies]
    if not mapped or len(sizes) < len(mapped) - 1:
        return task if index < 0 else f"{task}@{index}"
    numbers = {}
    for each, size in zip(mapped, [*sizes, index + 1], strict=True):
        index, number = divmod(index, size)
        numbers[each.name] = f"@{number}"
    return ".".join(each.own_name + numbers.get(each.name, "") for each in reversed(chain))


def _tree(name: str, leaves: Mapping[str, StepState]) -> Iterator[StepState]:
    """Steps with those around them: a fan-out before its copies, a sub-pipeline before its steps."""
    children: dict[str, dict[str, StepState]] = {}
    for key, leaf in leaves.items():
        match = re.match(r"\.?[^.@]+|@\d+", key.removeprefix(name))
        if match:
            children.setdefault(name + match[0], {})[key] = leaf
    for child, below in children.items():
        parts = list(_tree(child, below))
        yield leaves.get(child) or _whole(child, parts)
        yield from parts


def _whole(name: str, parts: list[StepState]) -> StepState:
    """A fan-out by its copies, or a sub-pipeline by its steps."""
    states = {each.state for each in parts}
    state = next((each for each in (FAILED, INTERRUPTED, SUCCEEDED, NOT_RUN) if each in states), SKIPPED)
    if states & {WAITING, RUNNING}:
        state = WAITING if states <= {WAITING, SKIPPED} else RUNNING
    because = next((each.because for each in parts if each.state == state), "")
    copies = [each for each in parts if re.fullmatch(r"@\d+", each.name.removeprefix(name))]
    return StepState(name, state, sum(each.attempts for each in copies), because=because)
