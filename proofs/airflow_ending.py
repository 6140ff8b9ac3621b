"""`python -m proofs airflow-ending --count 200 --seed 1`: random pipelines on a real Airflow scheduler.

What is asked of each run: no exit step starts and no volume is deleted before every other pod has ended, no step starts
before everything it needs, the same pods run as on any other engine, and the run's state shows every failure.

The scheduler is Airflow's program, and the DAGs are what gpuflow writes. `PlayedWorkers` does what all workers would,
in the scheduler's executor, so that a run costs little; with `--workers` whole workers, a triggerer and an API server
run the operators, and the pods live in a stand-in for the Kubernetes API server. Goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from airflow.executors.base_executor import BaseExecutor

from tests.targets.airflow.forking import ROOT
from tests.targets.airflow.home import LONGEST, Home
from tests.targets.airflow.random_pipelines import Graph, graph_of, wrong
from tests.targets.airflow.services import Services
from tests.targets.airflow.stand_in import StandIn, ended, running

KEPT = ROOT / "build" / "airflow-ending"
SETTLED = 3
"""How many decisions of the scheduler in a row must leave a run as it is before a held pod ends."""
BUSY = ("scheduled", "queued", "restarting", "up_for_retry", "up_for_reschedule")
OVER = ("success", "failed")
PLAN = "GPUFLOW_ENDING"
"""The variable that tells the scheduler's process which pipelines to play."""


@dataclass
class Watched:
    """What is seen of one run."""

    states: dict[str, str | None] = field(default_factory=dict)
    decisions: set[str] = field(default_factory=set)
    """The scheduler's decisions since its tasks last changed."""
    state: str = "queued"

    def look(self, state: str, decision: Any, states: dict[str, str | None]) -> None:
        if self.states != states:
            self.states, self.decisions = states, set()
        elif decision is not None:
            self.decisions.add(str(decision))
        self.state = state

    def is_settled(self, held: int, waiting: tuple[str, ...]) -> bool:
        """Whether Airflow has nothing to do for it until a held pod ends. `waiting`: the state of a task that waits."""
        states = [str(state) for state in self.states.values()]
        return (
            held > 0
            and sum(map(states.count, waiting)) == held
            and len(self.decisions) >= SETTLED
            and not {*BUSY} & {*states}
        )


# -- the scheduler with played workers --------------------------------------------------------------------------------


class PlayedWorkers(BaseExecutor):  # type: ignore[misc]  # Airflow is not installed where types are checked
    """All workers of one Airflow: each task does at once what its graph says, and a held pod's task runs on."""

    def __init__(self, *words: Any, **named: Any) -> None:
        super().__init__(*words, **named)
        plan = json.loads(os.environ[PLAN])
        self._left = [graph_of(*each) for each in plan["graphs"]]
        self._at_once, self._results, self._owner = plan["at_once"], Path(plan["results"]), plan["owner"]
        self._open: dict[str, Graph] = {}
        self._seen: dict[str, Watched] = {}
        self._events: dict[str, list[tuple[str, str]]] = {}
        self._held: dict[str, dict[str, Any]] = {}
        """Of each run the tasks whose pods are held, by their pods."""

    def _process_workloads(self, workload_items: Sequence[Any]) -> None:
        for workload in workload_items:
            task = workload.ti
            del self.queued_tasks[task.key]
            self.running.add(task.key)
            self._begin(task)

    def _begin(self, task: Any) -> None:
        name, graph = task.dag_id, self._open[task.dag_id]
        failed = any(state in ("failed", "upstream_failed") for state in self._seen[name].states.values())
        kind, what = graph.role(task.task_id, task.map_index, failed=failed)
        if kind == "pod":
            self._events[name].append(("made", what))
            if what in graph.held:
                self._held[name][what] = task
                self._set(task, "running")
            else:
                self._end(task, what)
            return
        if kind in ("claim", "unclaim"):
            self._events[name].append((kind, what))
        if kind == "list":
            self._list(task, what)
        self._set(task, "skipped" if kind == "skip" else "success")

    def _end(self, task: Any, what: str) -> None:
        events, codes = self._events[task.dag_id], self._open[task.dag_id].codes[what]
        attempt = events.count(("ended", what))
        events.append(("ended", what))
        again = attempt + 1 < len(codes)
        self._set(task, "success" if not codes[attempt] else "up_for_retry" if again else "failed")

    def _set(self, task: Any, state: str) -> None:
        from airflow.models.taskinstance import TaskInstance
        from airflow.utils.session import create_session
        from sqlalchemy import update

        now = datetime.now(tz=UTC)
        with create_session() as session:
            values = {"state": state, "start_date": now, "end_date": None if state == "running" else now}
            session.execute(update(TaskInstance).where(TaskInstance.id == task.id).values(values))
        if state != "running":
            (self.fail if state == "failed" else self.success)(task.key)

    def _list(self, task: Any, length: int) -> None:
        from airflow.models.taskmap import TaskMap
        from airflow.utils.session import create_session

        with create_session() as session:
            session.merge(TaskMap(task.dag_id, task.task_id, task.run_id, task.map_index, length, None))

    def sync(self) -> None:
        """Called in every round of the scheduler, which ends when nobody waits for its results any more."""
        from airflow.api.common.trigger_dag import trigger_dag
        from airflow.utils.types import DagRunTriggeredByType

        if not Path(f"/proc/{self._owner}").exists():
            os._exit(1)
        self._look()
        for name, graph in list(self._open.items()):
            seen, held = self._seen[name], self._held[name]
            if seen.state in OVER:
                found = wrong(graph, self._events[name], seen.state, seen.states)
                with self._results.open("a") as results:
                    results.write(json.dumps({"name": name, "form": graph.form, "wrong": found}) + "\n")
                del self._open[name]
            elif seen.is_settled(len(held), ("running",)):
                what = min(held, key=graph.held.__getitem__)
                self._end(held.pop(what), what)
                seen.decisions.clear()
        while self._left and len(self._open) < self._at_once:
            graph = self._left.pop(0)
            self._open[graph.name], self._seen[graph.name] = graph, Watched()
            self._events[graph.name], self._held[graph.name] = [], {}
            trigger_dag(graph.name, triggered_by=DagRunTriggeredByType.TEST)

    def _look(self) -> None:
        from airflow.models.dagrun import DagRun
        from airflow.models.taskinstance import TaskInstance
        from airflow.utils.session import create_session
        from sqlalchemy import select

        with create_session() as session:
            run = select(DagRun.dag_id, DagRun.state, DagRun.last_scheduling_decision)
            task = select(TaskInstance.dag_id, TaskInstance.task_id, TaskInstance.map_index, TaskInstance.state)
            runs = session.execute(run.where(DagRun.dag_id.in_(self._open))).all()
            states: dict[str, dict[str, str | None]] = {name: {} for name in self._open}
            for dag, task_id, index, state in session.execute(task.where(TaskInstance.dag_id.in_(self._open))):
                states[dag][f"{task_id}[{index}]"] = None if state is None else str(getattr(state, "value", state))
        for dag, state, decision in runs:
            self._seen[dag].look(str(getattr(state, "value", state)), decision, states[dag])


def played(graphs: Sequence[tuple[int, int, str | None]], folder: Path, at_once: int) -> Iterator[dict[str, Any]]:
    """Run each of them once, with played workers."""
    home = _home(folder, {})
    results = folder / "results.jsonl"
    plan = {"graphs": graphs, "at_once": at_once, "results": str(results), "owner": os.getpid()}
    home.environment |= {
        PLAN: json.dumps(plan),
        "AIRFLOW__CORE__EXECUTOR": "proofs.airflow_ending.PlayedWorkers",
        "AIRFLOW__CORE__PARALLELISM": "1000",
        "AIRFLOW__API_AUTH__JWT_SECRET": "only-for-this-test-only-for-this-test-only-for-this-test-only-here",
        "AIRFLOW__SCHEDULER__ENABLE_HEALTH_CHECK": "False",
        "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.05",
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": str(100 * LONGEST),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder}/airflow.db?timeout={LONGEST}",
    }
    _written([graph_of(*each) for each in graphs], home, folder)
    done = home.run("airflow", "dags", "reserialize")  # what the DAG processor does, once
    assert done.returncode == 0, done.stdout[-4000:]
    log = folder / "scheduler.log"
    scheduler = home.forks().start("airflow", "scheduler", "--skip-serve-logs", log=log, session=True)
    count, last = 0, time.monotonic()
    try:
        while count < len(graphs):
            lines = results.read_text().splitlines() if results.exists() else []
            for line in lines[count:]:
                last = time.monotonic()
                yield json.loads(line)
            count = len(lines)
            assert scheduler.poll() is None, log.read_text(errors="replace")[-4000:]
            assert time.monotonic() - last < LONGEST, f"no run ends any more\n{log.read_text(errors='replace')[-4000:]}"
            time.sleep(0.5)
    finally:
        scheduler.kill()
        scheduler.wait()


# -- the pods ---------------------------------------------------------------------------------------------------------


class HeldPods(StandIn):
    """Pods that end with the code of their plan, the held ones when `release` is called; and volume claims."""

    def __init__(self) -> None:
        super().__init__()
        self.graphs: dict[str, Graph] = {}
        self.events: dict[str, list[tuple[str, str]]] = {}
        self.waiting: dict[str, dict[str, str]] = {}
        """Of each graph the pods that are held: what they are, by their names."""
        self.claims: set[str] = set()

    def follow(self, graph: Graph) -> None:
        self.graphs[graph.name], self.events[graph.name], self.waiting[graph.name] = graph, [], {}

    def _do(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
        if "/persistentvolumeclaims" in path:
            return self._claim(method, path, body)
        return super()._do(method, path, query, body)

    def _claim(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        name = body["metadata"]["name"] if method == "POST" else path.rpartition("/")[2]
        whose = next((known for known in self.graphs if name.startswith(f"{known}-c")), None)
        if whose is None or (method == "POST") == (name in self.claims):
            return (409 if method == "POST" else 404), {"kind": "Status", "code": 409 if method == "POST" else 404}
        self.events[whose].append(("claim" if method == "POST" else "unclaim", name))
        (self.claims.add if method == "POST" else self.claims.discard)(name)
        return 201 if method == "POST" else 200, {"kind": "Status", "metadata": {}, "status": "Success"}

    def _post(self, _: None, query: dict[str, str], body: dict[str, Any]) -> tuple[int, Any]:
        status, pod = super()._post(None, query, body)
        if status != 201 or query.get("dryRun"):
            return status, pod
        self.made.clear()
        name = body["metadata"]["name"]
        _, whose, *words = next(each for each in pod["spec"]["containers"] if each["name"] == "main")["command"]
        what, graph = " ".join(words), self.graphs[whose]
        pod["metadata"]["creationTimestamp"] = "2026-11-14T10:00:00Z"
        self._show(name, running())
        self.events[whose].append(("made", what))
        if what in graph.held:
            self.waiting[whose][name] = what
        else:
            self._end(whose, name, what)
        return status, pod

    def _show(self, name: str, sight: dict[str, Any]) -> None:
        for part, fields in sight.items():
            self.pods[name][part] = {**self.pods[name].get(part, {}), **fields}

    def _end(self, whose: str, name: str, what: str) -> None:
        attempt = sum(each == ("ended", what) for each in self.events[whose])
        codes = self.graphs[whose].codes[what]
        code = codes[min(attempt, len(codes) - 1)]
        self.events[whose].append(("ended", what))
        if name in self.pods:
            self._show(name, ended(code, "Completed" if not code else "Error"))

    def release(self, whose: str) -> None:
        """End the held pod whose turn it is."""
        with self._lock:
            held, graph = self.waiting[whose], self.graphs[whose]
            name = min(held, key=lambda each: graph.held[held[each]])
            self._end(whose, name, held.pop(name))

    def forget(self, whose: str) -> None:
        """A run is over: its pods need not be looked through any more."""
        with self._lock:
            self.pods = {name: pod for name, pod in self.pods.items() if _owner(pod) != whose}


def _owner(pod: dict[str, Any]) -> str:
    return str(next(each for each in pod["spec"]["containers"] if each["name"] == "main")["command"][1])


# -- the runs ---------------------------------------------------------------------------------------------------------


class Runs:
    """One run of each graph, on one Airflow."""

    def __init__(self, airflow: Services, server: HeldPods) -> None:
        self.airflow, self.server = airflow, server
        self._database = airflow.home.folder / "airflow.db"
        self._seen: dict[str, Watched] = {}

    def play(self, graphs: Sequence[Graph], at_once: int) -> Iterator[tuple[Graph, Watched]]:
        """Start them, so many at once; each when it has ended."""
        left, open_ = list(graphs), dict[str, Graph]()
        last = time.monotonic()
        while left or open_:
            while left and len(open_) < at_once:
                each = left.pop(0)
                open_[each.name] = each
                self.server.follow(each)
                self._seen[each.name] = Watched()
                self.airflow.ask("POST", f"/dags/{each.name}/dagRuns", {"logical_date": None})
            for name in self._look(open_):
                last = time.monotonic()
                seen, ended = self._seen[name], open_[name]
                if seen.state in OVER:
                    del open_[name]
                    self.server.forget(name)
                    yield ended, seen
                elif self._is_settled(name):
                    self.server.release(name)
                    seen.decisions.clear()
            assert time.monotonic() - last < LONGEST, f"nothing happens in {list(open_)}\n{self.airflow.logs()}"
            time.sleep(0.3)

    def _look(self, open_: dict[str, Graph]) -> list[str]:
        """Read where the runs stand; the names of those that are to be looked at."""
        marks = ",".join("?" * len(open_))
        runs = f"SELECT dag_id, state, last_scheduling_decision FROM dag_run WHERE dag_id IN ({marks})"
        tasks = f"SELECT dag_id, task_id, map_index, state FROM task_instance WHERE dag_id IN ({marks})"
        with closing(sqlite3.connect(f"file:{self._database}?mode=ro", uri=True, timeout=LONGEST)) as database:
            decided = database.execute(runs, [*open_]).fetchall()
            states: dict[str, dict[str, str | None]] = {name: {} for name in open_}
            for dag, task, index, state in database.execute(tasks, [*open_]):
                states[dag][f"{task}[{index}]"] = state
        found = []
        for dag, state, decision in decided:
            self._seen[dag].look(state, decision, states[dag])
            if state in OVER or self._is_settled(dag):
                found.append(dag)
        return found

    def _is_settled(self, name: str) -> bool:
        return self._seen[name].is_settled(len(self.server.waiting[name]), ("deferred", "running"))


def _home(folder: Path, connection: Mapping[str, Any]) -> Home:
    home = Home(folder, Path(sys.executable).parent, connection)
    home.environment |= {
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "AIRFLOW__GPUFLOW__DEPLOYMENT": "tests",
        "AIRFLOW__SCHEDULER__MAX_DAGRUNS_PER_LOOP_TO_SCHEDULE": "50",
    }
    home.migrate()
    return home


def _written(graphs: Sequence[Graph], home: Home, folder: Path) -> None:
    """The DAG files, in the form of each."""
    for form in ("compiled", "standalone", "to_dag"):
        mine, place = [graph for graph in graphs if graph.form == form], folder / form
        place.mkdir(exist_ok=True)
        for each in mine:
            file = place / f"{each.name}.yaml"
            file.write_text(yaml.safe_dump(each.document(), sort_keys=False))
            if form == "to_dag":
                text = (
                    f"from airflow.sdk import DAG\nfrom gpuflow.airflow import to_dag\n\ndag = to_dag({str(file)!r}, "
                )
                (home.dags / f"{each.name.replace('-', '_')}.py").write_text(f"{text}namespace='ml')\n")
        if mine and form != "to_dag":
            words = ["compile", str(place), "--target", "airflow", "--namespace", "ml", "-o", f"{home.dags}/"]
            words += ["--standalone"] if form == "standalone" else []
            done = home.run("gpuflow.cli.main", *words)
            assert done.returncode == 0, done.stdout


def worked(graphs: Sequence[tuple[int, int, str | None]], folder: Path, at_once: int) -> Iterator[dict[str, Any]]:
    """Run each of them once, on a whole Airflow."""
    with HeldPods() as server:
        home = _home(folder, {"kube_config_path": str(server.kubeconfig(folder)), "in_cluster": False})
        all_ = [graph_of(*each) for each in graphs]
        _written(all_, home, folder)
        with Services(home) as airflow:
            airflow.start("api-server", "scheduler", "triggerer")
            for each, seen in Runs(airflow, server).play(all_, at_once):
                found = wrong(each, server.events[each.name], seen.state, seen.states)
                yield {"name": each.name, "form": each.form, "wrong": found}


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m proofs airflow-ending", description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200, help="how many pipelines")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=12, help="how many runs at a time")
    parser.add_argument("--batch", type=int, default=50, help="how many with one Airflow")
    parser.add_argument(
        "--workers",
        action="store_true",
        help="with whole workers and a triggerer (a busy scheduler loses tries of pods that end at once)",
    )
    words = parser.parse_args(given)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started ends too
    KEPT.mkdir(parents=True, exist_ok=True)
    file = KEPT / f"{'workers' if words.workers else 'played'}-seed-{words.seed}.jsonl"
    results = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    good = {result["name"] for result in results if not result["wrong"]}
    asked = {f"g{words.seed}-{number}": (words.seed, number, None) for number in range(words.count)}
    left = [each for name, each in asked.items() if name not in good]
    red: set[str] = set()
    for start in range(0, len(left), words.batch):
        folder = Path(tempfile.mkdtemp(prefix="airflow-ending-"))
        try:
            for result in (worked if words.workers else played)(
                left[start : start + words.batch], folder, words.at_once
            ):
                name = result["name"]
                (red if result["wrong"] else good).add(name)
                with file.open("a") as kept:
                    kept.write(json.dumps(result) + "\n")
                for line in result["wrong"]:
                    print(f"RED {name}: {line[:600]}", flush=True)
                print(f"{name} ({result['form']}): {'RED' if result['wrong'] else 'good'}", flush=True)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    total, how = len(good & {*asked}), "whole workers" if words.workers else "played workers"
    print(f"ending: {total} of {words.count} random pipelines of seed {words.seed} good, {len(red)} wrong ({how})")
    return int(total < words.count)


if __name__ == "__main__":
    sys.exit(main())
