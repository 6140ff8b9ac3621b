"""Workers that die between two steps of a decision, answers that are lost, and programs that print anything."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG

from gpuflow.airflow import GpuPodOperator, attempts

from .playing import Stage
from .stand_in import BAD, GOOD, StandIn, ended, running, told_to_stop

PREEMPTED_AND_LEFT = [running(), told_to_stop("PreemptionByScheduler"), ended(143, "Error")]


class Killed(BaseException):
    """The worker is gone."""


def die_once(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, *, after: bool, when: Any = None) -> None:
    """Kill the worker the first time it does something, before or after it is done."""
    real, died = getattr(owner, name), []

    def mortal(*args: Any, **named: Any) -> Any:
        due = not died and (when is None or when(*args))
        if due:
            died.append(True)
        if due and not after:
            raise Killed
        done = real(*args, **named)
        if due:
            raise Killed
        return done

    monkeypatch.setattr(owner, name, mortal)


def test_a_failure_is_counted_once_when_the_worker_dies_before_it_marks_the_pod(
    server: StandIn, maker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    die_once(monkeypatch, GpuPodOperator, "_clean_up", after=False)
    server.tell(BAD, BAD, GOOD)
    stage = Stage()
    with pytest.raises(Killed):
        stage.play(maker(failures=2))
    played = stage.play(maker(failures=2), tries_before=1)
    assert (played.state, len(server.made)) == ("success", 3)


def test_a_final_exit_code_stays_final_when_the_worker_dies_before_it_says_so(
    server: StandIn, maker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    die_once(monkeypatch, GpuPodOperator, "_clean_up", after=False)
    server.tell([running(), ended(3, "Error")], GOOD)
    stage = Stage()
    with pytest.raises(Killed):
        stage.play(maker(failures=2, final_exit_codes=(3,)))
    played = stage.play(maker(failures=2, final_exit_codes=(3,)), tries_before=1)
    assert (played.state, len(server.made)) == ("failed", 1)


@pytest.mark.parametrize("policy", ["delete_pod", "keep_pod"])
@pytest.mark.parametrize("after", [False, True], ids=["before it is kept", "after it is kept"])
def test_an_interruption_is_counted_once_wherever_the_worker_dies(
    server: StandIn, maker: Any, monkeypatch: pytest.MonkeyPatch, policy: str, after: bool
) -> None:
    counted = lambda context, ledger: ledger.interruptions > 0  # noqa: E731  # short enough
    die_once(monkeypatch, attempts, "save_ledger", after=after, when=counted)
    server.tell(PREEMPTED_AND_LEFT, [running(), None], GOOD)
    stage = Stage()
    with pytest.raises(Killed):
        stage.play(maker(interruptions=2, on_finish_action=policy))
    played = stage.play(maker(interruptions=2, on_finish_action=policy), tries_before=1)
    assert (played.state, len(server.made)) == ("success", 3)
    assert stage.store is not None
    assert stage.store.kept[attempts.KEY]["interruptions"] == 2


@pytest.mark.parametrize("status", [403, 422, 429, 500])
def test_a_pod_that_cannot_be_marked_costs_one_failure_and_one_try(
    server: StandIn, maker: Any, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr("gpuflow.airflow.step_pods.time.sleep", lambda seconds: None)
    server.refuse("PATCH .*", status, "no", times=100)
    server.tell(BAD, BAD, GOOD)
    played = Stage().play(maker(failures=2))
    assert (played.state, played.tries, len(server.made)) == ("success", 3, 3)


def test_a_pod_of_a_try_before_the_task_was_cleared_costs_the_new_budget_nothing(
    server: StandIn, maker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.tell(BAD, GOOD)
    make = maker(failures=0)
    lost = Stage(max_tries=2)
    die_once(monkeypatch, GpuPodOperator, "_handle_end", after=False)
    with pytest.raises(Killed):
        lost.play(make)
    played = Stage(store=lost.store, max_tries=5).play(make)
    assert (played.state, len(server.made)) == ("success", 2)


def test_a_task_that_is_stopped_right_after_its_pod_was_made_deletes_it(
    server: StandIn, maker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = maker()()
    die_once(monkeypatch, attempts, "save_ledger", after=False)
    with pytest.raises(Killed):
        task.execute(Stage().context(task))
    task.on_kill()
    assert (len(server.made), server.pods) == (1, {})


def test_a_pod_that_one_answer_says_is_not_there_and_the_next_shows_is_watched_on(server: StandIn, maker: Any) -> None:
    server.refuse("GET .*/pods/.+", 404, "not found")
    server.tell(GOOD)
    played = Stage().play(maker())
    assert (played.state, len(server.made)) == ("success", 1)


@pytest.mark.parametrize(
    "printed",
    [
        pytest.param("2026-11-14T10:00:00.1Z \rEpoch 1:  10%\rEpoch 1: 20%\n", id="a progress bar"),
        pytest.param("2026-11-14T10:00:00.1Z one\u2028zwei\x0bdrei\x85vier\n", id="other ends of lines"),
        pytest.param("no time stamp\nzzz\n\n", id="no time stamps"),
        pytest.param("2036-11-14T10:00:00.000000001+02:00 from the future\n", id="a clock that is ahead"),
        pytest.param("2026-11-14T10:00:00.1Z " + "x" * 1_000_000 + "\n", id="a line of a million letters"),
        pytest.param(b"2026-11-14T10:00:00.1Z \xff\xfe\x00 binary\n", id="bytes that are no text"),
    ],
)
def test_whatever_a_program_prints_the_task_ends_as_the_pod_does(
    server: StandIn, maker: Any, printed: str | bytes
) -> None:
    server.logs = printed
    server.tell([*[running()] * 3, ended(0)])
    played = Stage().play(maker(logging_interval=0.001))
    assert played.state == "success"


def test_a_progress_bar_reaches_the_log_whole(
    server: StandIn, maker: Any, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    server.logs = "2026-11-14T10:00:00.1Z \rstep 1\rstep 2\n2026-11-14T10:00:00.1Z same moment\n"
    server.tell([*[running()] * 3, ended(0)])
    Stage().play(maker(logging_interval=0.001))
    told = caplog.text + capsys.readouterr().out
    assert told.count("step 2") == 1
    assert told.count("same moment") == 1


def test_outputs_whose_container_ended_make_it_an_interruption_not_a_wait(server: StandIn, maker: Any) -> None:
    handed_over = {"name": "airflow-xcom-sidecar", "ready": False, "restartCount": 0, "image": "i", "imageID": ""}
    lost = ended(0)
    lost["status"]["containerStatuses"].append({**handed_over, "state": {"terminated": {"exitCode": 137}}})
    server.tell([running(), lost])
    played = Stage().play(maker(outputs={"loss": "float"}))
    assert (played.state, played.tries) == ("failed", 1)
    assert "was gone before its outputs could be read" in played.messages[0]


def test_a_step_that_left_out_one_of_its_outputs_is_not_green(
    server: StandIn, maker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GpuPodOperator, "extract_xcom", lambda self, pod: {"loss": 0.5})
    server.tell(GOOD)
    played = Stage().play(maker(outputs={"loss": "float", "rows": "int"}))
    assert played.state == "failed"
    assert "wrote no output rows" in played.messages[0]


def test_reading_outputs_that_breaks_off_leaves_their_container_alone(
    server: StandIn, maker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = maker(outputs={"loss": "float"})()
    asked: list[str] = []

    def broken(pod: Any) -> str:
        asked.append("read")
        raise OSError("connection lost")

    manager = SimpleNamespace(extract_xcom_json=broken, extract_xcom_kill=lambda pod: asked.append("kill"))
    monkeypatch.setattr(GpuPodOperator, "pod_manager", manager)
    with pytest.raises(OSError, match="connection lost"):
        task.extract_xcom(SimpleNamespace())
    assert asked == ["read"]


def test_ids_without_latin_letters_give_names_and_labels_that_kubernetes_takes(server: StandIn, maker: Any) -> None:
    server.tell(GOOD)
    task = maker(task_id="訓練")()
    context = Stage().context(task)
    context["ti"].dag_id = "日本語"
    manifest = task._manifest(context, attempts.Ledger(2))
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", manifest["metadata"]["name"])
    for value in manifest["metadata"]["labels"].values():
        assert re.fullmatch(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", value), value


@pytest.mark.parametrize("count", ["-5", "²", "1e3", " 7", ""])
def test_counts_on_a_pod_that_somebody_spoiled_are_no_counts(count: str) -> None:
    spoiled = {"metadata": {"annotations": {"gpuflow.dev/epoch": "2", "gpuflow.dev/failures": count}}}
    assert attempts.load_ledger({"ti": SimpleNamespace(max_tries=2)}, [spoiled]) == attempts.Ledger(2)


def test_default_arguments_of_a_dag_do_not_cut_a_steps_budget_short(maker: Any) -> None:
    with DAG(dag_id="d", default_args={"retries": 0}):
        task = maker(failures=3)()
    assert (task.budgets.failures, task.retries) == (3, 5)
