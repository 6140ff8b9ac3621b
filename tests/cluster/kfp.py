"""Runs on the private KFP, started and read back through kfp.Client: `python -m tests.cluster.kfp run FILE…`."""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import backend, kubeflow
from .cluster import Cluster
from .kube import Kube
from .layout import ADDRESS
from .sandbox import ProgramError
from .waiting import until

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venvs" / "kubeflow" / "bin" / "python"
ENDED = ("SUCCEEDED", "FAILED", "CANCELED", "SKIPPED")
RUN_LABEL = "pipeline/runid"


class KfpError(RuntimeError):
    """What kfp or its API server refused, in their own words."""


@dataclass(frozen=True)
class Task:
    """One task of a run as KFP tells it; `path` names it in the tree of tasks."""

    name: str
    state: str
    pod: str


class Kfp:
    """A kfp.Client in the cluster's network, and kubectl for the pods of its runs."""

    def __init__(self, cluster: Cluster) -> None:
        if "kubeflow" not in cluster.state["addons"]:
            raise ProgramError(f"cluster {cluster.layout.name} has no KFP: python -m tests.cluster up --kubeflow")
        if not PYTHON.exists():
            raise ProgramError("kfp.Client needs .venvs/kubeflow; make it: make .venvs/kubeflow/.ready")
        self.cluster = cluster
        self.kube: Kube = cluster.kube.within(kubeflow.NAMESPACE)
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Kfp:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:  # a busy machine: it has nothing to lose
                self._process.kill()
                self._process.wait()
            self._process = None

    def ask(self, do: str, **named: Any) -> Any:
        """One call of kfp.Client; raises with the server's words."""
        process = self._process or self._start()
        assert process.stdin is not None
        process.stdin.write(json.dumps({"do": do, **named}) + "\n")
        process.stdin.flush()
        return self._answer(process)

    def _start(self) -> subprocess.Popen[str]:
        log = (self.cluster.layout.run / "log" / "kfp-client.log").open("a")
        # Isolated: the folder of that file has a module `kfp` too, this one.
        program = [str(PYTHON), "-I", str(Path(__file__).with_name("kfp_client.py")), kubeflow.HOST]
        command = [*self.cluster.enter, *program]
        with log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self._answer(self._process)
        return self._process

    def _answer(self, process: subprocess.Popen[str]) -> Any:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            self._process = None
            raise ProgramError(f"kfp.Client ended:\n{self.cluster.sandbox.log('kfp-client')}")
        answer = json.loads(line)
        if "error" in answer:
            raise KfpError(answer["error"])
        return answer["value"]

    def run(
        self,
        file: Path,
        arguments: Mapping[str, Any] | None = None,
        *,
        name: str = "",
        experiment: str = "gpuflow",
        **more: Any,
    ) -> str:
        """Start a compiled file; the id of the run. `more` goes to create_run_from_pipeline_package as it is."""
        named = {"arguments": dict(arguments or {}), "run_name": name or file.stem, "experiment_name": experiment}
        return str(self.ask("run", file=str(file.resolve()), **named, **more))

    def get(self, run: str) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("get", run=run)
        return found

    def wait(
        self,
        runs: Iterable[str],
        timeout: float = 900.0,
        *,
        ended: Callable[[str, str], None] = lambda run, state: None,
    ) -> dict[str, str]:
        """Wait until all have ended, telling `ended` of each; their states."""
        wanted, states = list(runs), {}
        seen: dict[str, str] = {}

        def look() -> bool:
            with contextlib.suppress(KfpError):  # somebody restarts the API server
                states.update(self.ask("states", runs=[run for run in wanted if run not in seen]))
            for run, state in states.items():
                if state in ENDED and run not in seen:
                    seen[run] = state
                    ended(run, state)
            return len(seen) == len(wanted)

        until(f"{len(wanted)} runs to end", look, timeout=timeout, every=2.0, otherwise=lambda: self._words(states))
        return seen

    def _words(self, states: Mapping[str, str]) -> str:
        open_runs = [f"{run} {state}" for run, state in states.items() if state not in ENDED]
        waiting = [
            f"{pod['metadata']['name']}: {json.dumps(pod['status'].get('containerStatuses', pod['status']))[:600]}"
            for pod in self.kube.list("pods")
            if pod["status"].get("phase") == "Pending"
        ]
        return "\n".join([*open_runs, *waiting[:6]])

    def tasks(self, run: str) -> list[Task]:
        """The tasks of a run as KFP has them, in the order in which they were made."""
        details = self.get(run).get("run_details", {}).get("task_details", [])
        rows = sorted(details, key=lambda row: row.get("create_time", ""))
        return [
            Task(
                row.get("display_name", ""),
                row.get("state", ""),
                next((c["pod_name"] for c in row.get("child_tasks") or () if c.get("pod_name")), ""),
            )
            for row in rows
        ]

    def pods(self, run: str) -> list[dict[str, Any]]:
        """All pods of a run, drivers included, in the order in which they were made."""
        found = self.kube.list("pods", f"{RUN_LABEL}={run}")
        return sorted(found, key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]))

    def workflow(self, run: str) -> dict[str, Any] | None:
        """The Argo workflow of a run."""
        return next(iter(self.kube.list("workflows", f"{RUN_LABEL}={run}")), None)

    def lineage(self, run: str) -> list[dict[str, Any]]:
        """The executions of a run in ML Metadata, each with the artifacts that it took and made."""
        program = [str(backend.environment() / "bin" / "python"), "-I", str(Path(__file__).with_name("mlmd_client.py"))]
        command = [*self.cluster.enter, *program, ADDRESS, "8080", run]
        done = subprocess.run(command, text=True, capture_output=True, check=False)
        if done.returncode:
            raise KfpError(done.stderr.strip()[-2000:])
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found

    def log(self, pod: str, container: str = "main") -> str:
        return self.kube("logs", pod, f"--container={container}")


def is_step(pod: Mapping[str, Any]) -> bool:
    """Whether a pod of a run holds a step, and is neither one of KFP's drivers nor its work on claims."""
    containers = {each["name"]: each for each in pod["spec"]["containers"]}
    main = containers.get("main", {})
    return "kfp-driver" not in main.get("image", "") and any(
        each["name"] == "kfp-launcher" for each in pod["spec"].get("initContainers", ())
    )


def _describe(kfp: Kfp, run: str) -> None:
    found = kfp.get(run)
    print(f"{run} {found.get('display_name')} {found.get('state')} {found.get('error') or ''}")
    for task in kfp.tasks(run):
        print(f"  task {task.name:32} {task.state:12} {task.pod}")
    for pod in kfp.pods(run):
        kind = "step" if is_step(pod) else "kfp "
        print(f"  pod  {pod['metadata']['name']:64} {kind} {pod['status'].get('phase')}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.kfp", description=__doc__)
    parser.add_argument("--name", default="default", help="which private cluster")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="start compiled files, wait, and say what became of them")
    run.add_argument("file", nargs="+", type=Path)
    run.add_argument("--param", action="append", default=[], metavar="NAME=JSON")
    run.add_argument("--no-wait", action="store_true")
    run.add_argument("--logs", action="store_true", help="print what the steps printed")
    show = commands.add_parser("show", help="state, tasks and pods of runs")
    show.add_argument("run", nargs="+")
    lineage = commands.add_parser("lineage", help="what ML Metadata holds of runs")
    lineage.add_argument("run", nargs="+")
    choose = commands.add_parser("settings", help="restart the API server with other settings")
    choose.add_argument("which", choices=kubeflow.SETTINGS)
    options = parser.parse_args(arguments)
    cluster = Cluster.find(options.name)
    if cluster is None:
        print(f"cluster {options.name} is not up: python -m tests.cluster --name {options.name} up --kubeflow")
        return 1
    if options.command == "settings":
        kubeflow.settings(cluster, kubeflow.SETTINGS[options.which])
        return 0
    with Kfp(cluster) as kfp:
        if options.command == "lineage":
            print(json.dumps([kfp.lineage(run) for run in options.run], indent=2))
            return 0
        if options.command == "show":
            runs = options.run
        else:
            given = dict(word.split("=", 1) for word in options.param)
            values = {key: _value(text) for key, text in given.items()}
            started = time.monotonic()
            runs = [kfp.run(file, values) for file in options.file]
            if options.no_wait:
                print("\n".join(runs))
                return 0
            kfp.wait(runs, 1800, ended=lambda run, state: print(f"{run} {state} {time.monotonic() - started:.0f} s"))
        for each in runs:
            _describe(kfp, each)
            if getattr(options, "logs", False):
                for pod in filter(is_step, kfp.pods(each)):
                    print(f"--- {pod['metadata']['name']}\n{kfp.log(pod['metadata']['name'])}")
    return 0


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


if __name__ == "__main__":
    sys.exit(main())
