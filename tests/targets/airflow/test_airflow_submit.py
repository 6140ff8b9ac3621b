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
from pathlib import Path
from typing import Any

import pytest

from gpuflow.core.errors import GpuflowError
from gpuflow.plan import Plan, plan_of
from gpuflow.runs import Connection, client_of
from gpuflow.runs.airflow import AirflowClient
from gpuflow.runs.model import LogQuery, RunState, Submission, Unreachable
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
    """Pods that do what their command says: `good`, `give a=1`, `fail`, or `hold` until they are let go or deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        """What each pod was to do, as they were made."""
        self.mended = False
        """`fail` succeeds from now on."""
        self.holding = True
        """`hold` holds its pod."""

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
        self._left[name] = [running()] if word == "hold" else [running(), ended(code, "Error" if code else "Completed")]
        return status, pod

    def _advance(self, name: str) -> None:
        super()._advance(name)
        is_held = name in self.pods and "hold" in self.pods[name]["spec"]["containers"][0]["command"]
        if is_held and not self.holding:
            self.pods[name]["status"] |= ended(0)["status"]


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


def submission(
    folder: Path, pipeline: str = "sweep", text: str = PIPELINE, *, apply: bool = False, name: str | None = None
) -> Submission:
    file = folder / f"{pipeline}.yaml"
    file.write_text(text.replace("name: sweep", f"name: {pipeline}", 1))
    plan = plan_of(load(file), Site.load("nvidia"))
    request = Request(plan.pipeline, plan.site, "ml", file.name, known=plan)
    compiled = compile_with(load_target("airflow"), request, allow_lossy=False)
    return Submission(plan, compiled, "ml", {}, name, apply)


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


def started(client: AirflowClient, folder: Path, name: str, text: str) -> tuple[str, Plan]:
    """A run of a pipeline whose DAG is written, read and unpaused first."""
    asked = submission(folder, name, text, apply=True)
    return client.submit(asked).run, asked.plan


def test_a_run_is_started_followed_and_shown(client: AirflowClient, tmp_path: Path) -> None:
    with pytest.raises(GpuflowError, match='no DAG "sweep"'):
        client.submit(submission(tmp_path))
    first = client.submit(submission(tmp_path, apply=True, name="first"))
    assert [each.code for each in first.findings] == ["GF958", "GF958"]
    assert client.submit(submission(tmp_path, apply=True, name="first")).is_new is False
    plan = submission(tmp_path).plan
    state = until(client, first.run, plan, lambda state: state.is_over)
    assert (state.run, state.state) == ("sweep/first", "succeeded"), states(state)
    assert states(state) == {
        "prepare": ("succeeded", 1),
        "train": ("succeeded", 2),
        "train@0": ("succeeded", 1),
        "train@1": ("succeeded", 1),
        "join": ("succeeded", 1),
        "bye": ("succeeded", 1),
    }
    found = {each.name: each for each in state.steps}
    assert found["prepare"].outputs == {"rows": "3", "greeting": "hello"}
    assert [found[f"train@{index}"].outputs for index in (0, 1)] == [{"score": "0.1"}, {"score": "0.2"}]
    assert client.state(first.run).steps == state.steps
    (part,) = client.logs(first.run, LogQuery("train@1"))
    assert (part.title, part.text) == ("train@1, attempt 1", "hello from the pod\n")
    edited = submission(tmp_path, text=PIPELINE.replace("greeting=hello", "greeting=hi"))
    with pytest.raises(GpuflowError, match="is not that of this source"):
        client.submit(edited)


def test_a_run_that_failed_is_retried_from_what_failed(
    client: AirflowClient, server: PlayedPods, tmp_path: Path
) -> None:
    server.mended = False
    run, plan = started(client, tmp_path, "breaks", PIPELINE.replace("[give, {join: [score=, {item: lr}]}]", "[fail]")
                         .replace("    outputs: {score: float}\n", ""))  # fmt: skip
    state = until(client, run, plan, lambda state: state.is_over)
    assert state.state == "failed"
    found = states(state)
    assert found["train@0"] == found["train@1"] == ("failed", 2)
    assert (found["join"], found["prepare"], found["bye"]) == (("not run", 0), ("succeeded", 1), ("succeeded", 1))
    because = {each.name: each.because for each in state.steps}
    assert "exit code 3" in because["train@0"] and "retry" in because["train@0"]
    assert [part.title for part in client.logs(run, LogQuery("train@0"))] == [
        "train@0, attempt 1",
        "train@0, attempt 2",
    ]

    server.mended, before = True, len(server.words)
    assert client.retry(run).run == run
    state = until(client, run, plan, lambda state: state.is_over)
    assert state.state == "succeeded"
    assert sorted(server.words[before:]) == ["fail", "fail", "good", "good"]
    with pytest.raises(GpuflowError, match="nothing is to be retried"):
        client.retry(run)


def test_a_run_that_was_stopped_ends_its_pods_and_can_be_retried(
    client: AirflowClient, server: PlayedPods, tmp_path: Path
) -> None:
    text = PIPELINE.replace("[{param: word}]", "[hold]").replace(
        "[good]}", "[good]}\n  later: {on: success, command: [good]}"
    )
    server.holding = True
    run, plan = started(client, tmp_path, "holds", text)

    def is_held(state: RunState) -> bool:
        return states(state)["join"][0] == "running" and any("holds-join" in name for name in server.pods)

    state = until(client, run, plan, is_held)
    (held,) = [name for name in server.pods if "holds-join" in name]
    assert states(state)["train"] == ("succeeded", 2)

    stopped = client.stop(run)
    assert stopped.state == "interrupted"
    assert stopped.exit_code == 75
    found = states(stopped)
    assert found["join"] == ("interrupted", 1)
    assert found["bye"] == ("not run", 0)
    assert found["train@0"] == ("succeeded", 1)
    end = time.monotonic() + LONGEST
    while held in server.pods and time.monotonic() < end:
        time.sleep(1)
    assert held not in server.pods

    client.retry(run)
    until(client, run, plan, is_held)
    assert client.stop(run).state == "interrupted"


def test_a_server_that_restarts_is_waited_for(
    airflow: Services, client: AirflowClient, server: PlayedPods, tmp_path: Path
) -> None:
    run, plan = started(client, tmp_path, "restarts", PIPELINE.replace("[{param: word}]", "[hold]"))
    path = f"/dags/restarts/dagRuns/{run.partition('/')[2]}/taskInstances/join"
    airflow.until(lambda: airflow.ask("GET", path)["state"] == "deferred", "join to wait for its pod")
    (api,) = [each for each in airflow._running if "api-server" in each.args]
    airflow._running.remove(api)
    os.killpg(api.pid, signal.SIGKILL)
    api.wait()
    with pytest.raises(Unreachable):
        client.state(run, plan)
    airflow.start("api-server")
    server.holding = False
    state = until(client, run, plan, lambda state: state.is_over)
    assert state.state == "succeeded", states(state)


def test_a_dag_that_is_paused_or_cannot_be_imported_is_said(
    airflow: Services, client: AirflowClient, tmp_path: Path
) -> None:
    run, plan = started(client, tmp_path, "paused", PIPELINE)
    until(client, run, plan, lambda state: state.is_over)
    airflow.ask("PATCH", "/dags/paused?update_mask=is_paused", {"is_paused": True})
    with pytest.raises(GpuflowError, match='the DAG "paused" is paused'):
        client.submit(submission(tmp_path, "paused"))
    broken = submission(tmp_path, "broken")
    (airflow.home.dags / "broken.py").write_text(f"# dag airflow\n{broken.compiled.text}\nimport no_such_module\n")
    airflow.until(lambda: bool(airflow.ask("GET", "/importErrors")["import_errors"]), "an import error")
    with pytest.raises(GpuflowError, match=r"cannot import broken\.py: ModuleNotFoundError: .*no_such_module"):
        client.submit(broken)
    # What stands in the folder is a compiled file, so --apply may put the right one there.
    mended = client.submit(submission(tmp_path, "broken", apply=True))
    assert until(client, mended.run, broken.plan, lambda state: state.is_over).state == "succeeded"
