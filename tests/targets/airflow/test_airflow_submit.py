"""`gpuflow submit` and what follows it on a whole Airflow: API server, scheduler, triggerer and DAG processor.

The pods are those of a stand-in for the Kubernetes API server, which does what the words of their commands say.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from gpuflow.core.errors import GpuflowError
from gpuflow.plan import Plan, plan_of
from gpuflow.runs import Connection, client_of
from gpuflow.runs.airflow import AirflowClient
from gpuflow.runs.model import LogQuery, RunState, Started, Submission, Unreachable
from gpuflow.site import Site
from gpuflow.spec.loading import load
from gpuflow.targets import load_target
from gpuflow.targets.target import Request, compile_with

from .home import LONGEST, Home
from .services import Services
from .stand_in import StandIn, ended, running

PIPELINE = """\
apiVersion: gpuflow/v1
kind: Pipeline
name: sweep
defaults: {image: i, cpu: 1, memory: 1Gi, outputs_from: xcom}
params: {word: {type: string, default: "good"}}
steps:
  prepare: {command: [give, rows=3, greeting=hello], outputs: {rows: int, greeting: string}}
  train:
    needs: prepare
    for_each: {lr: ["0.1", "0.2"]}
    command: [give, {join: [score=, {item: lr}]}]
    outputs: {score: float}
    retry: {failures: 1, backoff: {start: 1s}}
  join: {needs: train, command: [{param: word}]}
exit:
  bye: {on: always, command: [good]}
"""
PLAYED_OUTPUTS = '''\
"""The container that hands over outputs is played too: what it would say stands on the pod."""
import json

from airflow.plugins_manager import AirflowPlugin

from gpuflow.airflow.step_pods import StepPods


class PlayedOutputs(AirflowPlugin):
    name = "played-outputs"


StepPods.extract_xcom = lambda self, pod, **_: json.loads((pod.metadata.annotations or {}).get("played", "null"))
'''


class PlayedPods(StandIn):
    """Pods that do what their command says: `good`, `give a=1`, `fail`, or `hold` until they are deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        """What each pod was to do, as they were made."""
        self.mended = False
        """`fail` succeeds from now on."""

    def _post(self, _: None, query: dict[str, str], body: dict[str, Any]) -> tuple[int, Any]:
        status, pod = super()._post(None, query, body)
        if status != 201 or query.get("dryRun"):
            return status, pod
        word, *values = next(each for each in pod["spec"]["containers"] if each["name"] == "main")["command"]
        self.words.append(word)
        name = body["metadata"]["name"]
        if word == "give":
            given = dict(each.split("=") for each in values)
            pod["metadata"].setdefault("annotations", {})["played"] = json.dumps(given)
        code = 3 if word == "fail" and not self.mended else 0
        self._left[name] = (
            [running()] if word == "hold" else [running(), deepcopy(ended(code, "Error" if code else "Completed"))]
        )
        return status, pod


@pytest.fixture(scope="module")
def server() -> Iterator[PlayedPods]:
    with PlayedPods() as server:
        yield server


@pytest.fixture(scope="module")
def airflow(server: PlayedPods, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    folder = tmp_path_factory.mktemp("airflow")
    connection = {"kube_config_path": str(server.kubeconfig(folder)), "in_cluster": False}
    home = Home(folder, Path(sys.executable).parent, connection)
    home.environment |= {
        "AIRFLOW__GPUFLOW__DEPLOYMENT": "tests",
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "2",
        "AIRFLOW__DAG_PROCESSOR__BUNDLE_REFRESH_CHECK_INTERVAL": "1",
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "2",
        "AIRFLOW__PLUGINS__LAZY_LOAD_PLUGINS": "False",
    }
    home.migrate()
    (folder / "plugins").mkdir()
    (folder / "plugins" / "played_outputs.py").write_text(PLAYED_OUTPUTS)
    with Services(home) as airflow:
        airflow.start("api-server", "scheduler", "triggerer", "dag-processor")
        yield airflow


@pytest.fixture
def client(airflow: Services, monkeypatch: pytest.MonkeyPatch) -> AirflowClient:
    monkeypatch.setenv("AIRFLOW__CORE__DAGS_FOLDER", str(airflow.home.dags))
    found = client_of("airflow", Connection(url=airflow.url))
    assert isinstance(found, AirflowClient)
    return found


def submission(folder: Path, name: str = "sweep", text: str = PIPELINE, **more: Any) -> Submission:
    file = folder / f"{name}.yaml"
    file.write_text(text.replace("name: sweep", f"name: {name}", 1))
    pipeline = load(file)
    plan = plan_of(pipeline, Site.load("nvidia"))
    request = Request(pipeline, plan.site, "ml", file.name, known=plan)
    compiled = compile_with(load_target("airflow"), request, allow_lossy=False)
    return Submission(plan, compiled, "ml", more.pop("params", {}), **more)


def until(client: AirflowClient, run: str, plan: Plan | None, holds: Callable[[RunState], bool]) -> RunState:
    end = time.monotonic() + LONGEST
    while time.monotonic() < end:
        try:
            state = client.state(run, plan)
        except Unreachable:
            state = None
        if state is not None and holds(state):
            return state
        time.sleep(1)
    raise AssertionError(f"waited in vain: {state and [(each.name, each.state, each.because) for each in state.steps]}")


def states(state: RunState) -> dict[str, tuple[str, int]]:
    return {each.name: (each.state, each.attempts) for each in state.steps}


def test_a_run_is_started_followed_and_shown(
    airflow: Services, client: AirflowClient, server: PlayedPods, tmp_path: Path
) -> None:
    asked = submission(tmp_path, name="sweep")
    with pytest.raises(GpuflowError, match='no DAG "sweep"'):
        client.submit(asked)
    asked = submission(tmp_path, apply=True)
    started = client.submit(Submission(**{**asked.__dict__, "name": "first"}))
    assert [each.code for each in started.findings] == ["GF948", "GF948"]
    assert client.submit(Submission(**{**asked.__dict__, "name": "first"})).is_new is False
    state = until(client, started.run, asked.plan, lambda state: state.is_over)
    assert (state.run, state.state) == ("sweep/first", "succeeded")
    assert states(state) == {
        "prepare": ("succeeded", 1), "train": ("succeeded", 2), "train@0": ("succeeded", 1),
        "train@1": ("succeeded", 1), "join": ("succeeded", 1), "bye": ("succeeded", 1),
    }  # fmt: skip
    found = {each.name: each for each in state.steps}
    assert found["prepare"].outputs == {"rows": "3", "greeting": "hello"}
    assert [found[f"train@{index}"].outputs for index in (0, 1)] == [{"score": "0.1"}, {"score": "0.2"}]
    assert client.state(started.run).steps == state.steps
    parts = list(client.logs(started.run, LogQuery("train@1")))
    assert (parts[0].title, "hello from the pod" in parts[0].text) == ("train@1, attempt 1", True)
