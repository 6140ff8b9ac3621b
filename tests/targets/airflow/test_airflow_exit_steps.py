"""Exit steps when something is lost: every state of docs/design/airflow-operator.md, each caused by a fault.

Never two pods that run the command at once for one task; never green when a pod failed beyond the budget; and no
second pod for a step that is over, whoever did not hear of it.

Tests gpuflow/airflow/limits.py and gpuflow/airflow/operator.py.
"""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import TaskDeferred

from gpuflow.airflow import GpuPodOperator, attempts
from gpuflow.airflow.limits import at_most

from .playing import Stage, TaskState, fired
from .stand_in import BAD, GOOD, StandIn, ended, running, told_to_stop
from .test_airflow_recovery import Killed, die_once

PODS = "/api/v1/namespaces/ml/pods"
FAILED = {"train": "failed"}
LEAVING = [told_to_stop(), told_to_stop(), None]


@pytest.fixture
def exit_step(maker: Any) -> Any:
    """A maker of exit steps, which run only after a failure."""
    return lambda **more: maker(task_id="tell", trigger_rule="all_done", only_after_failure=True, **more)


@pytest.fixture
def stage() -> Stage:
    return Stage(states=FAILED)


def at_once(server: StandIn) -> int:
    """How many pods the server has that have not ended."""
    return sum(pod["status"]["phase"] not in ("Succeeded", "Failed") for pod in server.pods.values())


def again(stage: Stage, make: Any, tries: int = 1) -> Any:
    """The next try, after a worker died or was not heard."""
    return stage.play(make, tries_before=tries)


# -- create ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("done", [True, False], ids=["created", "not created"])
@pytest.mark.parametrize("status", [0, 500, 504, 409], ids=["no answer", "500", "504", "conflict"])
def test_a_lost_answer_to_create_makes_one_pod(
    server: StandIn, exit_step: Any, stage: Stage, status: int, done: bool
) -> None:
    server.refuse(f"POST {PODS}", status, done=done)
    server.tell(GOOD, GOOD)
    played = stage.play(exit_step())
    assert (played.state, played.tries, len(server.made)) == ("success", 1, 1)


def test_a_pod_whose_answer_was_lost_has_its_place_under_the_runs_limit(
    server: StandIn, exit_step: Any, stage: Stage
) -> None:
    server.refuse(f"POST {PODS}", 0, done=True)
    server.tell([*[running()] * 3, ended(0)])
    played = stage.play(exit_step(limits=[at_most(1)]))
    assert (played.state, played.tries, len(server.made)) == ("success", 1, 1)


def test_a_lost_answer_whose_pod_failed_meanwhile_is_not_green(server: StandIn, exit_step: Any, stage: Stage) -> None:
    server.refuse(f"POST {PODS}", 0, done=True)
    server.tell(BAD, GOOD)
    played = stage.play(exit_step())
    assert (played.state, len(server.made)) == ("failed", 1)


def test_a_pod_that_is_there_already_is_taken_up(server: StandIn, exit_step: Any, stage: Stage) -> None:
    make = exit_step()
    task = make()
    server.tell([running(), running(), ended(0)])
    server.answer("POST", PODS, task._manifest(stage.context(task), attempts.Ledger(task.retries)))
    listed = GpuPodOperator._pods_of_task
    stale = iter([True])
    with pytest.MonkeyPatch.context() as patch:  # one stale list: the pod is not in it yet
        patch.setattr(GpuPodOperator, "_pods_of_task", lambda self, c: [] if next(stale, None) else listed(self, c))
        played = stage.play(make)
    assert (played.state, len(server.made)) == ("success", 1)
    assert server.count(f"POST {PODS}") == 2


@pytest.mark.parametrize("owner", ["pushed", "saved", "deferred"])
def test_a_worker_killed_after_create_leaves_its_pod_to_the_next_try(
    server: StandIn, exit_step: Any, stage: Stage, monkeypatch: pytest.MonkeyPatch, owner: str
) -> None:
    target, name = {
        "pushed": (GpuPodOperator, "_push"),
        "saved": (attempts, "save_ledger"),
        "deferred": (GpuPodOperator, "_wait"),
    }[owner]
    die_once(monkeypatch, target, name, after=False)
    server.tell([*[running()] * 3, ended(0)], GOOD)
    with pytest.raises(Killed):
        stage.play(exit_step())
    assert at_once(server) == 1
    played = again(stage, exit_step())
    assert (played.state, len(server.made)) == ("success", 1)


def test_a_pod_whose_creation_arrives_after_the_task_was_stopped_is_deleted(
    server: StandIn, exit_step: Any, stage: Stage
) -> None:
    server.late[f"POST {PODS}"] = 2.0
    task = exit_step()()
    worker = threading.Thread(target=_quiet, args=(task, stage.context(task)), daemon=True)
    worker.start()
    while not task._asking:
        time.sleep(0.01)
    task.on_kill()
    assert (len(server.made), server.pods) == (1, {})
    worker.join()


def _quiet(task: Any, context: Any) -> None:
    with pytest.raises(TaskDeferred):
        task.execute(context)


# -- the end of a pod, when nobody hears of it ------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["delete_succeeded_pod", "delete_pod", "keep_pod"])
@pytest.mark.parametrize("code", [1, 3], ids=["budget spent", "final code"])
def test_a_failure_that_airflow_did_not_hear_of_is_never_green(
    server: StandIn, exit_step: Any, stage: Stage, monkeypatch: pytest.MonkeyPatch, policy: str, code: int
) -> None:
    arguments = {"on_finish_action": policy, "final_exit_codes": (3,), "failures": 0 if code == 1 else 5}
    die_once(monkeypatch, GpuPodOperator, "_clean_up", after=True)
    server.tell([running(), ended(code, "Error")], GOOD)
    with pytest.raises(Killed):
        stage.play(exit_step(**arguments))
    played = again(stage, exit_step(**arguments))
    assert (played.state, len(server.made)) == ("failed", 1)
    assert "Airflow did not hear of it" in played.messages[-1]


def test_a_kept_pod_says_so_to_an_airflow_that_keeps_no_task_state(
    server: StandIn, exit_step: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(store=None, states=FAILED)
    die_once(monkeypatch, GpuPodOperator, "_clean_up", after=True)
    server.tell(BAD, GOOD)
    with pytest.raises(Killed):
        stage.play(exit_step())
    played = again(stage, exit_step())
    assert (played.state, len(server.made)) == ("failed", 1)


@pytest.mark.parametrize("policy", ["delete_succeeded_pod", "keep_pod"])
@pytest.mark.parametrize("outputs", [{}, {"rows": "int"}], ids=["no outputs", "outputs"])
def test_a_success_that_airflow_did_not_hear_of_makes_no_second_pod(
    server: StandIn,
    exit_step: Any,
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
    policy: str,
    outputs: dict[str, str],
) -> None:
    monkeypatch.setattr(GpuPodOperator, "extract_xcom", lambda self, pod: {"rows": 7})
    monkeypatch.setattr(GpuPodOperator, "_end_sidecar", lambda *_: None)
    die_once(monkeypatch, GpuPodOperator, "_clean_up", after=True)
    server.tell(GOOD, BAD)
    with pytest.raises(Killed):
        stage.play(exit_step(on_finish_action=policy, outputs=outputs))
    played = again(stage, exit_step(on_finish_action=policy, outputs=outputs))
    assert (played.state, played.result, len(server.made)) == ("success", {"rows": 7} if outputs else None, 1)


def test_a_wait_that_was_too_long_stays_so(
    server: StandIn, exit_step: Any, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    die_once(monkeypatch, GpuPodOperator, "_clean_up", after=True)
    server.tell([], GOOD)
    make = exit_step(queue_timeout=timedelta(seconds=0))
    with pytest.raises(Killed):
        stage.play(make)
    played = again(stage, make)
    assert (played.state, len(server.made)) == ("failed", 1)
    assert "waited longer than" in played.messages[-1]


def test_after_clear_a_step_that_was_over_runs_again(server: StandIn, exit_step: Any, stage: Stage) -> None:
    server.tell(BAD, GOOD)
    assert stage.play(exit_step()).state == "failed"
    cleared = Stage(store=stage.store, states=FAILED, max_tries=9, began=stage.began)
    played = cleared.play(exit_step(), tries_before=1)
    assert (played.state, len(server.made)) == ("success", 2)


def test_a_run_that_was_deleted_and_made_again_runs_its_steps(server: StandIn, exit_step: Any, stage: Stage) -> None:
    server.tell(BAD, GOOD)
    assert stage.play(exit_step(failures=1, final_exit_codes=(1,))).state == "failed"
    anew = Stage(store=TaskState(), states=FAILED)  # Airflow forgets the task's state with the run; the pod is kept
    played = anew.play(exit_step(failures=1, final_exit_codes=(1,)))
    assert (played.state, len(server.made)) == ("success", 2)


# -- reattach -------------------------------------------------------------------------------------------------------


def test_a_second_try_watches_the_pod_that_still_runs(server: StandIn, exit_step: Any, stage: Stage) -> None:
    server.tell([*[running()] * 2, ended(1, "Error")], GOOD)
    task = exit_step()()
    with pytest.raises(TaskDeferred):  # and then neither its trigger nor its worker is heard again
        task.execute(stage.context(task))
    played = again(stage, exit_step())
    assert (played.state, len(server.made)) == ("failed", 1)


def test_of_two_pods_that_carry_the_tasks_labels_one_is_left(server: StandIn, exit_step: Any, stage: Stage) -> None:
    task = exit_step()()
    context = stage.context(task)
    first = task._manifest(context, attempts.Ledger(task.retries))
    second = task._manifest(context, attempts.Ledger(task.retries, pods=1))
    server.tell([], [*[running()] * 3, ended(0)])
    for manifest in (first, second):
        server.answer("POST", PODS, manifest)
    played = stage.play(exit_step())
    assert (played.state, len(server.made)) == ("success", 2)
    assert first["metadata"]["name"] not in server.pods


def test_a_pod_on_its_way_out_is_waited_for_before_the_next_is_made(
    server: StandIn, exit_step: Any, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clear while it runs: Airflow stops the task, its pod gets its grace, and the new try begins meanwhile."""
    server.tell([running()] * 2, GOOD)
    task = exit_step()()
    with pytest.raises(TaskDeferred):
        task.execute(stage.context(task))
    server.lingering = [list(LEAVING)]
    task.on_kill()
    most: list[int] = []
    real = server._post

    def counted(*words: Any) -> Any:
        most.append(at_once(server))
        return real(*words)

    monkeypatch.setattr(server, "_post", counted)
    played = Stage(store=stage.store, states=FAILED, max_tries=9).play(exit_step())
    assert (played.state, len(server.made), most) == ("success", 2, [0])


def test_one_wrong_404_about_a_pod_on_its_way_out_makes_no_second_pod_beside_it(
    server: StandIn, exit_step: Any, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.tell([running(), told_to_stop("PreemptionByScheduler"), told_to_stop("PreemptionByScheduler"), None], GOOD)
    server.refuse(f"GET {PODS}/.+", 404, "not found")
    most: list[int] = []
    real = server._post
    monkeypatch.setattr(server, "_post", lambda *words: (most.append(at_once(server)), real(*words))[1])
    # The list that follows shows the pod as it is then: being deleted.
    shown = GpuPodOperator._pods_of_task

    def leaving(self: Any, context: Any) -> Any:
        for name in list(server.pods):
            server._advance(name)
        return shown(self, context)

    monkeypatch.setattr(GpuPodOperator, "_pods_of_task", leaving)
    played = stage.play(exit_step(interruptions=1))
    assert (played.state, len(server.made), max(most)) == ("success", 2, 0)


@pytest.mark.parametrize("sight", [running(), ended(0), ended(1, "Error")], ids=["running", "succeeded", "failed"])
def test_a_finished_pod_that_is_deleted_before_it_is_read(
    server: StandIn, exit_step: Any, stage: Stage, sight: dict[str, Any]
) -> None:
    """Only what was seen counts: of a pod that was last seen running nobody knows that it ended well."""
    server.tell([running(), sight, None], GOOD)
    played = stage.play(exit_step())
    assert (played.state == "success") == (sight == ended(0))
    assert len(server.made) == 1


def test_a_pod_over_the_runs_limit_is_taken_back_gently_and_the_next_waits_until_it_is_gone(
    server: StandIn, exit_step: Any, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.lingering = [[running(), told_to_stop(), None]]
    server.tell([running()], GOOD)
    beside: list[int] = []
    real = server._post

    def counted(_: Any, query: dict[str, str], body: Any) -> Any:
        if not query.get("dryRun"):
            beside.append(at_once(server))
        return real(_, query, body)

    monkeypatch.setattr(server, "_post", counted)
    # Room before it is made, and none after: another task was faster.
    monkeypatch.setattr("gpuflow.airflow.step_pods.is_beyond", _once())
    played = stage.play(exit_step(limits=[at_most(2)]))
    assert (played.state, len(server.made), max(beside)) == ("success", 2, 0)
    assert stage.store is not None
    assert stage.store.kept[attempts.KEY]["interruptions"] == 0


def _once() -> Any:
    """Beyond the limit the first time it is asked."""
    left = [True]
    return lambda *_: bool(left and left.pop())


def test_a_restarted_trigger_goes_on_with_the_same_pod(server: StandIn, exit_step: Any, stage: Stage) -> None:
    server.tell([*[running()] * 4, ended(0)], GOOD)
    task = exit_step()()
    with pytest.raises(TaskDeferred) as pause:
        task.execute(stage.context(task))
    server.refuse(f"GET {PODS}/.+", 500, times=2)
    event = fired(pause.value.trigger)  # from what the database has, as in another triggerer
    resumed = exit_step()()
    assert resumed.resume(stage.context(resumed), event) is None
    assert len(server.made) == 1
