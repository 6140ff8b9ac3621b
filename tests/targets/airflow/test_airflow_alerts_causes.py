"""Why a task failed, as its alert will say: left behind by the operator, and read by the DAG's callback.

Tests gpuflow/airflow/alerts.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from gpuflow.airflow import alerts, deadline, run_began, webhook_alert
from gpuflow.airflow.alerts import FAILURE_XCOM

from ...receiver import Receiver
from .playing import Stage
from .stand_in import BAD, GOOD, PREEMPTED, StandIn, ended, quota_words, running

Maker = Callable[..., Callable[[], Any]]
OUT_OF_MEMORY = [running(), ended(137, "OOMKilled")]


class Told(Stage):
    """A stage whose DAG sends alerts, and that keeps what a task leaves behind."""

    callbacks: Any = (webhook_alert("https://x"),)

    def context(self, task: Any, try_number: int = 1) -> dict[str, Any]:
        context = super().context(task, try_number)
        self.left: list[tuple[str, Any]]
        context["ti"].xcom_push = lambda key, value: self.left.append((key, value))
        context["dag"] = SimpleNamespace(on_failure_callback=list(self.callbacks))
        return context


def left_by(make: Callable[[], Any], callbacks: Any = Told.callbacks) -> tuple[str, list[Any]]:
    """How the task ended, and what it said about a failure."""
    stage = Told()
    stage.left, stage.callbacks = [], callbacks
    state = stage.play(make).state
    return state, [value for key, value in stage.left if key == FAILURE_XCOM]


@pytest.mark.parametrize(
    ("story", "cause"), [(BAD, "failure"), (OUT_OF_MEMORY, "out of memory"), (PREEMPTED, "interruption")]
)
def test_the_end_of_a_pod_is_the_cause(server: StandIn, maker: Maker, story: Any, cause: str) -> None:
    server.tell(story)
    state, (said,) = left_by(maker())
    assert (state, said["cause"]) == ("failed", cause) and said["message"]


@pytest.mark.parametrize(
    ("because", "cause"),
    [
        ("exit code 137: a process of it was killed for memory; the budget of 1 failures is spent", "out of memory"),
        ("it ran longer than 8 s; told to stop, the command ended with 0", "timed out"),
        ("2 interruptions so far; the budget of 1 is spent", "interruption"),
        ("exit code 3: it failed; the budget of 1 failures is spent", "failure"),
    ],
)
def test_the_supervisor_says_why_a_step_may_not_run_again(
    server: StandIn, maker: Maker, because: str, cause: str
) -> None:
    words = f'gpuflow-run: attempt 2 failed (final): {because} (exit code 79)\n{{"gpuflow": 1}}\n'
    server.tell([running(), ended(79, "Error", words)])
    state, (said,) = left_by(maker())
    assert (state, said["cause"]) == ("failed", cause) and because in said["message"]


def test_a_program_that_says_so_itself_decides_no_cause(server: StandIn, maker: Maker) -> None:
    server.tell([running(), ended(3, "Error", "gpuflow-run: it ran longer than 8 s")])
    assert left_by(maker())[1][0]["cause"] == "failure"


@pytest.mark.parametrize("seconds", [2, -1])
def test_a_wait_that_took_too_long_is_the_quotas(server: StandIn, maker: Maker, seconds: int) -> None:
    """In Kubernetes' words, also where the time was up before a busy triggerer began."""
    server.refuse(r"POST .*/pods(\?dry)?", 403, quota_words("1", "8", "8"), "Forbidden", times=10**6)
    state, (said,) = left_by(maker(queue_timeout=timedelta(seconds=seconds)))
    assert (state, said["cause"]) == ("failed", "quota")
    assert "waited longer than" in said["message"] and "exceeded quota" in said["message"]


def test_more_than_there_will_ever_be_is_the_quotas_too(server: StandIn, maker: Maker) -> None:
    server.refuse("POST .*/pods", 403, quota_words("9", "0", "8"), "Forbidden", times=10**6)
    assert [each["cause"] for each in left_by(maker())[1]] == ["quota"]


def test_the_deadline_of_the_run_is_a_cause(server: StandIn, maker: Maker) -> None:
    late = maker(deadlines=[deadline("", timedelta(seconds=-1), since=run_began())])
    assert [each["cause"] for each in left_by(late)[1]] == ["deadline"]


def test_nothing_is_left_where_nobody_asks_or_nothing_failed(server: StandIn, maker: Maker) -> None:
    server.tell(GOOD, BAD)
    assert left_by(maker()) == ("success", [])
    assert left_by(maker(), callbacks=[print])[1] == []


def test_a_task_fails_for_its_own_reason_also_when_nothing_can_be_left(server: StandIn, maker: Maker) -> None:
    class Broken(Told):
        def context(self, task: Any, try_number: int = 1) -> dict[str, Any]:
            def refuse(key: str, value: Any) -> None:
                if key == FAILURE_XCOM:
                    raise RuntimeError("no XCom today")

            context = super().context(task, try_number)
            context["ti"].xcom_push = refuse
            return context

    server.tell(BAD)
    stage = Broken()
    stage.left = []
    played = stage.play(maker())
    assert played.state == "failed" and "no XCom" not in played.messages[-1]


# -- the callback ---------------------------------------------------------------------------------------------------


def context(reason: str = "task_failure") -> dict[str, Any]:
    """What Airflow's DAG processor hands to a DAG's callback."""
    dag = SimpleNamespace(dag_id="nightly", task_ids=["train", "shard", "shard_0", "other"])
    run = SimpleNamespace(logical_date=datetime(2026, 11, 16, tzinfo=UTC), run_after=None)
    return {"dag": dag, "run_id": "manual__2026-11-16T00:00:00+00:00", "dag_run": run, "reason": reason}


@pytest.fixture
def airflow_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow's answers; a whole Airflow gives the same ones in test_airflow_alerts.py."""
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
    from airflow.sdk.execution_time.xcom import XCom

    states = {
        "train": "failed",
        "shard_3": "failed",
        "shard_0": "failed",
        "other": "upstream_failed",
        "shard_1": "success",
    }
    left = {("train", None): {"cause": "quota", "message": "no room"}, ("shard", 3): {"cause": "out of memory"}}

    def states_of(dag_id: str, run_ids: list[str]) -> dict[str, Any]:
        return {run_ids[0]: states}

    def one(*, key: str, task_id: str, map_index: int | None, **_: Any) -> Any:
        return left.get((task_id, map_index))

    monkeypatch.setattr(RuntimeTaskInstance, "get_task_states", staticmethod(states_of))
    monkeypatch.setattr(XCom, "get_one", one)


def test_every_failed_copy_is_named_with_its_log(airflow_says: None) -> None:
    document = alerts.document_of(context())
    assert [(each["step"], each["cause"]) for each in document["steps"]] == [
        ("shard_0", "failure"),  # a task of that name, not a copy of shard
        ("shard[3]", "out of memory"),
        ("train", "quota"),
    ]
    assert document["steps"][1]["log"].endswith("/runs/manual__2026-11-16T00%3A00%3A00%2B00%3A00/tasks/shard/mapped/3")
    assert document["date"] == "2026-11-16T00:00:00+00:00"


def test_a_run_that_airflow_ended_for_its_time_was_too_late(airflow_says: None) -> None:
    assert alerts.document_of(context("timed_out"))["cause"] == "deadline"
    assert "cause" not in alerts.document_of(context("success"))


def test_an_alert_is_sent_although_airflow_does_not_answer(caplog: pytest.LogCaptureFixture) -> None:
    """Outside the DAG processor nobody answers: the run is told of all the same."""
    with Receiver() as receiver:
        webhook_alert(f"{receiver.url}/hook")({**context(), "dag_run": None})
        (request,) = receiver.got
    assert request.body["status"] == "failure" and request.body["steps"] == []


def test_connections_hold_what_is_secret(monkeypatch: pytest.MonkeyPatch, airflow_says: None) -> None:
    def connect(name: str, **fields: Any) -> None:
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", json.dumps({"conn_type": "http", **fields}))

    with Receiver() as receiver:
        connect("PLAIN", extra={"Authorization": "Token a"})
        connect("BASIC", login="me", password="pw")
        connect("BEARER", password="t", host="127.0.0.1", schema="http", port=receiver.port)
        for name in ("plain", "basic"):
            webhook_alert(f"{receiver.url}/hook", connection=name)(context())
        webhook_alert(connection="bearer")(context())
    assert [each.headers["authorization"] for each in receiver.got] == ["Token a", "Basic bWU6cHc=", "Bearer t"]


def test_what_cannot_be_sent_is_a_line_in_the_log_without_secrets(
    monkeypatch: pytest.MonkeyPatch, airflow_says: None, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("gpuflow.core.alert.WAIT", 0)
    monkeypatch.setenv("AIRFLOW_CONN_HOOK", json.dumps({"conn_type": "http", "password": "hunter2"}))
    with caplog.at_level("INFO"):
        webhook_alert("http://127.0.0.1:9/hook", connection="hook")(context())
        webhook_alert("http://127.0.0.1:9/hook", connection="missing")(context())
    words = caplog.text
    assert "not sent: no answer" in words and 'no connection "missing"' in words and "hunter2" not in words
