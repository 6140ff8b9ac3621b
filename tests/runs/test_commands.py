"""`gpuflow submit`, `status`, `stop`, `retry` and `logs` against an API server in memory; tests/cluster has a real one.

Tests gpuflow/runs/argo.py, gpuflow/runs/start.py, gpuflow/runs/model.py, gpuflow/cli/engine_runs.py,
gpuflow/cli/submit.py, gpuflow/cli/status.py, gpuflow/cli/stop.py and gpuflow/cli/retry.py.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

import gpuflow as library
from gpuflow.cli import engine_runs
from gpuflow.cluster import api_server
from gpuflow.cluster.api_server import Answer as Said
from gpuflow.core.errors import GpuflowError
from gpuflow.runs import argo, start, watch
from gpuflow.runtime.bundle import config_map_name
from gpuflow.targets.target import Artifact, Compiled
from tests.cli.commands import NIGHTLY, Gpuflow
from tests.conftest import ROOT
from tests.runs.played import CORE, WORKFLOWS, Played

COMPILED = (ROOT / "tests" / "targets" / "argo" / "golden" / "nightly.yaml").read_text(encoding="utf-8")
ON = ("--engine", "argo", "--namespace", "team-a")
SUBMIT = ("submit", NIGHTLY, *ON, "--no-check")


@pytest.fixture
def gpuflow(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Gpuflow:
    for variable in ("FORCE_COLOR", "NO_COLOR", "GPUFLOW_ARGO_URL"):
        monkeypatch.delenv(variable, raising=False)
    return Gpuflow(capsys)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Played:
    """The API server; what is compiled is the golden, for which no engine's SDK is needed here."""
    played = Played()
    monkeypatch.setattr(argo, "Reader", lambda *_: played)
    monkeypatch.setattr(argo, "EVERY", 0.0)
    monkeypatch.setattr(watch, "EVERY", 0.0)
    monkeypatch.setattr(start, "compile_with", lambda *_, **__: Compiled((Artifact("nightly.yaml", COMPILED),)))
    return played


def ends(server: Played, run: str, phase: str, nodes: dict[str, tuple[str, str, str]]) -> None:
    """Play the controller: the run has this phase, and by task a type, a phase and a message."""
    workflow = server.objects[f"{WORKFLOWS}/{run}"]
    found = {run: {"id": run, "name": run, "type": "DAG", "phase": phase, "children": list(nodes)}}
    for task, (kind, said, message) in nodes.items():
        node = {"id": task, "name": f"{run}.{task}", "type": kind, "phase": said, "message": message}
        found[task] = {**node, "boundaryID": run, "templateName": task}
    workflow["status"] = {"phase": phase, "nodes": found}


def test_one_run_is_started_with_its_parameters_and_its_address_is_shown(gpuflow: Gpuflow, server: Played) -> None:
    answer = gpuflow(*SUBMIT, "--param", "lr=0.5", "--name", "one", "--url", "https://argo.example/")
    assert answer.code == 0, answer.err
    assert "run one: https://argo.example/workflows/team-a/one" in answer.out
    assert "gpuflow status one --engine argo --namespace team-a --watch" in answer.out
    assert "GF947 not checked" in answer.err
    workflow = server.objects[f"{WORKFLOWS}/one"]
    assert workflow["kind"] == "Workflow" and workflow["metadata"]["labels"] == {"gpuflow.dev/pipeline": "nightly"}
    assert workflow["spec"]["arguments"]["parameters"][0] == {"name": "lr", "value": "0.5"}
    assert "schedules" not in workflow["spec"] and workflow["spec"]["onExit"] == "exit"


def test_the_same_name_twice_is_one_run(gpuflow: Gpuflow, server: Played) -> None:
    gpuflow(*SUBMIT, "--name", "one")
    again = gpuflow(*SUBMIT, "--name", "one")
    assert again.code == 0 and "GF946 run one was there already: nothing was started" in again.err
    assert [how for how, _ in server.asked].count("POST") == 1
    server.objects[f"{WORKFLOWS}/one"]["metadata"]["labels"]["gpuflow.dev/pipeline"] = "other"
    other = gpuflow(*SUBMIT, "--name", "one")
    assert other.code == 2 and "it is one of other" in other.err
    assert gpuflow(*SUBMIT, "--name", "x" * 64).code == 2


def test_without_a_name_two_runs_are_two(gpuflow: Gpuflow, server: Played) -> None:
    first, second = gpuflow(*SUBMIT, "--format", "json").data, gpuflow(*SUBMIT, "--format", "json").data
    assert first["run"] != second["run"] and first["state"] == "waiting" and first["engine"] == "argo"
    assert [each["name"] for each in first["steps"]] == [
        *("fetch", "tokenize", "train", "evaluate", "report", "deploy", "notify")
    ]


def test_a_parameter_must_have_a_value(gpuflow: Gpuflow, server: Played, tmp_path: Any) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(
        "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\nparams: {n: {type: int}}\n"
        "defaults: {image: i, cpu: 1, memory: 1Gi}\nsteps: {a: {command: [x, {param: n}]}}\n"
    )
    answer = gpuflow("submit", file, *ON, "--no-check")
    assert answer.code == 2 and "GF931" in answer.err and server.asked == []


def test_what_the_cluster_never_admits_is_not_started(
    gpuflow: Gpuflow, server: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_server, "Reader", lambda *_: server)
    server.lists_are_empty = True  # there are no nodes
    answer = gpuflow("submit", NIGHTLY, *ON)
    assert answer.code == 1 and "GF942 not started: namespace team-a will never admit it" in answer.err
    assert "GF506" in answer.err and server.objects == {}


def test_a_cluster_that_cannot_be_read_is_said(
    gpuflow: Gpuflow, server: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_server, "Reader", lambda *_: server)
    answer = gpuflow("submit", NIGHTLY, *ON, "--name", "one")
    assert answer.code == 0 and "GF947 not checked against the cluster: resourcequotas cannot be listed" in answer.err


def test_the_supervisor_is_created_when_somebody_says_so(
    gpuflow: Gpuflow, server: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = config_map_name()
    text = COMPILED + f"# {name}\n"
    monkeypatch.setattr(start, "compile_with", lambda *_, **__: Compiled((Artifact("nightly.yaml", text),)))
    refused = gpuflow(*SUBMIT, "--name", "one")
    assert refused.code == 2 and "GF944" in refused.err and server.objects == {}
    server.refused["POST", "workflows"] = Said(422, {}, "422", "spec.templates: bad")
    assert "GF945" in gpuflow(*SUBMIT, "--name", "one", "--apply").err
    assert server.objects == {}, "what was created for a run that was refused is gone again"
    server.refused.clear()
    applied = gpuflow(*SUBMIT, "--name", "one", "--apply")
    assert applied.code == 0 and f"GF948 created ConfigMap {name}" in applied.err
    assert set(server.objects) == {f"{CORE}/configmaps/{name}", f"{WORKFLOWS}/one"}


@pytest.mark.parametrize(
    ("status", "sentence", "code"),
    [(401, "", "GF411"), (403, "workflows is forbidden", "GF945"), (404, "not found", "GF945"), (503, "", "GF940")],
)
def test_each_refusal_is_one_message(gpuflow: Gpuflow, server: Played, status: int, sentence: str, code: str) -> None:
    server.refused["POST", "workflows"] = Said(status, {}, f"{status} Refused", sentence)
    answer = gpuflow(*SUBMIT, "--name", "one")
    assert answer.code == 3 and f"{code} " in answer.err and sentence in answer.err and server.objects == {}


def test_an_answer_that_got_lost_is_no_second_run(
    gpuflow: Gpuflow, server: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = Played.send

    def loses(self: Played, method: str, path: str, body: Any = None) -> Said:
        send(self, method, path, body)
        self.silent = 1
        return send(self, method, path, body)

    monkeypatch.setattr(Played, "send", loses)
    answer = gpuflow(*SUBMIT, "--name", "one")
    assert answer.code == 0 and "run one" in answer.out, answer.err


def test_a_run_is_shown_followed_and_ends_the_command_as_it_ended(gpuflow: Gpuflow, server: Played) -> None:
    gpuflow(*SUBMIT, "--name", "one")
    shown = gpuflow("status", "one", *ON)
    assert shown.code == 0 and "run one of nightly on argo: waiting: Argo has not begun it" in shown.out
    ends(server, "one", "Failed", {"fetch": ("Pod", "Failed", "main: Error (exit code 3)")})
    followed = gpuflow("status", "one", *ON, "--watch")
    assert followed.code == 1
    assert "x fetch  failed: " in followed.out and "- train  not run" in followed.out
    assert "run one failed" in followed.out
    document = gpuflow("status", "one", *ON, "--format", "json")
    assert document.code == 1 and document.data["steps"][0]["attempts"] == 1
    ends(server, "one", "Succeeded", {"fetch": ("Pod", "Succeeded", "")})
    assert gpuflow("status", "one", *ON, "--watch").code == 0
    assert gpuflow("status", "other", *ON).code == 2


def test_an_engine_that_is_silent_is_asked_again_and_given_up_after_a_while(gpuflow: Gpuflow, server: Played) -> None:
    gpuflow(*SUBMIT, "--name", "one")
    ends(server, "one", "Succeeded", {})
    server.silent = 3
    answer = gpuflow("status", "one", *ON, "--watch")
    assert answer.code == 0 and answer.out.count("the cluster does not answer") == 1
    assert "argo answers again" in answer.out
    server.silent = 1_000_000
    given_up = gpuflow("status", "one", *ON, "--watch", "--patience", "0")
    assert given_up.code == 3 and "GF940 argo has not answered" in given_up.err
    once = gpuflow("status", "one", *ON)
    assert once.code == 3 and "GF940 the cluster does not answer" in once.err


def test_who_leaves_is_told_how_to_come_back(gpuflow: Gpuflow, server: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    gpuflow(*SUBMIT, "--name", "one")

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(engine_runs, "follow", interrupted)
    answer = gpuflow("status", "one", *ON, "--watch")
    assert answer.code == 130
    for word in ("status", "stop"):
        assert f"gpuflow {word} one --engine argo --namespace team-a" in answer.out
    assert "shutdown" not in server.objects[f"{WORKFLOWS}/one"]["spec"]


def test_a_stop_is_one_that_runs_exit_steps(gpuflow: Gpuflow, server: Played) -> None:
    gpuflow(*SUBMIT, "--name", "one")
    assert gpuflow("stop", "one", *ON).code == 0
    workflow = server.objects[f"{WORKFLOWS}/one"]
    assert workflow["spec"]["activeDeadlineSeconds"] == 0
    ends(server, "one", "Failed", {"fetch": ("Pod", "Failed", "Step exceeded its deadline")})
    answer = gpuflow("status", "one", *ON, "--format", "json")
    assert answer.code == 75 and answer.data["state"] == "interrupted"
    assert answer.data["steps"][0]["state"] == "interrupted" and answer.data["steps"][0]["because"]
    assert gpuflow("stop", "one", *ON).code == 0 and [how for how, _ in server.asked].count("PATCH") == 1
    assert gpuflow("retry", "one", *ON).code == 0
    assert server.objects[f"{WORKFLOWS}/one"]["spec"]["activeDeadlineSeconds"] is None


def test_a_run_of_a_template_in_the_cluster_is_stopped_as_argo_does_it(gpuflow: Gpuflow, server: Played) -> None:
    gpuflow(*SUBMIT, "--name", "one")
    server.objects[f"{WORKFLOWS}/one"]["spec"]["workflowTemplateRef"] = {"name": "nightly"}
    assert gpuflow("stop", "one", *ON).code == 0
    assert server.objects[f"{WORKFLOWS}/one"]["spec"]["shutdown"] == "Stop"


def test_a_retry_begins_what_failed_anew_and_deletes_its_pods_first(gpuflow: Gpuflow, server: Played) -> None:
    gpuflow(*SUBMIT, "--name", "one")
    assert "GF943 run one has not ended" in gpuflow("retry", "one", *ON).err
    bad = {"fetch": ("Pod", "Succeeded", ""), "tokenize": ("Pod", "Failed", "main: Error (exit code 1)")}
    ends(server, "one", "Succeeded", {"fetch": bad["fetch"]})
    assert "GF943 nothing of run one has failed" in gpuflow("retry", "one", *ON).err
    ends(server, "one", "Failed", bad)
    pod = argo.Steps(server.objects[f"{WORKFLOWS}/one"]).states()[1].pods[0]
    server.objects[f"{CORE}/pods/{pod}"] = {"metadata": {"name": pod}}
    answer = gpuflow("retry", "one", *ON)
    assert answer.code == 0, answer.err
    assert f"{CORE}/pods/{pod}" not in server.objects
    status = server.objects[f"{WORKFLOWS}/one"]["status"]
    assert status["phase"] == "" and set(status["nodes"]) == {"one", "fetch"}
    assert status["nodes"]["one"]["phase"] == "Running" and status["nodes"]["one"]["children"] == ["fetch"]
    ends(server, "one", "Failed", bad)
    server.refused["PUT", "one"] = Said(409, {}, "409 Conflict")
    assert gpuflow("retry", "one", *ON).code == 3


def test_logs_come_by_attempt_and_by_rank(gpuflow: Gpuflow, server: Played) -> None:
    gpuflow(*SUBMIT, "--name", "one")
    ends(server, "one", "Succeeded", {"fetch": ("Pod", "Succeeded", "")})
    pod = argo.Steps(server.objects[f"{WORKFLOWS}/one"]).states()[0].pods[0]
    server.logs[pod] = "hello\x1b[31m\nworld"
    answer = gpuflow("logs", "one", "fetch", *ON)
    assert answer.code == 0 and answer.out == "== fetch, attempt 1\nhello\\x1b[31m\nworld", answer.err
    assert gpuflow("logs", "one", "fetch", *ON, "--attempt", "2").code == 2
    assert "GF927" in gpuflow("logs", "one", "fetsch", *ON).err
    assert gpuflow("logs", "fetch", *ON).code == 2
    labels = {"gpuflow.dev/run": "one", "batch.kubernetes.io/job-completion-index": "1"}
    metadata = {"name": "fetch-w1", "labels": labels, "annotations": {"gpuflow.dev/attempt": "1"}}
    server.objects[f"{CORE}/pods/fetch-w1"] = {"metadata": metadata}
    server.logs["fetch-w1"] = "of a rank\n"
    assert gpuflow("logs", "one", "fetch", *ON, "--rank", "1").out == "== fetch, attempt 1, rank 1\nof a rank\n"
    assert gpuflow("logs", "one", "fetch", *ON, "--rank", "0").code == 2


def test_a_log_is_followed_until_its_step_has_ended(
    gpuflow: Gpuflow, server: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpuflow(*SUBMIT, "--name", "one")
    ends(server, "one", "Running", {"fetch": ("Pod", "Running", "")})
    pod = argo.Steps(server.objects[f"{WORKFLOWS}/one"]).states()[0].pods[0]

    def later(_: float) -> None:
        server.logs[pod] = "said later\n"
        ends(server, "one", "Running", {"fetch": ("Pod", "Succeeded", "")})

    monkeypatch.setattr(argo.time, "sleep", later)
    assert gpuflow("logs", "one", "fetch", *ON, "--follow").out == "== fetch, attempt 1\nsaid later\n"


def test_python_gives_the_same_fields(server: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUFLOW_ARGO_URL", "https://argo.example")
    state = library.submit(NIGHTLY, "argo", namespace="team-a", params={"lr": 0.5}, name="one", check=False)
    assert (state.run, state.state, state.engine) == ("one", "waiting", "argo")
    assert state.url == "https://argo.example/workflows/team-a/one"
    assert [each.code for each in state.findings][-1] == "GF947"
    assert json.loads(json.dumps(state.document()))["steps"][0] == {
        "name": "fetch",
        "state": "waiting",
        "attempts": 0,
        "outputs": {},
    }
    with pytest.raises(GpuflowError, match="GF302"):
        library.submit(NIGHTLY, "argos", namespace="team-a")
    with pytest.raises(GpuflowError, match="GF904"):
        library.submit(NIGHTLY, "argo")
