"""Runs on Airflow, on recorded answers of its API: what is shown, started, stopped and cleared, and the ways in which
an Airflow may not answer. A whole Airflow is in tests/targets/airflow/test_airflow_submit.py.

Tests gpuflow/runs/airflow_api.py and gpuflow/runs/airflow_dags.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuflow.core.errors import EnvironmentFailure, GpuflowError
from gpuflow.plan import Plan, plan_of
from gpuflow.runs import Connection, airflow_dags, client_of
from gpuflow.runs.airflow import AirflowClient
from gpuflow.runs.model import LogQuery, RunState, Submission, Unreachable
from gpuflow.site import Site
from gpuflow.spec.loading import load
from gpuflow.targets import load_target
from gpuflow.targets.target import Request, compile_with

from .airflow_answers import RUN, Airflow, task

SWEEP = """\
apiVersion: gpuflow/v1
kind: Pipeline
name: sweep
defaults: {image: i, cpu: 1, memory: 1Gi}
params: {n: {type: int, default: 2}}
steps:
  prepare: {command: [go], outputs: {rows: int}}
  train: {needs: prepare, for_each: {lr: [a, b]}, command: [fit, {item: lr}], outputs: {score: float}}
  tune:
    needs: train
    for_each: {seed: [1, 2]}
    pipeline:
      name: one
      defaults: {image: i, cpu: 1, memory: 1Gi}
      steps:
        fit: {for_each: {fold: [0, 1, 2]}, command: [fit]}
        score: {needs: fit, command: [score]}
exit:
  bye: {on: always, command: [bye]}
"""


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Airflow]:
    for name in ("TOKEN", "USER", "PASSWORD", "URL"):
        monkeypatch.delenv(f"GPUFLOW_AIRFLOW_{name}", raising=False)
    monkeypatch.delenv("AIRFLOW__CORE__DAGS_FOLDER", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "airflow"))
    monkeypatch.setattr(airflow_dags, "EVERY", 0.01)
    with Airflow() as airflow:
        yield airflow


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    return plan_of(load(tmp_path / "sweep.yaml"), Site.load("nvidia"))


def client(airflow: Airflow) -> AirflowClient:
    found = client_of("airflow", Connection(url=airflow.url, timeout=10))
    assert isinstance(found, AirflowClient)
    return found


def shown(state: RunState) -> dict[str, tuple[str, int, str]]:
    return {each.name: (each.state, each.attempts, each.because) for each in state.steps}


# -- what is shown


def test_steps_copies_and_sub_pipelines_have_the_names_of_the_pipeline(airflow: Airflow, plan: Plan) -> None:
    copies = [task("tune.fit", "success", index) for index in range(6)]
    scores = [task("tune.score", "success", 0), task("tune.score", "running", 1)]
    airflow.tasks(
        task("prepare", "success"),
        task("train", "success", 0, 2),
        task("train", "success", 1),
        *copies,
        *scores,
        task("bye", None, tries=0),
        task("outcome", None, tries=0, operator="EmptyOperator"),
    )
    outputs = {"prepare": {"rows": 3}, "train": {"score": 0.5}}
    for name, value in outputs.items():
        airflow.answers[f"{RUN}/taskInstances/{name}/xcomEntries/return_value"] = {
            "key": "return_value",
            "value": value,
        }
    state = client(airflow).state("sweep/nightly", plan)
    assert [each.name for each in state.steps] == [
        "prepare", "train", "train@0", "train@1",
        "tune", "tune@0", "tune@0.fit", "tune@0.fit@0", "tune@0.fit@1", "tune@0.fit@2", "tune@0.score",
        "tune@1", "tune@1.fit", "tune@1.fit@0", "tune@1.fit@1", "tune@1.fit@2", "tune@1.score", "bye",
    ]  # fmt: skip
    found = {each.name: each for each in state.steps}
    assert (found["train"].attempts, found["tune@0"].state, found["tune"].state) == (3, "succeeded", "running")
    assert (found["prepare"].outputs, found["train@0"].outputs) == ({"rows": "3"}, {"score": "0.5"})
    assert (state.state, state.url) == ("running", f"{airflow.url}/dags/sweep/runs/nightly")


def test_without_the_pipeline_steps_come_in_the_order_in_which_they_run(airflow: Airflow) -> None:
    after = {"prepare": ["z"], "z": ["a.fit"], "a.fit": ["outcome"], "outcome": []}
    airflow.tasks(
        task("a.fit", None, 0, 0),
        task("outcome", None, operator="EmptyOperator"),
        task("prepare", "success"),
        task("z", None, tries=0),
        after=after,
    )
    assert [each.name for each in client(airflow).state("sweep/nightly").steps] == [
        "prepare", "z", "a", "a.fit", "a.fit@0",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("state", "tries", "expected"),
    [
        (None, 0, ("waiting", 0, "")),
        ("scheduled", 1, ("waiting", 0, "for a slot of its pool, or of Airflow's limits")),
        ("queued", 2, ("waiting", 1, "for a worker of Airflow")),
        ("running", 1, ("running", 1, "")),
        ("restarting", 1, ("running", 1, "")),
        ("up_for_retry", 1, ("waiting", 1, "for the next attempt; pod train-1 failed (exit code 3)")),
        ("awaiting_input", 1, ("waiting", 1, "for a person's answer")),
        ("failed", 2, ("failed", 2, "pod train-1 failed (exit code 3)")),
        ("upstream_failed", 0, ("not run", 0, "what it needs failed")),
        ("skipped", 1, ("skipped", 0, "")),
    ],
)
def test_a_state_of_airflow_is_a_state_of_a_step(
    airflow: Airflow, state: str | None, tries: int, expected: tuple[str, int, str]
) -> None:
    airflow.tasks(task("train", state, tries=tries))
    error = {"exc_type": "AirflowException", "exc_value": "pod train-1 failed\n(exit code 3)", "frames": []}
    content = [{"event": "created pod train-1"}, {"event": "Task failed with exception", "error_detail": [error]}]
    airflow.answers[f"{RUN}/taskInstances/train/logs/{tries}"] = {"content": content, "continuation_token": None}
    assert shown(client(airflow).state("sweep/nightly")) == {"train": expected}


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("running on gpu-1 with 1 nvidia.com/gpu", ("running", 1, "")),
        ("waiting in queue research; position 3", ("waiting", 1, "waiting in queue research; position 3")),
        ("waiting for a node: 0/1 nodes", ("waiting", 1, "waiting for a node: 0/1 nodes")),
        (None, ("running", 1, "")),
    ],
)
def test_a_deferred_task_runs_or_says_what_its_pod_waits_for(
    airflow: Airflow, sentence: str | None, expected: tuple[str, int, str]
) -> None:
    airflow.tasks(task("train", "deferred"))
    if sentence:
        airflow.answers[f"{RUN}/taskInstances/train/xcomEntries/gpuflow_status"] = {"value": sentence}
    assert shown(client(airflow).state("sweep/nightly")) == {"train": expected}
    airflow.tasks(task("train", "deferred", operator="Approve"))
    assert shown(client(airflow).state("sweep/nightly")) == {"train": ("waiting", 1, "for a person's answer")}


def test_a_run_with_more_tasks_than_a_page_is_read_whole(airflow: Airflow) -> None:
    airflow.page = 7
    airflow.tasks(*(task("train", "deferred", index) for index in range(60)), after={"train": []})
    state = client(airflow).state("sweep/nightly")
    assert len(state.steps) == 61
    assert state.because == "of 60 pods, 50 were asked whether they run or wait"
    assert sum("gpuflow_status" in path for path, _ in airflow.sent("GET")) == 50


def test_what_has_ended_is_asked_once(airflow: Airflow) -> None:
    airflow.tasks(task("prepare", "success"), task("train", "failed"))
    follower = client(airflow)
    states = [follower.state("sweep/nightly") for _ in range(3)]
    assert states[0] == states[2]
    asked = [path for path, _ in airflow.sent("GET")]
    assert sum("return_value" in path for path in asked) == 1
    assert sum("/logs/" in path for path in asked) == 1


def test_a_run_that_airflow_has_not_begun_says_why(airflow: Airflow) -> None:
    airflow.tasks()
    airflow.answers[RUN]["state"] = "queued"
    airflow.answers["dags/sweep"] = {"is_paused": True}
    assert client(airflow).state("sweep/nightly").because == "the DAG is paused"
    airflow.answers["dags/sweep"] = {"is_paused": False}
    state = client(airflow).state("sweep/nightly")
    assert (state.state, state.because) == ("waiting", "Airflow has not begun it, perhaps for its max_active_runs")


# -- start


def submission(plan: Plan, **more: Any) -> Submission:
    request = Request(plan.pipeline, plan.site, "ml", "sweep.yaml", known=plan)
    compiled = compile_with(load_target("airflow"), request, allow_lossy=False)
    return Submission(plan, compiled, "ml", {"n": 3}, **more)


@pytest.fixture
def deployed(airflow: Airflow, plan: Plan) -> Airflow:
    """An Airflow that has the DAG."""
    airflow.answers["dags/sweep"] = {
        "is_paused": False, "is_stale": False, "relative_fileloc": "sweep.py", "file_token": "t",
    }  # fmt: skip
    airflow.answers["dagSources/sweep"] = {"content": submission(plan).compiled.text}
    airflow.answers["POST dags/sweep/dagRuns"] = {"dag_run_id": "x"}
    return airflow


def code_of(trouble: pytest.ExceptionInfo[GpuflowError]) -> str:
    assert all(finding.message and "Traceback" not in finding.message for finding in trouble.value.findings)
    return trouble.value.findings[0].code


def test_a_run_gets_its_name_and_the_values_of_its_parameters(deployed: Airflow, plan: Plan) -> None:
    started = client(deployed).submit(submission(plan, name="of-today"))
    assert (started.run, started.is_new) == ("sweep/of-today", True)
    body = {"dag_run_id": "of-today", "logical_date": None, "conf": {"n": 3}}
    assert deployed.sent("POST") == [("api/v2/dags/sweep/dagRuns", body)]


def test_runs_without_a_name_are_two_runs(deployed: Airflow, plan: Plan) -> None:
    first, second = (client(deployed).submit(submission(plan)).run for _ in range(2))
    assert first != second
    assert re.fullmatch(r"sweep/gpuflow-\d{8}-\d{6}-[0-9a-f]{4}", first)


@pytest.mark.parametrize("is_seen", [True, False])
def test_the_same_name_twice_is_one_run(deployed: Airflow, plan: Plan, is_seen: bool) -> None:
    """Also when another one has started it between the question and the start."""
    if is_seen:
        deployed.answers["dags/sweep/dagRuns/of-today"] = {"state": "running", "note": None}
    else:
        deployed.answers["POST dags/sweep/dagRuns"] = 409
    started = client(deployed).submit(submission(plan, name="of-today"))
    assert (started.run, started.is_new, started.findings[0].code) == ("sweep/of-today", False, "GF956")


@pytest.mark.parametrize("has_begun", [True, False])
def test_an_answer_that_got_lost_is_looked_for(deployed: Airflow, plan: Plan, has_begun: bool) -> None:
    def start(*_: Any) -> int:
        if has_begun:
            deployed.answers["dags/sweep/dagRuns/of-today"] = {"state": "queued", "note": None}
        return 503

    deployed.answers["POST dags/sweep/dagRuns"] = start
    asked = submission(plan, name="of-today")
    if has_begun:
        assert client(deployed).submit(asked).is_new is True
        return
    with pytest.raises(Unreachable):
        client(deployed).submit(asked)


def test_a_dag_that_is_not_there_is_named_with_the_file_to_write(airflow: Airflow, plan: Plan) -> None:
    with pytest.raises(GpuflowError) as trouble:
        client(airflow).submit(submission(plan))
    assert code_of(trouble) == "GF954"
    assert "writes sweep.py there" in str(trouble.value)
    assert airflow.sent("POST") == []


def test_an_import_error_is_shown(deployed: Airflow, plan: Plan) -> None:
    trace = "Traceback (most recent call last):\n  File x\nModuleNotFoundError: No module named 'gpuflow'\n"
    error = {"filename": "team/sweep.py", "timestamp": "2026-11-19T20:00:00Z", "stack_trace": trace}
    deployed.answers["importErrors"] = ("import_errors", [{**error, "filename": "other.py"}] * 3 + [error])
    with pytest.raises(
        GpuflowError, match=r"team/sweep\.py: ModuleNotFoundError: No module named 'gpuflow'"
    ) as trouble:
        client(deployed).submit(submission(plan))
    assert code_of(trouble) == "GF973"


def test_a_dag_of_another_state_of_the_source_is_refused(deployed: Airflow, plan: Plan) -> None:
    text = deployed.answers["dagSources/sweep"]["content"]
    deployed.answers["dagSources/sweep"]["content"] = re.sub("sha256:[0-9a-f]+", "sha256:00ff", text)
    with pytest.raises(GpuflowError, match="sha256 00ff, and not") as trouble:
        client(deployed).submit(submission(plan))
    assert code_of(trouble) == "GF974"
    assert deployed.sent("POST") == []


@pytest.mark.parametrize(
    ("old", "new", "severity"),
    [
        ("sweep.yaml", "pipelines/sweep.yaml", None),
        ('"cpu": "1"', '"cpu": "2"', "warning"),
        ("# Made by gpuflow", "# Made by hand", "note"),
    ],
)
def test_a_dag_that_may_be_meant_runs_with_a_word_about_it(
    deployed: Airflow, plan: Plan, old: str, new: str, severity: str | None
) -> None:
    text = deployed.answers["dagSources/sweep"]["content"]
    assert old in text
    deployed.answers["dagSources/sweep"]["content"] = text.replace(old, new)
    found = client(deployed).submit(submission(plan)).findings
    assert [each.severity for each in found if each.code == "GF974"] == ([severity] if severity else [])


def test_a_paused_dag_is_refused_and_unpaused_with_apply(deployed: Airflow, plan: Plan) -> None:
    deployed.answers["dags/sweep"]["is_paused"] = True
    with pytest.raises(GpuflowError) as trouble:
        client(deployed).submit(submission(plan))
    assert code_of(trouble) == "GF975"
    assert deployed.sent("POST") == deployed.sent("PATCH") == []
    found = client(deployed).submit(submission(plan, apply=True)).findings
    assert [each.code for each in found] == ["GF958"]
    assert deployed.sent("PATCH") == [("api/v2/dags/sweep", {"is_paused": False})]


def test_a_run_that_cannot_start_leaves_the_dag_paused(deployed: Airflow, plan: Plan) -> None:
    deployed.answers["dags/sweep"]["is_paused"] = True
    deployed.answers["POST dags/sweep/dagRuns"] = 400
    with pytest.raises(GpuflowError, match=r"refuses POST .*400") as trouble:
        client(deployed).submit(submission(plan, apply=True))
    assert code_of(trouble) == "GF955"
    assert [body for _, body in deployed.sent("PATCH")] == [{"is_paused": False}, {"is_paused": True}]


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The DAGs folder, as airflow.cfg names it."""
    dags = tmp_path / "dags"
    dags.mkdir()
    (tmp_path / "airflow").mkdir()
    (tmp_path / "airflow" / "airflow.cfg").write_text(f"[core]\ndags_folder = {dags}\nfernet_key = %(x\n")
    return dags


def reads(airflow: Airflow, folder: Path, after: int = 3) -> None:
    """Let it read its folder at the third look."""
    looks = [0]

    def code(*_: Any) -> Any:
        looks[0] += 1
        file = folder / "sweep.py"
        return {"content": file.read_text()} if file.exists() and looks[0] >= after else 404

    airflow.answers["dagSources/sweep"] = code


def test_apply_writes_the_file_and_waits_until_airflow_has_read_it(deployed: Airflow, plan: Plan, folder: Path) -> None:
    reads(deployed, folder)
    found = client(deployed).submit(submission(plan, apply=True)).findings
    assert [each.code for each in found] == ["GF958"]
    assert [path.name for path in folder.iterdir()] == ["sweep.py"]
    assert (folder / "sweep.py").read_text() == submission(plan).compiled.text
    assert deployed.sent("PUT") == [("api/v2/parseDagFile/t", None)]


@pytest.mark.parametrize("before", [None, "# Made by gpuflow 0.1.0 from a.yaml sha256:12 for site nvidia.\n"])
def test_a_file_that_airflow_does_not_read_is_put_back(
    deployed: Airflow, plan: Plan, folder: Path, before: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(airflow_dags, "READ_WITHIN", 0.1)
    deployed.answers["dagSources/sweep"] = 404
    if before:
        (folder / "sweep.py").write_text(before)
    with pytest.raises(GpuflowError, match="has not read") as trouble:
        client(deployed).submit(submission(plan, apply=True))
    assert code_of(trouble) == "GF954"
    assert {path.name: path.read_text() for path in folder.iterdir()} == ({"sweep.py": before} if before else {})


def test_a_file_that_airflow_cannot_import_is_put_back(deployed: Airflow, plan: Plan, folder: Path) -> None:
    def errors(*_: Any) -> Any:
        trace = "ModuleNotFoundError: No module named 'gpuflow'"
        error = {"filename": "sweep.py", "timestamp": "2026-11-19T20:00:00Z", "stack_trace": trace}
        return ("import_errors", [error] if (folder / "sweep.py").exists() else [])

    deployed.answers["importErrors"] = lambda query, body: {
        "import_errors": errors()[1],
        "total_entries": len(errors()[1]),
    }
    deployed.answers["dagSources/sweep"] = 404
    with pytest.raises(GpuflowError) as trouble:
        client(deployed).submit(submission(plan, apply=True))
    assert code_of(trouble) == "GF973"
    assert list(folder.iterdir()) == []


def test_a_file_that_somebody_wrote_is_not_replaced(deployed: Airflow, plan: Plan, folder: Path) -> None:
    (folder / "sweep.py").write_text("mine = 1\n")
    deployed.answers["dagSources/sweep"] = 404
    with pytest.raises(GpuflowError, match="is no compiled file") as trouble:
        client(deployed).submit(submission(plan, apply=True))
    assert code_of(trouble) == "GF974"
    assert (folder / "sweep.py").read_text() == "mine = 1\n"


def test_a_folder_that_cannot_be_written_is_said(
    deployed: Airflow, plan: Plan, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: Path, text: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(airflow_dags, "write_whole", full)
    deployed.answers["dagSources/sweep"] = 404
    with pytest.raises(EnvironmentFailure, match="cannot be written: No space left on device") as trouble:
        client(deployed).submit(submission(plan, apply=True))
    assert code_of(trouble) == "GF906"
    assert deployed.sent("POST") == []


def test_apply_without_the_folder_says_so(airflow: Airflow, plan: Plan) -> None:
    with pytest.raises(GpuflowError, match="on this machine there is none") as trouble:
        client(airflow).submit(submission(plan, apply=True))
    assert code_of(trouble) == "GF954"


# -- stop and retry


def test_stop_marks_the_run_failed_and_what_ran_is_interrupted(airflow: Airflow, plan: Plan) -> None:
    airflow.answers[RUN]["note"] = "asked for by Ann"
    airflow.tasks(task("prepare", "success"), task("train", "running", 0))

    def stop(_: Any, body: Any) -> Any:
        moment = body["note"].rpartition(" ")[2]
        airflow.answers[RUN] |= {"state": "failed", "note": body["note"]}
        airflow.tasks(
            task("claim-data", "success", operator="MakeClaim"),
            task("prepare", "success"),
            task("train", "failed", 0, end_date=moment),
            task("train", "failed", 1),
            task("bye", "skipped", tries=0, start_date=None, end_date=moment),
        )
        return airflow.answers[RUN]

    airflow.answers[f"PATCH {RUN}"] = stop
    airflow.answers[f"{RUN}/taskInstances/claim-data/xcomEntries/return_value"] = {"value": "sweep-data-r1"}
    state = client(airflow).stop("sweep/nightly")
    assert state.state == "interrupted"
    assert state.because.endswith("without exit steps; its volumes stay until somebody deletes them: sweep-data-r1")
    found = shown(state)
    assert found["train@0"] == ("interrupted", 1, "the run was stopped")
    assert found["bye"] == ("not run", 0, "the run was stopped")
    assert (found["train@1"][0], found["prepare"][0]) == ("failed", "succeeded")
    (patched,) = airflow.sent("PATCH")
    assert patched[1]["state"] == "failed"
    assert patched[1]["note"].startswith("asked for by Ann\ngpuflow stop 20")
    assert client(airflow).stop("sweep/nightly") == state
    assert len(airflow.sent("PATCH")) == 1


def test_retry_clears_what_failed_and_what_follows_from_it(airflow: Airflow) -> None:
    airflow.answers[RUN] |= {"state": "failed", "note": "by Ann\ngpuflow stop 2026-11-19T20:00:30+00:00"}
    airflow.tasks(
        task("prepare", "success"),
        task("train", "success", 0),
        task("train", "failed", 1),
        task("eval", "success", 0),
        task("eval", "upstream_failed", 1),
        task("other", "skipped", end_date="2026-11-19T19:00:00Z"),
        task("late", "skipped"),
        task("bye", "success"),
        after={"prepare": ["train"], "train": ["eval"], "eval": ["bye"], "other": [], "late": [], "bye": []},
    )
    airflow.answers[f"PATCH {RUN}"] = {}
    airflow.answers["POST dags/sweep/clearTaskInstances"] = {"task_instances": []}
    assert client(airflow).retry("sweep/nightly").run == "sweep/nightly"
    assert airflow.sent("PATCH") == [(f"api/v2/{RUN}", {"note": "by Ann"})]
    ((_, body),) = airflow.sent("POST")
    assert sorted(map(str, body["task_ids"])) == ["['eval', 1]", "['train', 1]", "bye", "late", "other"]
    assert {key: body[key] for key in ("dag_run_id", "dry_run", "only_failed", "reset_dag_runs")} == {
        "dag_run_id": "nightly", "dry_run": False, "only_failed": False, "reset_dag_runs": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("state", "tasks", "words"),
    [
        ("running", [task("train", "failed")], "is running"),
        ("success", [task("train", "success")], "is success"),
        (
            "failed",
            [task("train", "failed"), task("delete-claim-x", "success", operator="DeleteClaim")],
            "volumes were deleted",
        ),
    ],
)
def test_a_run_that_cannot_be_retried_says_why(airflow: Airflow, state: str, tasks: list[Any], words: str) -> None:
    airflow.answers[RUN]["state"] = state
    airflow.tasks(*tasks)
    with pytest.raises(GpuflowError, match=words) as trouble:
        client(airflow).retry("sweep/nightly")
    assert code_of(trouble) == "GF953"
    assert airflow.sent("POST") == airflow.sent("PATCH") == []


# -- logs


HEAD = ["::group::Log message source details", "/logs/dag_id=sweep/attempt=1.log", "::endgroup::"]


def written(airflow: Airflow, number: int, *parts: list[Any], index: int = -1, name: str = "train") -> None:
    """The log of a try, in pieces."""

    def more(query: dict[str, str], _: Any) -> Any:
        at = int(query.get("token", "0"))
        if int(query["map_index"]) != index or at >= len(parts):
            return {"content": [], "continuation_token": str(at)}
        return {"content": parts[at], "continuation_token": str(at + 1)}

    airflow.answers[f"{RUN}/taskInstances/{name}/logs/{number}"] = more


def read(airflow: Airflow, step: str = "train", **more: Any) -> list[tuple[str, str]]:
    return [(each.title, each.text) for each in client(airflow).logs("sweep/nightly", LogQuery(step, **more))]


def test_a_log_has_what_programs_wrote_attempt_after_attempt(airflow: Airflow) -> None:
    airflow.tasks(task("train", "success", tries=2))
    written(airflow, 1, [{"event": "created pod"}, {"event": "[main] loss=2"}])
    written(airflow, 2, ["[main] loss=1", {"event": "[base] [main] end"}])
    assert read(airflow) == [("train, attempt 1", "loss=2\n"), ("train, attempt 2", "loss=1\n[main] end\n")]
    assert read(airflow, attempt=1) == [("train, attempt 1", "loss=2\n")]


def test_where_no_program_wrote_the_log_is_airflows_own(airflow: Airflow) -> None:
    airflow.tasks(task("train", "failed"))
    written(airflow, 1, [*HEAD, {"event": "created pod"}, {"event": "pod failed"}])
    assert read(airflow) == [("train, attempt 1", "created pod\npod failed\n")]


def test_logs_of_copies_and_of_a_sub_pipeline_say_whose_they_are(airflow: Airflow) -> None:
    airflow.tasks(task("train", "success", 0), task("train", "success", 1), task("trainer", "success"))
    written(airflow, 1, ["[main] two"], index=1)
    assert read(airflow, "train@1") == [("train@1, attempt 1", "two\n")]
    airflow.tasks(task("tune.fit", "success"), task("tune.begin", "success", operator="Mark"))
    written(airflow, 1, ["[main] in"], name="tune.fit")
    assert read(airflow, "tune") == [("tune.fit, attempt 1", "in\n")]
    with pytest.raises(GpuflowError, match="does not say which copy"):
        read(airflow, "tune@0.fit@1")


@pytest.mark.parametrize(("query", "words"), [({"step": "tain"}, "no log of"), ({"rank": 1}, "rank 0 alone")])
def test_a_log_that_is_not_there_says_so(airflow: Airflow, query: dict[str, Any], words: str) -> None:
    airflow.tasks(task("train", "success"))
    with pytest.raises(GpuflowError, match=words) as trouble:
        read(airflow, **query)
    assert code_of(trouble) == "GF927"


def test_a_log_that_is_followed_goes_on_until_the_task_ends(airflow: Airflow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuflow.runs.airflow.EVERY", 0.01)
    airflow.tasks(task("train", "running"))
    looks = [0]

    def more(query: dict[str, str], _: Any) -> Any:
        looks[0] += 1
        if looks[0] == 3:
            airflow.tasks(task("train", "success"))
        return {"content": [f"[main] {query.get('token', 'first')}"], "continuation_token": f"t{looks[0]}"}

    airflow.answers[f"{RUN}/taskInstances/train/logs/1"] = more
    texts = [text for _, text in read(airflow, follow=True)]
    assert texts == ["first\n", "t1\n", "t2\n", "t3\n"]


def test_a_log_of_a_task_between_two_deferrals_shows_no_line_twice(
    airflow: Airflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuflow.runs.airflow.EVERY", 0.01)
    airflow.tasks(task("train", "scheduled"))
    lines, looks = [*HEAD, "[main] one", "[main] two", "[main] three"], [0]

    def more(query: dict[str, str], _: Any) -> Any:
        looks[0] += 1
        if looks[0] == 3:
            airflow.tasks(task("train", "success"))
        return {"content": lines[: 3 + min(looks[0], 3)], "continuation_token": None}

    airflow.answers[f"{RUN}/taskInstances/train/logs/1"] = more
    assert [text for _, text in read(airflow, follow=True)] == ["one\n", "two\n", "three\n"]


# -- how it may not answer


def failure_of(airflow: Airflow) -> tuple[str, str]:
    with pytest.raises(EnvironmentFailure) as trouble:
        client(airflow).state("sweep/nightly")
    assert trouble.value.findings[0].hint
    return code_of(trouble), trouble.value.findings[0].message


def test_nobody_there_is_unreachable() -> None:
    with pytest.raises(Unreachable, match=r"Airflow at http://127\.0\.0\.1:9 does not answer: .*refused"):
        client_of("airflow", Connection(url="http://127.0.0.1:9")).state("sweep/nightly")


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_a_server_that_restarts_is_unreachable(airflow: Airflow, status: int) -> None:
    airflow.answers[RUN] = status
    with pytest.raises(Unreachable, match=f"does not answer now: HTTP {status}"):
        client(airflow).state("sweep/nightly")


def test_a_page_or_another_server_is_no_airflow(airflow: Airflow) -> None:
    airflow.answers["version"] = "<html>Sign in</html>"
    airflow.answers["api/v1/version"] = 404
    code, message = failure_of(airflow)
    assert (code, message.partition(" ")[2]) == ("GF971", "is no API server of Airflow 3: it has no /api/v2")


def test_a_page_in_place_of_an_answer_is_no_airflow(airflow: Airflow) -> None:
    airflow.answers[RUN] = "<html>Sign in</html>"
    assert failure_of(airflow)[0] == "GF971"


def test_airflow_2_is_named(airflow: Airflow) -> None:
    airflow.answers |= {"version": 404, "api/v1/version": {"version": "2.10.4", "git_version": None}}
    assert failure_of(airflow) == ("GF971", f"{airflow.url} is Airflow 2.10.4, which has no REST API v2")


def test_a_token_is_not_sent_to_another_host(airflow: Airflow) -> None:
    with Airflow() as other:
        airflow.headers = {"Location": f"{other.url}/login"}
        airflow.answers[RUN] = 302
        code, message = failure_of(airflow)
        assert (code, other.url in message) == ("GF971", True)
        assert other.asked == []


def test_a_token_that_has_expired_is_said(airflow: Airflow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUFLOW_AIRFLOW_TOKEN", "old-secret")
    code, message = failure_of(airflow)
    assert (code, "has expired" in message, "old-secret" in message) == ("GF972", True, False)


def test_a_user_logs_in_again_when_the_token_has_expired(airflow: Airflow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUFLOW_AIRFLOW_USER", "ann")
    monkeypatch.setenv("GPUFLOW_AIRFLOW_PASSWORD", "pass-word")
    airflow.tokens, _ = ["expired"], airflow.tasks()
    assert client(airflow).state("sweep/nightly").state == "running"
    assert airflow.sent("POST") == [("auth/token", {"username": "ann", "password": "pass-word"})] * 2
    airflow.tokens = [401]
    code, message = failure_of(airflow)
    assert (code, "ann" in message, "pass-word" in message) == ("GF972", True, False)


def test_who_has_not_logged_in_is_told_how(airflow: Airflow) -> None:
    airflow.tokens = [405]
    assert failure_of(airflow) == ("GF972", f"{airflow.url} wants to know who asks")


def test_the_user_may_stand_in_netrc(airflow: Airflow, tmp_path: Path) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login ann password pass-word\n")
    (tmp_path / ".netrc").chmod(0o600)
    airflow.tasks()
    assert client(airflow).state("sweep/nightly").state == "running"
    assert airflow.sent("POST") == [("auth/token", {"username": "ann", "password": "pass-word"})]


def test_a_user_without_the_right_is_told_which_one(airflow: Airflow) -> None:
    airflow.answers[RUN] = 403
    code, message = failure_of(airflow)
    assert code == "GF955"
    assert f"does not allow this user to GET /api/v2/{RUN}: no" in message


@pytest.mark.parametrize("run", ["sweep/other", "sweep", "/nightly", "sweep/"])
def test_a_run_that_is_not_there_is_named(airflow: Airflow, run: str) -> None:
    with pytest.raises(GpuflowError, match=f'has no run "{run}"') as trouble:
        client(airflow).state(run)
    assert code_of(trouble) == "GF951"


def test_the_address_comes_from_airflows_own_configuration(
    airflow: Airflow, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    airflow.tasks()
    config = tmp_path / "airflow" / "airflow.cfg"
    config.write_text(f"{config.read_text()}[api]\nbase_url = {airflow.url}/\n")
    assert client_of("airflow", Connection()).state("sweep/nightly").url.startswith(f"{airflow.url}/dags")
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "http://127.0.0.1:9")
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:9 "):
        client_of("airflow", Connection()).state("sweep/nightly")


@pytest.mark.parametrize("url", [None, "airflow.example.com", "https://ann:pass-word@airflow.example.com"])
def test_without_a_good_address_nothing_is_asked(airflow: Airflow, url: str | None) -> None:
    with pytest.raises(GpuflowError) as trouble:
        client_of("airflow", Connection(url=url))
    assert code_of(trouble) == "GF970"
    assert "pass-word" not in str(trouble.value)
