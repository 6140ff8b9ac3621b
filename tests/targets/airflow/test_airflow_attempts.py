"""What ended a pod, what that costs, and what the next pod's supervisor is told of it.

Tests gpuflow/airflow/attempts.py.
"""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowTaskTimeout
from airflow.sdk import DAG

from gpuflow.airflow import attempts

from .playing import Stage, TaskState
from .stand_in import BAD, GOOD, PREEMPTED, StandIn, Story, ended, running, stuck, told_to_stop

OOM: Story = [running(), ended(137, "OOMKilled")]
FULL = 'Usage of EmptyDir volume "scratch" exceeds the limit "1Gi". '
FULL_DISK = {"phase": "Failed", "reason": "Evicted", "message": FULL}
LATE = {
    "phase": "Failed",
    "reason": "DeadlineExceeded",
    "message": "Pod was active on the node longer than the specified deadline",
}
IN_INIT: dict[str, Any] = {
    "spec": {"nodeName": "gpu-1"},
    "status": {
        "phase": "Pending",
        "initContainerStatuses": [
            {"name": "fetch", "ready": False, "restartCount": 0, "image": "i", "imageID": "", "state": {"running": {}}}
        ],
    },
}


def account(pod: dict[str, Any]) -> tuple[str | None, Any]:
    """The two variables by which a supervisor knows its pod's number, and what became of the pod before."""
    found = {one["name"]: one["value"] for one in pod["spec"]["containers"][0].get("env", [])}
    last = found.get("GPUFLOW_RUN_LAST")
    return found.get("GPUFLOW_RUN_ENGINE_ATTEMPT"), None if last is None else json.loads(last)


def judged(status: dict[str, Any], code: int, reason: str = "Completed") -> dict[str, Any]:
    """A pod that the kubelet ended, whose program then ended in its own way."""
    return {"status": {**ended(code, reason)["status"], **status}}


# -- a plain number -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", [True, False], ids=["with task state", "older Airflow"])
def test_plain_retries_are_tries_whatever_ended_the_pod(server: StandIn, maker: Any, store: bool) -> None:
    server.tell(PREEMPTED, BAD, GOOD)
    played = Stage(store=TaskState() if store else None).play(maker(retries=2))
    assert (played.state, played.tries, len(server.made)) == ("success", 3, 3)
    assert "retry 1 of 2 follows" in played.messages[0]


@pytest.mark.parametrize("ends", [(BAD, BAD), (PREEMPTED, PREEMPTED), (PREEMPTED, BAD), (BAD, PREEMPTED)])
def test_plain_retries_are_exactly_so_many(server: StandIn, maker: Any, ends: tuple[Story, Story]) -> None:
    server.tell(*ends, GOOD)
    played = Stage().play(maker(retries=1))
    assert (played.state, len(server.made)) == ("failed", 2)
    assert "the only retry is used up" in played.messages[-1]


def test_retries_of_default_arguments_cover_a_drained_node(server: StandIn, maker: Any) -> None:
    server.tell([running(), told_to_stop("EvictionByEvictionAPI"), None], GOOD)

    def make() -> Any:
        with DAG(dag_id="d", default_args={"retries": 1}):
            return maker()()

    played = Stage().play(make)
    assert (played.state, len(server.made)) == ("success", 2)


def test_a_worker_that_dies_costs_a_try_and_no_attempt_of_a_plain_number(server: StandIn, maker: Any) -> None:
    server.tell(BAD, PREEMPTED, GOOD)
    played = Stage().play(maker(retries=2), tries_before=1)  # the first try died before it made a pod
    assert (played.state, played.tries, len(server.made)) == ("success", 3, 3)


def test_a_final_exit_code_ends_a_plain_number_of_retries(server: StandIn, maker: Any) -> None:
    server.tell([running(), ended(3, "Error")], GOOD)
    played = Stage().play(maker(retries=5, final_exit_codes=(3,)))
    assert (played.state, len(server.made)) == ("failed", 1)


def test_retries_beside_an_interruption_budget_are_the_failures(server: StandIn, maker: Any) -> None:
    server.tell(PREEMPTED, PREEMPTED, GOOD)
    played = Stage().play(maker(retries=0, interruptions=1))
    assert (played.state, len(server.made)) == ("failed", 2)
    assert "the only interruption of the budget is used up" in played.messages[0]


@pytest.mark.parametrize(
    ("supervised", "message", "state"),
    [
        pytest.param(True, None, "success", id="the supervisor itself was killed"),
        pytest.param(True, "gpuflow-run: attempt 1 failed", "failed", id="its program was killed"),
        pytest.param(False, None, "failed", id="nobody supervises"),
    ],
)
def test_a_killed_supervisor_is_an_interruption_as_in_its_own_book(
    server: StandIn, maker: Any, supervised: bool, message: str | None, state: str
) -> None:
    server.tell([running(), ended(137, "Error", message)], GOOD)
    played = Stage().play(maker(failures=0, interruptions=1, supervised=supervised))
    assert played.state == state


def test_one_interruption_too_many_is_counted_as_one_though_the_supervisor_says_final(
    server: StandIn, maker: Any
) -> None:
    taken = told_to_stop("DeletionByTaintManager")
    last = {**taken, "status": {**taken["status"], **ended(79, "Error")["status"]}}
    last["status"]["conditions"] = taken["status"]["conditions"]
    server.tell([running(), last, None], GOOD)
    stage = Stage()
    played = stage.play(maker(failures=2, interruptions=0, supervised=True))
    assert (played.state, len(server.made)) == ("failed", 1)
    assert stage.store is not None
    kept = stage.store.get("gpuflow_ledger")
    assert (kept["failures"], kept["interruptions"]) == (0, 1)


# -- what is a failure ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(ended(137, "OOMKilled"), id="the whole container ran out of memory"),
        pytest.param(ended(1, "OOMKilled"), id="a process ran out of memory"),
        pytest.param(judged(LATE, 143, "Error"), id="deadline, ends with SIGTERM"),
        pytest.param(judged(LATE, 0), id="deadline, ends well after SIGTERM"),
        pytest.param(judged(LATE, 137, "Error"), id="deadline, is killed"),
        pytest.param(judged(FULL_DISK, 143, "Error"), id="disk, ends with SIGTERM"),
        pytest.param(judged(FULL_DISK, 0), id="disk, ends well after SIGTERM"),
        pytest.param({"status": FULL_DISK}, id="disk, nothing is known of the container"),
    ],
)
def test_memory_time_and_disk_are_failures_whatever_the_program_makes_of_sigterm(
    server: StandIn, maker: Any, end: dict[str, Any]
) -> None:
    server.tell([running(), end], [running(), end], GOOD)
    played = Stage().play(maker(failures=1, interruptions=5))
    assert (played.state, played.tries, len(server.made)) == ("failed", 2, 2)


@pytest.mark.parametrize("code", [137, 1], ids=["the whole container", "one process"])
def test_both_kinds_of_out_of_memory_get_more(server: StandIn, maker: Any, code: int) -> None:
    server.tell([running(), ended(code, "OOMKilled")], GOOD)
    Stage().play(maker(retries=1, supervised=True, more_memory={"factor": 2, "max": "8Gi"}))
    amounts = [pod["spec"]["containers"][0]["resources"]["limits"]["memory"] for pod in server.made]
    assert amounts == ["4Gi", "8Gi"]


@pytest.mark.parametrize(
    "words", ["OOMKilled", "main: OOMKilled (exit code 137)", FULL, LATE["message"], "pod deleted"]
)
def test_what_a_program_leaves_as_its_last_words_changes_nothing(server: StandIn, maker: Any, words: str) -> None:
    server.tell([running(), ended(1, "Error", words)], GOOD)
    stage = Stage()
    policy = {"more_memory": {"factor": 2, "max": "8Gi"}, "supervised": True}
    stage.play(maker(failures=1, interruptions=1, **policy))
    assert stage.store is not None
    kept = stage.store.kept[attempts.KEY]
    assert (kept["failures"], kept["interruptions"], kept["out_of_memory"]) == (1, 0, 0)
    assert server.made[1]["spec"]["containers"][0]["resources"]["limits"]["memory"] == "4Gi"
    assert words not in json.dumps(server.made[1])


def test_a_pod_that_ran_out_of_time_is_not_an_interruption_on_its_way_out(server: StandIn, maker: Any) -> None:
    server.lingering = [[ended(75, "Error"), None]]
    server.tell([running()] * 100, GOOD)
    tries = iter([timedelta(seconds=-1)])
    stage = Stage()
    played = stage.play(
        lambda: maker(failures=1, supervised=True, execution_timeout=next(tries, None) if not server.pods else None)()
    )
    # The first try is over before it has begun, and the second finds its pod, which has not left yet.
    assert (played.state, len(server.made)) == ("success", 2)
    assert stage.store is not None
    assert (stage.store.kept[attempts.KEY]["failures"], stage.store.kept[attempts.KEY]["interruptions"]) == (1, 0)
    assert account(server.made[1])[1]["reason"] == "DeadlineExceeded"


def test_airflows_own_alarm_in_a_waiting_worker_is_a_failure(
    server: StandIn, maker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def alarm(waiting: Any) -> Any:
        waiting.close()
        raise AirflowTaskTimeout

    monkeypatch.setattr(asyncio, "run", alarm)
    server.tell([running()] * 100)
    task, stage = maker(failures=1, deferrable=False, execution_timeout=timedelta(hours=1))(), Stage()
    with pytest.raises(AirflowException, match="execution_timeout"):
        task.execute(stage.context(task))
    assert stage.store is not None
    assert (stage.store.kept[attempts.KEY]["failures"], server.pods) == (1, {})
    assert asyncio.run is alarm


# -- before the program runs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "story",
    [
        pytest.param([IN_INIT, None], id="deleted during init"),
        pytest.param([IN_INIT, told_to_stop("EvictionByEvictionAPI"), None], id="evicted during init"),
        pytest.param([stuck("ContainerCreating"), told_to_stop("DeletionByTaintManager"), None], id="while pulling"),
        pytest.param([told_to_stop("PreemptionByScheduler"), None], id="while pending"),
        pytest.param(
            [{"status": {"phase": "Failed", "reason": "NodeShutdown", "message": "Pod was rejected as the node is"}}],
            id="refused by the kubelet",
        ),
    ],
)
def test_a_pod_that_is_taken_away_before_its_program_runs_costs_an_interruption(
    server: StandIn, maker: Any, story: Story
) -> None:
    server.tell(story, story, GOOD)
    played = Stage().play(maker(failures=5, interruptions=1))
    assert (played.state, len(server.made)) == ("failed", 2)
    assert "the only interruption" in played.messages[0]


def test_out_of_memory_is_not_forgotten_when_the_pod_is_deleted_afterward(server: StandIn, maker: Any) -> None:
    server.tell([running(), ended(137, "OOMKilled") | {"metadata": {"deletionTimestamp": "2999-01-01T00:00:00Z"}}])
    played = Stage().play(maker(failures=0, interruptions=5))
    assert (played.state, len(server.made)) == ("failed", 1)


def test_of_two_causes_the_one_that_took_the_pod_counts(server: StandIn, maker: Any) -> None:
    """A node that runs out of memory kills with OOMKilled, too: the disruption says whose fault it was."""
    gone = told_to_stop("TerminationByKubelet")
    both = {**gone, "status": {**ended(137, "OOMKilled")["status"], **gone["status"]}}
    server.tell([running(), both], GOOD)
    played = Stage().play(maker(failures=0, interruptions=1))
    assert (played.state, len(server.made)) == ("success", 2)


def test_an_init_container_that_fails_is_a_failure(server: StandIn, maker: Any) -> None:
    waiting = stuck("PodInitializing")["status"]["containerStatuses"]
    server.tell([IN_INIT, {"status": {"phase": "Failed", "containerStatuses": waiting}}])
    played = Stage().play(maker(failures=0, interruptions=5))
    assert (played.state, len(server.made)) == ("failed", 1)


# -- what the next supervisor is told -------------------------------------------------------------------------------


def test_the_next_supervisor_is_told_what_was_seen_of_the_pod_before(server: StandIn, maker: Any) -> None:
    server.tell([running(), ended(137, "OOMKilled", "my last words")], PREEMPTED, GOOD)
    played = Stage().play(maker(failures=1, interruptions=1, supervised=True))
    assert played.state == "success"
    first, second, third = map(account, server.made)
    assert first == ("1", None)
    killed = {
        "attempt": 1, "by": "airflow", "phase": "Failed", "exit_code": 137, "container_reason": "OOMKilled"
    }  # fmt: skip
    assert second == ("2", killed)
    lost = {"attempt": 2, "by": "airflow", "phase": "Running", "deleted": True}
    assert third == ("3", {**lost, "conditions": ["DisruptionTarget/PreemptionByScheduler"]})


@pytest.mark.parametrize("store", [True, False], ids=["with task state", "older Airflow"])
def test_what_was_seen_outlives_the_try(server: StandIn, maker: Any, store: bool) -> None:
    server.tell(OOM, GOOD)
    Stage(store=TaskState() if store else None).play(maker(failures=1, supervised=True))
    assert account(server.made[1])[1]["container_reason"] == "OOMKilled"


def test_a_pod_without_a_supervisor_is_told_nothing(server: StandIn, maker: Any) -> None:
    server.tell(OOM, GOOD)
    Stage().play(maker(failures=1))
    assert [account(pod) for pod in server.made] == [(None, None), (None, None)]


def test_what_is_told_is_short_and_not_expanded(server: StandIn, maker: Any) -> None:
    words = "The node was low on resource: memory. $(TOKEN) $$ " + "x" * 10_000
    evicted = {"status": {"phase": "Failed", "reason": "Evicted", "message": words}}
    server.tell([running(), evicted], GOOD)
    Stage().play(maker(interruptions=1, supervised=True))
    text = next(v["value"] for v in server.made[1]["spec"]["containers"][0]["env"] if v["name"] == "GPUFLOW_RUN_LAST")
    assert len(text) < 1000
    assert "$$(TOKEN) $$$$ " in text, "as the kubelet needs it to leave $(TOKEN) alone"
    assert len(json.dumps(server.made[1]["metadata"]["annotations"])) < 2000


def test_a_cleared_task_goes_on_numbering_its_pods(server: StandIn, maker: Any) -> None:
    server.tell(BAD, BAD, GOOD)
    stage = Stage(max_tries=2)
    make = maker(failures=1, supervised=True)
    stage.play(make)
    played = Stage(store=stage.store, max_tries=5).play(make)
    assert played.state == "success"
    assert [account(pod)[0] for pod in server.made] == ["1", "2", "3"]
    assert account(server.made[2])[1] is None, "it is a new count, and nothing has happened in it"


def test_a_cleared_task_may_start_again_after_its_supervisor_said_never(server: StandIn, maker: Any) -> None:
    server.tell(BAD, [running(), ended(79, "Error")], PREEMPTED, GOOD)
    stage = Stage(max_tries=3)
    make = maker(failures=1, interruptions=1, supervised=True)
    assert stage.play(make).state == "failed"
    assert Stage(store=stage.store, max_tries=7).play(make).state == "success"
    renewed = ["GPUFLOW_RUN_AFTER_FINAL" in json.dumps(pod["spec"]["containers"][0]["env"]) for pod in server.made]
    assert renewed == [True, False, True, False], "only where a person began anew"


@pytest.mark.parametrize("spoiled", ["", "{", "[1]", "7"])
def test_an_account_on_a_pod_that_somebody_spoiled_is_none(spoiled: str) -> None:
    counts = attempts.Ledger(2, failures=1, pods=1, judged=1, last={"attempt": 1}).annotations()
    pod = {"metadata": {"annotations": {**counts, attempts.LAST_ANNOTATION: spoiled}}}
    found = attempts.load_ledger({"ti": SimpleNamespace(max_tries=2)}, [pod])
    assert (found.failures, found.last) == (1, None)
