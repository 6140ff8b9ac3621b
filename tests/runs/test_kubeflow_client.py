"""Runs on Kubeflow: what is asked of KFP, what its answers mean, and a sentence for each way in which it may fail.

The answers in `recorded/` are those of a real API server of KFP 2.17: its compiler made the workflows, and their nodes
were played, named as Argo names them, and reported to it. The small server here answers with them, and fails as a KFP
or a login before it may fail. `tests/cluster/test_kubeflow_runs.py` has whole runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from gpuflow.cluster.api_server import Answer
from gpuflow.core.errors import EnvironmentFailure, GpuflowError
from gpuflow.plan import plan_of
from gpuflow.runs import Connection, client_of, kubeflow
from gpuflow.runs.kubeflow import Api, KubeflowClient
from gpuflow.runs.model import LogQuery, RunClient, Started, Submission, Unreachable
from gpuflow.site import Site
from gpuflow.spec.loading import load
from gpuflow.targets.kubeflow import target
from gpuflow.targets.target import Request, compile_with
from tests.runs.fake_kfp import FakeKfp, Question, Said, refused, said, serving

RUN = "7d3a4c5e-0000-4000-8000-000000000001"
V2 = "/apis/v2beta1"
PIPELINE = """
apiVersion: gpuflow/v1
kind: Pipeline
name: nightly
params:
  lr: {type: float, default: 0.5}
  rows: {type: int, default: 3}
  tags: {type: json, default: [a]}
defaults: {image: python:3.13, cpu: 1, memory: 1Gi}
steps:
  train: {command: [python3, train.py, {param: lr}, {param: rows}], service_account: trainer}
"""


@pytest.fixture(autouse=True)
def nothing_else_says_where_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (
        "GPUFLOW_KUBEFLOW_URL",
        "KF_PIPELINES_ENDPOINT",
        "KF_PIPELINES_UI_ENDPOINT",
        "KUBERNETES_SERVICE_HOST",
    ):
        monkeypatch.delenv(name, raising=False)
    for name in ("GPUFLOW_KUBEFLOW_TOKEN", "KF_PIPELINES_SA_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def client(url: str) -> RunClient:
    return client_of("kubeflow", Connection(url=url))


@pytest.fixture
def submission(tmp_path: Path) -> Submission:
    return submission_of(tmp_path)


def submission_of(folder: Path, **more: Any) -> Submission:
    source = folder / "nightly.yaml"
    source.write_text(PIPELINE)
    pipeline, site = load(str(source)), Site.load("nvidia")
    compiled = compile_with(target, Request(pipeline, site, "team-a", "nightly.yaml"), allow_lossy=False)
    return Submission(plan_of(pipeline, site), compiled, "team-a", **{"params": {}, **more})


class Kfp:
    """A KFP of one's own: experiments and runs in lists."""

    def __init__(self, *, experiments: tuple[str, ...] = ("nightly",), users: bool = False) -> None:
        self.experiments = [{"experiment_id": f"e-{name}", "display_name": name} for name in experiments]
        self.runs: list[dict[str, Any]] = []
        self.users = users
        self.instead: dict[tuple[str, str], Said] = {}

    def __call__(self, question: Question) -> Said:
        if found := self.instead.get((question.method, question.path)):
            return found
        kind = question.path.rpartition("/")[2]
        listed: list[dict[str, Any]] | None = {"experiments": self.experiments, "runs": self.runs}.get(kind)
        if question.path == f"{V2}/healthz":
            return said({"multi_user": self.users})
        if listed is not None and question.method == "GET":
            (asked,) = json.loads(unquote(question.query["filter"]))["predicates"]
            assert (asked["operation"], asked["key"]) == ("EQUALS", "display_name")
            wanted = asked["string_value"].lower()  # as MySQL compares
            return said({kind: [each for each in listed if each["display_name"].lower() == wanted]})
        if listed is not None and question.method == "POST":
            ids = {"run_id": RUN} if kind == "runs" else {"experiment_id": f"e-{question.body['display_name']}"}
            listed.append({**question.body, **ids})
            return said(listed[-1])
        if question.method == "GET":
            return next((said(each) for each in self.runs if each["run_id"] == kind), refused(404, "Run not found"))
        return said({})


# -- where it is, and who asks


def test_without_an_address_the_message_says_how_to_give_one() -> None:
    with pytest.raises(GpuflowError) as failure:
        Api()
    (finding,) = failure.value.findings
    assert finding.code == "GF960"
    assert "GPUFLOW_KUBEFLOW_URL" in str(finding.hint)


def test_an_address_with_a_password_is_refused_and_not_repeated() -> None:
    with pytest.raises(GpuflowError) as failure:
        Api("https://me:secret@kfp.example.com")
    assert failure.value.findings[0].code == "GF960"
    assert "secret" not in str(failure.value)


def test_the_environment_names_the_address_as_for_kfp_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def address(url: str | None = None, site_url: str | None = None) -> str:
        found = client_of("kubeflow", Connection(url=url, site_url=site_url))
        assert isinstance(found, KubeflowClient)
        return found.api.url

    assert address(site_url="https://site.example.com") == "https://site.example.com"
    monkeypatch.setenv("KF_PIPELINES_ENDPOINT", "kfp.example.com/pipeline/")
    assert address(site_url="https://site.example.com") == "https://kfp.example.com/pipeline"
    monkeypatch.setenv("GPUFLOW_KUBEFLOW_URL", "http://localhost:8888")
    assert address() == "http://localhost:8888"
    assert address(url="https://here.example.com") == "https://here.example.com"


def test_in_a_cluster_it_is_the_service_of_that_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert Api().url == "http://ml-pipeline.kubeflow.svc.cluster.local:8888"


def test_a_run_has_a_page_only_where_pages_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Api("http://localhost:8888").pages == ""
    assert Api("https://kubeflow.example.com/pipeline").pages == "https://kubeflow.example.com/pipeline"
    monkeypatch.setenv("KF_PIPELINES_UI_ENDPOINT", "https://pages.example.com")
    assert Api("http://localhost:8888").pages == "https://pages.example.com"


def test_a_token_comes_from_the_environment_or_from_a_file_that_is_read_each_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    monkeypatch.setenv("KF_PIPELINES_SA_TOKEN_PATH", str(file))
    with serving(Kfp()) as kfp:
        api = Api(kfp.url)
        for token in ("first", "second"):
            file.write_text(f"{token}\n")
            api.scope(None)
        monkeypatch.setenv("GPUFLOW_KUBEFLOW_TOKEN", "mine")
        api.scope(None)
    assert [each.headers["Authorization"] for each in kfp.asked] == ["Bearer first", "Bearer second", "Bearer mine"]


def test_what_kfp_keeps_for_its_client_is_used(tmp_path: Path) -> None:
    folder = tmp_path / ".config" / "kfp"
    folder.mkdir(parents=True)
    kept = {"namespace": "team-b", "client_authentication_cookie": "authservice_session=x"}
    (folder / "context.json").write_text(json.dumps(kept))
    with serving(Kfp(users=True)) as kfp:
        assert Api(kfp.url).scope(None) == {"namespace": "team-b"}
        assert Api(kfp.url).scope("team-c") == {"namespace": "team-c"}
    assert {each.headers["Cookie"] for each in kfp.asked} == {"authservice_session=x"}


@pytest.mark.parametrize("text", ["two\nlines", "caf\u00e9", ""])
def test_a_token_that_cannot_be_sent_is_refused_and_not_repeated(
    text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(text)
    monkeypatch.setenv("KF_PIPELINES_SA_TOKEN_PATH", str(tmp_path / "token"))
    with pytest.raises(EnvironmentFailure) as failure:
        Api("http://127.0.0.1:9").scope(None)
    assert failure.value.findings[0].code == "GF962"
    assert not text or text not in str(failure.value)


@pytest.mark.parametrize("text", ["[1]", "no JSON", "null"])
def test_settings_of_kfp_that_are_none_are_left_alone(text: str, tmp_path: Path) -> None:
    folder = tmp_path / ".config" / "kfp"
    folder.mkdir(parents=True)
    (folder / "context.json").write_text(text)
    assert Api("https://kfp.example.com").namespace is None


# -- how it may fail

LOGIN_PAGE = Said(200, b"<!doctype html><title>Log in to Dex</title>", "text/html; charset=utf-8")


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        (Said(302, b"", "text/plain", "https://dex.example.com/auth?state=secret"), "GF961", "dex.example.com/auth"),
        (LOGIN_PAGE, "GF961", "asks for a login"),
        (Said(200, b"hello", "text/plain"), "GF961", "no JSON"),
        (refused(401, "token has expired"), "GF962", "token has expired"),
        (Said(401, b"<html>Unauthorized</html>", "text/html"), "GF962", "does not accept the token"),
        (refused(403, "User 'me' is not authorized"), "GF963", "User 'me' is not authorized"),
        (Said(403, b"RBAC: access denied", "text/plain"), "GF963", "does not allow"),
        (refused(404, "Not Found"), "GF961", "no API v2beta1"),
        (refused(500, "InternalServerError: database"), "GF955", "InternalServerError: database"),
    ],
    ids=["redirect", "page", "text", "401", "401 page", "403", "istio", "v1 only", "500"],
)
def test_each_failure_has_one_sentence_and_a_way_out(
    answer: Said, code: str, words: str, submission: Submission
) -> None:
    with serving(lambda question: answer) as kfp, pytest.raises(GpuflowError) as failure:
        client(kfp.url).submit(submission)
    (finding,) = failure.value.findings
    assert finding.code == code
    assert words in finding.message
    assert "secret" not in str(failure.value)
    assert len(kfp.asked) == 1


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_server_that_has_no_time_is_asked_again_by_who_watches(status: int) -> None:
    busy = Said(status, b"<html>busy</html>", "text/html")
    with serving(lambda question: busy) as kfp, pytest.raises(Unreachable, match=f"HTTP {status}"):
        client(kfp.url).state(RUN)


def test_a_server_that_is_gone_is_unreachable_and_not_an_error() -> None:
    with serving(Kfp()) as kfp:
        url = kfp.url
    with pytest.raises(Unreachable, match="refused"):
        client(url).state(RUN)


def test_a_token_is_sent_to_no_other_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUFLOW_KUBEFLOW_TOKEN", "mine")
    with serving(Kfp()) as other:
        away = Said(307, b"", "text/plain", f"{other.url}/")
        with serving(lambda question: away) as kfp, pytest.raises(EnvironmentFailure):
            client(kfp.url).state(RUN)
    assert other.asked == []


# -- start


def submit(answering: Kfp, submission: Submission) -> tuple[Started, FakeKfp]:
    with serving(answering) as kfp:
        return client(kfp.url).submit(submission), kfp


def test_a_run_is_what_kfps_own_client_would_send(tmp_path: Path) -> None:
    kfp = Kfp()
    started, _ = submit(kfp, submission_of(tmp_path, params={"lr": 0.25, "rows": 7, "tags": None}))
    assert started.run == RUN
    assert started.is_new
    (run,) = kfp.runs
    assert run["experiment_id"] == "e-nightly"
    assert run["display_name"].startswith("nightly 20")
    assert run["runtime_config"] == {"parameters": {"lr": 0.25, "rows": 7}}
    assert run["service_account"] == "trainer"
    assert run["pipeline_spec"]["pipeline_spec"]["pipelineInfo"] == {"name": "nightly"}
    assert "platforms" in run["pipeline_spec"]["platform_spec"]


def test_the_same_name_twice_is_one_run(tmp_path: Path) -> None:
    kfp = Kfp()
    submission = submission_of(tmp_path, name="tuesday")
    first, _ = submit(kfp, submission)
    second, asked = submit(kfp, submission)
    assert (first.run, first.is_new, second.run, second.is_new) == (RUN, True, RUN, False)
    assert [finding.code for finding in second.findings] == ["GF956"]
    assert asked.paths("POST") == []


@pytest.mark.parametrize("name", ["a 100%25+1", "été & co", "Tuesday"])
def test_any_name_is_found_again_as_it_was_written(name: str, tmp_path: Path) -> None:
    kfp = Kfp()
    kfp.runs.append({"display_name": name.swapcase(), "run_id": "other"})
    first, _ = submit(kfp, submission_of(tmp_path, name=name))
    second, _ = submit(kfp, submission_of(tmp_path, name=name))
    assert (first.run, first.is_new, second.run, second.is_new) == (RUN, True, RUN, False)


def test_a_name_that_only_an_archived_run_has_is_free(tmp_path: Path) -> None:
    kfp = Kfp()
    kfp.runs.append({"display_name": "tuesday", "run_id": "old", "storage_state": "ARCHIVED"})
    started, _ = submit(kfp, submission_of(tmp_path, name="tuesday"))
    assert (started.run, started.is_new) == (RUN, True)


def test_an_experiment_that_lacks_is_created_only_when_told(tmp_path: Path) -> None:
    kfp = Kfp(experiments=())
    with pytest.raises(GpuflowError) as failure:
        submit(kfp, submission_of(tmp_path))
    assert failure.value.findings[0].code == "GF954"
    assert (kfp.experiments, kfp.runs) == ([], [])
    started, _ = submit(kfp, submission_of(tmp_path, apply=True))
    assert [each["display_name"] for each in kfp.experiments] == ["nightly"]
    assert [finding.code for finding in started.findings] == ["GF958"]


def test_an_experiment_is_removed_when_its_run_cannot_start(tmp_path: Path) -> None:
    answering = Kfp(experiments=())
    answering.instead["POST", f"{V2}/runs"] = refused(400, "Invalid input error: unknown parameter")
    with serving(answering) as kfp, pytest.raises(GpuflowError) as failure:
        client(kfp.url).submit(submission_of(tmp_path, apply=True))
    assert "unknown parameter" in failure.value.findings[0].message
    assert kfp.paths("DELETE") == [f"{V2}/experiments/e-nightly"]


def test_without_an_answer_to_the_start_nobody_says_that_it_failed(tmp_path: Path) -> None:
    answering = Kfp()
    answering.instead["POST", f"{V2}/runs"] = Said(503, b"")
    with serving(answering) as kfp, pytest.raises(EnvironmentFailure) as failure:
        client(kfp.url).submit(submission_of(tmp_path, name="tuesday"))
    (finding,) = failure.value.findings
    assert (finding.code, "--name" in str(finding.hint)) == ("GF966", True)
    assert kfp.paths("DELETE") == []


def test_where_kfp_has_users_everything_is_in_a_namespace(tmp_path: Path) -> None:
    kfp = Kfp(experiments=(), users=True)
    _, asked = submit(kfp, submission_of(tmp_path, apply=True))
    assert kfp.experiments[0]["namespace"] == "team-a"
    assert next(each for each in asked.asked if each.path.endswith("/experiments")).query["namespace"] == "team-a"


def test_where_kfp_has_users_a_namespace_must_be_named() -> None:
    with serving(Kfp(users=True)) as kfp, pytest.raises(GpuflowError) as failure:
        client(kfp.url).state("tuesday")
    assert failure.value.findings[0].code == "GF904"


# -- look


def with_run(state: str, nodes: dict[str, str] | None = None, deadline: int | None = None, **more: Any) -> Kfp:
    """A KFP with one run, whose workflow has nodes with these phases; without nodes it has not begun."""
    found = Kfp()
    spec = {
        "pipelineInfo": {"name": "nightly"},
        "components": {"comp-train": {"executorLabel": "exec-train"}},
        "root": {"dag": {"tasks": {"train": {"componentRef": {"name": "comp-train"}}}}},
    }
    run = {"run_id": RUN, "display_name": "tuesday", "state": state, "pipeline_spec": {"pipeline_spec": spec}}
    found.runs.append({**run, **more})
    manifest = ""
    if nodes is not None:
        made = [
            {"id": f"x-{number}", "name": name, "type": "Pod" if name.endswith("executor") else "DAG", "phase": phase}
            for number, (name, phase) in enumerate(nodes.items())
        ]
        status = {"nodes": {node["id"]: node for node in made}}
        of_argo = {} if deadline is None else {"activeDeadlineSeconds": deadline}
        metadata = {"name": "nightly-x", "namespace": "team-a"}
        manifest = json.dumps({"metadata": metadata, "spec": of_argo, "status": status})
    runtime = {"pipeline_runtime": {"workflow_manifest": manifest}} if nodes is not None else {"run": {}}
    found.instead["GET", f"/apis/v1beta1/runs/{RUN}"] = said(runtime)
    return found


TRAINED = {"nightly-x.root.train": "Succeeded", "nightly-x.root.train.executor": "Succeeded"}


@pytest.mark.parametrize("name", [RUN, "tuesday"])
def test_a_run_is_found_by_its_id_and_by_its_name(name: str) -> None:
    with serving(with_run("SUCCEEDED", TRAINED)) as kfp:
        state = client(kfp.url).state(name)
    assert (state.run, state.pipeline, state.state, state.exit_code) == (RUN, "nightly", "succeeded", 0)
    assert state.url == f"{kfp.url}/#/runs/details/{RUN}"
    assert [(each.name, each.state, each.attempts) for each in state.steps] == [("train", "succeeded", 1)]


@pytest.mark.parametrize(
    ("said_by_kfp", "state", "code"),
    [
        ("RUNTIME_STATE_UNSPECIFIED", "waiting", 0),
        ("PENDING", "waiting", 0),
        ("RUNNING", "running", 0),
        ("PAUSED", "running", 0),
        ("CANCELING", "running", 0),
        ("SUCCEEDED", "succeeded", 0),
        ("FAILED", "failed", 1),
        ("CANCELED", "interrupted", 75),
    ],
)
def test_each_state_of_kfp_has_a_word_and_an_exit_code(said_by_kfp: str, state: str, code: int) -> None:
    with serving(with_run(said_by_kfp)) as kfp:
        found = client(kfp.url).state(RUN)
    assert (found.state, found.exit_code) == (state, code)


@pytest.mark.parametrize(("deadline", "state"), [(0, "interrupted"), (3600, "failed"), (None, "failed")])
def test_a_run_that_was_terminated_is_interrupted_though_kfp_says_failed(deadline: int | None, state: str) -> None:
    with serving(with_run("FAILED", {"nightly-x.root.train": "Failed"}, deadline)) as kfp:
        found = client(kfp.url).state(RUN)
    assert (found.state, found.steps[0].state) == (state, state)


RECORDED = Path(__file__).parent / "recorded"
SEEN = {
    **dict.fromkeys(("prep", "report", "last", "tell", "train@0", "train@1", "tune.search"), ("succeeded", 1)),
    **dict.fromkeys(("deploy", "after", "alarm"), ("skipped", 0)),
    "train": ("succeeded", 2),
    "tune": ("succeeded", 0),
}


@pytest.mark.parametrize(
    ("name", "state", "different"),
    [
        ("succeeded", "succeeded", {}),
        (
            "stopped",
            "interrupted",
            {"report": ("interrupted", 1), **dict.fromkeys(("last", "alarm", "tell"), ("not run", 0))},
        ),
    ],
)
def test_what_a_real_kfp_says_of_a_run_is_its_tree(
    name: str, state: str, different: dict[str, tuple[str, int]]
) -> None:
    recorded = json.loads((RECORDED / f"kubeflow_{name}.json").read_text(encoding="utf-8"))
    answering = Kfp()
    answering.runs.append(recorded["v2beta1"])
    run = recorded["v2beta1"]["run_id"]
    answering.instead["GET", f"/apis/v1beta1/runs/{run}"] = said(recorded["v1beta1"])
    with serving(answering) as kfp:
        found = client(kfp.url).state(run)
    assert found.state == state
    assert {each.name: (each.state, each.attempts) for each in found.steps} == {**SEEN, **different}
    outputs = {each.name: dict(each.outputs) for each in found.steps if each.outputs}
    assert outputs == {"prep": {"rows": "42"}, "train": {"loss": "[0.5, 0.25]"}, "tune": {"best": "42"}}
    assert all(pod.startswith("follow-me-") for each in found.steps for pod in each.pods)


def test_a_run_of_an_uploaded_pipeline_is_read_from_its_version() -> None:
    answering = with_run("SUCCEEDED", TRAINED)
    spec = answering.runs[0].pop("pipeline_spec")
    answering.runs[0]["pipeline_version_reference"] = {"pipeline_id": "p", "pipeline_version_id": "v"}
    answering.instead["GET", f"{V2}/pipelines/p/versions/v"] = said({"pipeline_spec": spec})
    with serving(answering) as kfp:
        assert [each.name for each in client(kfp.url).state(RUN).steps] == ["train"]


def test_where_the_workflow_is_not_told_no_step_is_made_up() -> None:
    answering = with_run("SUCCEEDED", TRAINED)
    answering.instead["GET", f"/apis/v1beta1/runs/{RUN}"] = refused(404, "Not Found")
    with serving(answering) as kfp:
        state = client(kfp.url).state(RUN)
    assert (state.state, state.steps) == ("succeeded", ())
    assert "steps are not known" in state.because


def test_a_run_without_a_pipeline_of_kfp_2_is_refused() -> None:
    answering = with_run("SUCCEEDED", TRAINED)
    del answering.runs[0]["pipeline_spec"]
    with serving(answering) as kfp, pytest.raises(GpuflowError) as failure:
        client(kfp.url).state(RUN)
    assert failure.value.findings[0].code == "GF955"


# -- logs


class Pods:
    """What the Kubernetes API has of pods: a log each."""

    def __init__(self, *given: Any) -> None:
        self.asked: list[str] = []

    def get(self, path: str, query: dict[str, Any]) -> Answer:
        return Answer(200, {"items": []})

    def text(self, path: str, query: dict[str, Any]) -> Iterator[str]:
        yield f"{path} {query['container']}\n"


def test_logs_are_those_of_the_pods_in_the_namespace_of_the_workflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubeflow, "Reader", Pods)
    with serving(with_run("SUCCEEDED", TRAINED)) as kfp:
        parts = list(client(kfp.url).logs("tuesday", LogQuery("train")))
    ((title, text),) = [(part.title, part.text) for part in parts]
    assert title == "train, attempt 1"
    assert text.startswith("/api/v1/namespaces/team-a/pods/nightly-x-")


def test_a_step_that_the_run_does_not_have_has_no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubeflow, "Reader", Pods)
    with serving(with_run("SUCCEEDED", TRAINED)) as kfp, pytest.raises(GpuflowError) as failure:
        list(client(kfp.url).logs(RUN, LogQuery("trian")))
    assert failure.value.findings[0].code == "GF927"


# -- end and begin again


@pytest.mark.parametrize(("state", "asked"), [("RUNNING", [f"{V2}/runs/{RUN}:terminate"]), ("FAILED", [])])
def test_a_run_is_terminated_unless_it_is_over(state: str, asked: list[str]) -> None:
    with serving(with_run(state, TRAINED)) as kfp:
        client(kfp.url).stop("tuesday")
    assert kfp.paths("POST") == asked


@pytest.mark.parametrize("state", ["FAILED", "CANCELED"])
def test_a_run_that_failed_or_was_stopped_is_retried(state: str) -> None:
    with serving(with_run(state, TRAINED)) as kfp:
        assert client(kfp.url).retry("tuesday").run == RUN
    assert kfp.paths("POST") == [f"{V2}/runs/{RUN}:retry"]


@pytest.mark.parametrize("run", [RUN, "tuesday"])
def test_a_run_that_is_not_there_is_said(run: str) -> None:
    with serving(Kfp()) as kfp, pytest.raises(GpuflowError) as failure:
        client(kfp.url).state(run)
    assert failure.value.findings[0].code == "GF951"


@pytest.mark.parametrize(("state", "words"), [("SUCCEEDED", "succeeded"), ("RUNNING", "running")])
def test_only_what_failed_or_was_stopped_is_retried(state: str, words: str) -> None:
    answering = Kfp()
    answering.runs.append({"run_id": RUN, "display_name": "tuesday", "state": state})
    with serving(answering) as kfp, pytest.raises(GpuflowError) as failure:
        client(kfp.url).retry("tuesday")
    assert failure.value.findings[0].code == "GF953"
    assert words in failure.value.findings[0].message
    assert kfp.paths("POST") == []
