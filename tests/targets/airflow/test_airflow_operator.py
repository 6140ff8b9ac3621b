"""What GpuPodOperator does when the cluster is unkind, against a stand-in for the API server.

Tests gpuflow/airflow/operator.py, gpuflow/airflow/pods.py, gpuflow/airflow/step_pods.py and gpuflow/airflow/trigger.py.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException, TaskDeferred

from gpuflow.airflow import GpuPodOperator, Pod, at_most, deadline, output, param, run_began
from gpuflow.plan import planned_step
from gpuflow.pod.build import made_pod
from gpuflow.pod.later_attempts import on_demand_fields
from gpuflow.runtime.gangs.later_attempts import EarlierAttempts
from gpuflow.site import Site
from gpuflow.spec.canonical import meaning_of
from gpuflow.targets.airflow.operators import budgets
from tests.targets.attempts import (
    GROWING,
    INTERRUPTED,
    Growing,
    Interrupted,
    memory,
    pipeline_of,
    pod_after,
    scheduling,
)

from .playing import POD, Stage, TaskState, fired
from .stand_in import (
    BAD,
    GOOD,
    PREEMPTED,
    StandIn,
    Story,
    admitted,
    ended,
    gated,
    quota_words,
    running,
    stuck,
    told_to_stop,
)

LOW_ON_MEMORY = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory. "}
SHUT_DOWN = {
    "phase": "Failed",
    "reason": "Terminated",
    "message": "Pod was terminated in response to imminent node shutdown.",
}


def test_a_step_that_ends_well_is_a_success_and_its_pod_is_deleted(server: StandIn, maker: Any) -> None:
    server.tell(GOOD)
    played = Stage().play(maker())
    assert played.state == "success"
    assert len(server.made) == 1
    assert server.pods == {}


def test_text_that_looks_like_a_template_reaches_the_pod_as_it_is(server: StandIn, maker: Any) -> None:
    server.tell(GOOD)
    Stage().play(maker())
    assert server.made[0]["spec"]["containers"][0]["command"] == ["train", "{{ not a template }}"]


def test_values_of_the_run_are_filled_in_and_safe_from_expansion(server: StandIn, maker: Any) -> None:
    template = Pod(
        {},
        spec={"containers": [{"name": "main", "image": "i", "command": [param("lr", "float"), output("a", "path")]}]},
    )
    server.tell(GOOD)
    Stage(params={"lr": 1}, outputs={("a", "path"): "$(HOME) {{x}}"}).play(maker(template=template))
    assert server.made[0]["spec"]["containers"][0]["command"] == ["1.0", "$$(HOME) {{x}}"]


def test_it_waits_for_quota_without_a_worker_and_then_runs(server: StandIn, maker: Any) -> None:
    words = quota_words("1", "8", "8")
    server.refuse("POST .*/pods", 403, words)
    server.refuse(r"POST .*/pods\?dry", 403, words, times=3)
    server.tell(GOOD)
    played = Stage().play(maker())
    assert (played.state, played.tries) == ("success", 1)
    assert server.count(r"POST .*/pods\?dry") == 4
    assert len(server.made) == 1


def test_a_step_above_the_whole_quota_fails_at_once_with_our_finding(server: StandIn, maker: Any) -> None:
    server.refuse("POST .*/pods", 403, quota_words("16", "0", "8"))
    played = Stage().play(maker(failures=3, source="finetune.yaml#L14"))
    assert (played.state, played.tries) == ("failed", 1)
    (message,) = played.messages
    assert message.startswith('finetune.yaml:14:1: GF501 step "train" can never be admitted')
    assert "16 requests.nvidia.com/gpu of the 8 that quota gpuq allows at most" in message
    assert quota_words("16", "0", "8") in message


def test_a_pod_the_api_server_calls_invalid_fails_at_once(server: StandIn, maker: Any) -> None:
    server.refuse("POST .*/pods", 422, 'Pod "p" is invalid: spec.containers[0].image: Required value')
    played = Stage().play(maker(failures=3))
    assert (played.state, played.tries) == ("failed", 1)
    assert "GF503" in played.messages[0]


def test_it_waits_in_the_kueue_queue_as_long_as_it_takes(server: StandIn, maker: Any) -> None:
    server.tell([*([gated()] * 5), admitted(), *GOOD])
    played = Stage().play(maker(startup_timeout_seconds=0))
    assert (played.state, played.tries, played.deferrals) == ("success", 1, 1)


def test_the_queue_wait_ends_at_the_limit_of_the_step(server: StandIn, maker: Any) -> None:
    server.tell([gated()] * 1000)
    played = Stage().play(maker(failures=3, queue_timeout=timedelta(seconds=-1)))
    assert (played.state, played.tries) == ("failed", 1)
    assert "waited longer than -1 day, 23:59:59: waiting in queue" in played.messages[0]
    assert server.pods == {}, "a pod that gave up must not be admitted later"


@pytest.mark.parametrize(
    "interruption",
    [
        pytest.param([None], id="deleted before it started"),
        pytest.param([running(), None], id="deleted while it ran, seen gone"),
        pytest.param([running(), told_to_stop(), ended(143, "Error")], id="deleted while it ran, seen ended"),
        pytest.param([running(), told_to_stop("EvictionByEvictionAPI"), ended(143, "Error")], id="evicted"),
        pytest.param(PREEMPTED, id="preempted"),
        pytest.param([running(), {"status": LOW_ON_MEMORY}], id="node pressure"),
        pytest.param([running(), {"status": SHUT_DOWN}], id="graceful node shutdown"),
        pytest.param([running(), told_to_stop(), ended(0)], id="exit 0 after SIGTERM"),
    ],
)
def test_an_interruption_makes_a_new_pod_in_the_same_try(server: StandIn, maker: Any, interruption: Story) -> None:
    server.tell(interruption, GOOD)
    played = Stage().play(maker(failures=0, interruptions=1))
    assert (played.state, played.tries) == ("success", 1)
    counts = [pod["metadata"]["annotations"]["gpuflow.dev/interruptions"] for pod in server.made]
    assert counts == ["0", "1"]


def test_an_interruption_beyond_the_budget_fails_for_good(server: StandIn, maker: Any) -> None:
    server.tell(PREEMPTED, PREEMPTED, PREEMPTED)
    played = Stage().play(maker(failures=5, interruptions=2))
    assert (played.state, played.tries, len(server.made)) == ("failed", 1, 3)
    assert "all 2 interruptions of the budget are used up" in played.messages[0]


def test_a_failure_costs_an_airflow_try_and_no_interruption(server: StandIn, maker: Any) -> None:
    server.tell(BAD, GOOD)
    played = Stage().play(maker(failures=1, interruptions=0))
    assert (played.state, played.tries, len(server.made)) == ("success", 2, 2)


def test_a_failure_beyond_the_budget_fails_although_airflow_has_tries_left(server: StandIn, maker: Any) -> None:
    server.tell(BAD, BAD, GOOD)
    played = Stage().play(maker(failures=1))
    assert (played.state, played.tries, len(server.made)) == ("failed", 2, 2)


@pytest.mark.parametrize("store", [True, False], ids=["task state", "pods only"])
def test_mixed_sequences_spend_both_budgets_exactly(server: StandIn, maker: Any, store: bool) -> None:
    server.tell(PREEMPTED, BAD, PREEMPTED, BAD, PREEMPTED, GOOD)
    stage = Stage() if store else Stage(store=None)
    played = stage.play(maker(failures=2, interruptions=3))
    assert (played.state, played.tries, len(server.made)) == ("success", 3, 6)

    server.made.clear()
    server.pods.clear()
    server.tell(PREEMPTED, BAD, PREEMPTED, PREEMPTED)
    played = (Stage() if store else Stage(store=None)).play(maker(failures=2, interruptions=2))
    assert (played.state, len(server.made)) == ("failed", 4)
    assert "interruptions" in played.messages[-1]


def test_a_final_exit_code_ends_the_step_whatever_is_left(server: StandIn, maker: Any) -> None:
    server.tell([running(), ended(3, "Error")], GOOD)
    played = Stage().play(maker(failures=5, interruptions=5, final_exit_codes=(3,)))
    assert (played.state, len(server.made)) == ("failed", 1)


def test_the_supervisors_final_code_ends_the_step(server: StandIn, maker: Any) -> None:
    server.tell([running(), ended(79, "Error", "budget spent")], GOOD)
    played = Stage().play(maker(failures=5, interruptions=5, supervised=True))
    assert (played.state, len(server.made)) == ("failed", 1)
    assert "budget spent" in played.messages[0]


def test_running_out_of_memory_is_a_failure_and_the_next_try_gets_more(server: StandIn, maker: Any) -> None:
    out = [running(), ended(137, "OOMKilled")]
    server.tell(out, out, GOOD)
    played = Stage().play(maker(failures=2, more_memory={"factor": 2.0, "max": "10Gi"}))
    assert (played.state, played.tries) == ("success", 3)
    memory = [pod["spec"]["containers"][0]["resources"]["limits"]["memory"] for pod in server.made]
    assert memory == ["4Gi", "8Gi", "10Gi"]


@pytest.mark.parametrize("case", GROWING.values(), ids=list(GROWING))
def test_every_try_has_the_memory_that_the_one_maker_gives(server: StandIn, maker: Any, case: Growing) -> None:
    step = pipeline_of(case.text)
    arguments = budgets(step.effective("a").retry)
    more = {key: arguments[key] for key in ("failures", "more_memory") if key in arguments}
    first = pod_after(case.text, EarlierAttempts())
    out = [running(), ended(137, "OOMKilled")]
    server.tell(*[out] * case.failures, GOOD)
    Stage().play(maker(template=Pod({}, spec=first), **more))
    expected = [
        memory(pod_after(case.text, EarlierAttempts(out_of_memory=times))) for times in range(case.failures + 1)
    ]
    assert [memory(pod["spec"]) for pod in server.made] == expected


@pytest.mark.parametrize("case", INTERRUPTED[::3], ids=str)
def test_every_pod_stands_where_the_one_maker_puts_it(server: StandIn, maker: Any, case: Interrupted) -> None:
    pipeline = meaning_of(pipeline_of(case.text))
    plain = on_demand_fields(made_pod(planned_step(pipeline, "a", meaning_of(Site.load(case.site)))))
    first = pod_after(case.text, EarlierAttempts(), case.site)
    server.tell(*[PREEMPTED] * case.interruptions, GOOD)
    named = {"interruptions": case.interruptions, "fallback_after": case.after, "on_demand": plain}
    Stage().play(maker(template=Pod({}, spec=first), **named))
    expected = [
        scheduling(pod_after(case.text, EarlierAttempts(interruptions=times), case.site))
        for times in range(case.interruptions + 1)
    ]
    assert [scheduling(pod["spec"]) for pod in server.made] == expected


def test_after_a_failure_the_next_try_stays_off_the_node_where_it_failed(server: StandIn, maker: Any) -> None:
    server.tell([running("gpu-1"), ended(1)], [running("gpu-2"), ended(1)], PREEMPTED, GOOD)
    played = Stage().play(maker(failures=2, interruptions=1, other_node=True))
    assert played.state == "success"
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    refused = []
    for pod in server.made:
        affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {}).get(required, {"nodeSelectorTerms": [{}]})
        (term,) = affinity["nodeSelectorTerms"]
        refused.append([field["values"] for field in term.get("matchFields", ())])
    both = [["gpu-1"], ["gpu-2"]]
    assert refused == [[], [["gpu-1"]], both, both]


def test_staying_off_a_node_keeps_every_choice_the_step_already_had(server: StandIn, maker: Any) -> None:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    zones = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]} for zone in ("a", "b")]
    affinity = {"nodeAffinity": {required: {"nodeSelectorTerms": zones}}}
    server.tell([running("gpu-1"), ended(1)], GOOD)
    Stage().play(maker(failures=1, other_node=True, template=Pod({}, spec={**POD.spec, "affinity": affinity})))
    elsewhere = [{"key": "metadata.name", "operator": "NotIn", "values": ["gpu-1"]}]
    made = server.made[1]["spec"]["affinity"]["nodeAffinity"][required]["nodeSelectorTerms"]
    assert made == [{**zone, "matchFields": elsewhere} for zone in zones]


@pytest.mark.parametrize("story", [[gated()] * 1000, [running()] * 1000])
def test_when_a_sub_pipelines_time_is_over_its_tasks_fail_for_good(server: StandIn, maker: Any, story: Story) -> None:
    server.tell(story)
    begun = {("evaluate.begin", "return_value"): [time.time() - 3599]}
    limit = deadline("evaluate", timedelta(hours=1), since=output("evaluate.begin", "return_value", "float"))
    played = Stage(outputs=begun).play(maker(failures=3, deadlines=[limit]))
    assert (played.state, played.tries, server.pods) == ("failed", 1, {})
    assert "the sub-pipeline evaluate took longer than its time limit of 1:00:00" in played.messages[0]


@pytest.mark.parametrize("story", [[gated()] * 1000, [running()] * 1000])
def test_when_a_runs_time_is_over_its_tasks_fail_and_take_their_pods_with_them(
    server: StandIn, maker: Any, story: Story
) -> None:
    server.tell(story)
    began = datetime.now(tz=UTC) - timedelta(seconds=3599)
    limit = deadline("", timedelta(hours=1), since=run_began())
    played = Stage(began=began).play(maker(failures=3, deadlines=[limit]))
    assert (played.state, played.tries, server.pods) == ("failed", 1, {})
    assert "the run took longer than its deadline of 1:00:00" in played.messages[0]


def test_no_pod_is_made_when_a_sub_pipelines_time_is_over_already(server: StandIn, maker: Any) -> None:
    begun = {("evaluate.begin", "return_value"): [time.time() - 3601]}
    limit = deadline("evaluate", timedelta(hours=1), since=output("evaluate.begin", "return_value", "float"))
    assert Stage(outputs=begun).play(maker(deadlines=[limit])).state == "failed"
    assert server.made == []


@pytest.mark.parametrize(("waits_for", "ends"), [(1, "success"), (2, "failed")])
def test_each_pod_may_wait_in_the_queue_as_long_as_the_step_allows(
    server: StandIn, maker: Any, waits_for: int, ends: str
) -> None:
    """The first pod began to wait an hour ago, ran and was interrupted; or it is the second that has waited so long."""
    stage, make = Stage(), maker(interruptions=1, queue_timeout=timedelta(minutes=30))
    assert stage.store is not None
    counts = {"epoch": make().retries, "interruptions": 1, "pods": 1}
    stage.store.set("gpuflow_ledger", {**counts, "queued_for": waits_for, "queued_at": int(time.time()) - 3600})
    server.tell([gated(), gated(), *GOOD])
    played = stage.play(make)
    assert played.state == ends
    assert ("waited longer than 0:30:00" in str(played.messages)) == (ends == "failed")


def test_after_enough_spot_losses_the_pod_asks_for_on_demand_nodes(server: StandIn, maker: Any) -> None:
    server.tell(PREEMPTED, PREEMPTED, GOOD)
    plain = {"tolerations": None, "nodeSelector": {"pool": "on-demand"}}
    played = Stage().play(maker(interruptions=5, fallback_after=2, on_demand=plain))
    assert played.state == "success"
    assert ["tolerations" in pod["spec"] for pod in server.made] == [True, True, False]
    assert server.made[2]["spec"]["nodeSelector"] == {"pool": "on-demand"}


def test_a_lost_worker_costs_no_budget_and_the_pod_is_found_again(server: StandIn, maker: Any) -> None:
    make = maker(failures=0, interruptions=0)
    stage = Stage()
    server.tell(GOOD)
    with pytest.raises(TaskDeferred):
        make().execute(stage.context(make(), 1))
    played = stage.play(make, tries_before=1)
    assert (played.state, played.tries, len(server.made)) == ("success", 2, 1)


def test_a_pod_that_ended_while_no_worker_looked_is_judged_not_repeated(server: StandIn, maker: Any) -> None:
    make = maker(failures=0)
    stage = Stage()
    server.tell([])
    with pytest.raises(TaskDeferred):
        make().execute(stage.context(make(), 1))
    (name,) = server.pods
    server.pods[name] |= {"status": {**ended(0)["status"]}}
    played = stage.play(make, tries_before=1)
    assert (played.state, len(server.made)) == ("success", 1)


def test_clearing_a_task_starts_both_counts_anew(server: StandIn, maker: Any) -> None:
    make, state = maker(failures=0, interruptions=1), TaskState()
    server.tell(PREEMPTED, PREEMPTED, PREEMPTED, GOOD)
    assert Stage(store=state).play(make).state == "failed"
    cleared = Stage(store=state, max_tries=5).play(make, tries_before=2)
    assert cleared.state == "success"


@pytest.mark.parametrize("status", [409, 429, 500, 503])
def test_a_busy_api_server_costs_nothing_when_a_pod_is_made(server: StandIn, maker: Any, status: int) -> None:
    server.refuse("POST .*/pods", status, "the object has been modified", "Conflict")
    server.refuse(r"POST .*/pods\?dry", status, "busy", times=2)
    server.tell(GOOD)
    played = Stage().play(maker())
    assert (played.state, played.tries, len(server.made)) == ("success", 1, 1)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_api_server_costs_nothing_while_a_pod_is_watched(server: StandIn, maker: Any, status: int) -> None:
    server.refuse("GET .*/pods/[^/]+", status, "busy", times=4)
    server.tell(GOOD)
    played = Stage().play(maker())
    assert (played.state, played.tries, len(server.made)) == ("success", 1, 1)


def test_a_lost_answer_to_a_create_request_makes_no_second_pod(server: StandIn, maker: Any) -> None:
    server.refuse("POST .*/pods", 500, "etcdserver: request timed out", done=True)
    server.tell(GOOD)
    played = Stage().play(maker())
    assert (played.state, played.tries, len(server.made)) == ("success", 1, 1)


def test_a_broken_log_stream_does_not_fail_the_task(server: StandIn, maker: Any) -> None:
    server.refuse("GET .*/log", 500, "stream broken", times=9)
    server.tell(GOOD)
    assert Stage().play(maker()).state == "success"


def test_exit_code_0_of_a_killed_supervised_step_is_success_only_with_its_marker(server: StandIn, maker: Any) -> None:
    server.tell([running(), told_to_stop(), ended(75, "Error")], GOOD)
    played = Stage().play(maker(supervised=True, interruptions=1))
    assert (played.state, len(server.made)) == ("success", 2)


def test_a_task_that_is_told_to_stop_while_it_decides_is_never_green(server: StandIn, maker: Any) -> None:
    make, stage = maker(), Stage()
    server.tell([])
    with pytest.raises(TaskDeferred):
        make().execute(stage.context(make()))
    (name,) = server.pods
    server.pods[name] |= {"status": {**ended(0)["status"]}}
    operator = make()
    operator._deciding = True
    operator.on_kill()
    with pytest.raises(AirflowException, match="told to stop"):
        operator.resume(stage.context(operator), {"what": "ended", "name": name, "namespace": "ml"})
    assert name in server.pods, "what happened stays readable"


def test_a_task_that_outlives_its_execution_timeout_takes_its_pod_with_it(server: StandIn, maker: Any) -> None:
    server.tell([running()] * 1000, GOOD)
    played = Stage().play(maker(failures=0, execution_timeout=timedelta(seconds=-1)))
    assert (played.state, server.pods) == ("failed", {})
    assert "execution_timeout" in played.messages[0]


def test_a_worker_that_is_told_to_stop_while_it_waits_deletes_the_pod_and_fails(server: StandIn, maker: Any) -> None:
    make = maker(deferrable=False, interruptions=5)
    operator, stage = make(), Stage()
    server.tell([running(), running()])
    real, seen = server.answer, []

    def answer(method: str, url: str, body: Any) -> Any:
        if method == "GET" and "/pods/finetune" in url:
            seen.append(url)
            if len(seen) == 3:
                operator.on_kill()
        return real(method, url, body)

    server.answer = answer  # type: ignore[method-assign]  # a fault put in by hand
    with pytest.raises(AirflowException, match="told to stop"):
        operator.execute(stage.context(operator))
    assert server.pods == {}


def test_a_pod_that_ended_well_and_was_then_cleaned_away_by_others_is_a_success(server: StandIn, maker: Any) -> None:
    make, stage = maker(), Stage()
    server.tell([])
    with pytest.raises(TaskDeferred) as pause:
        make().execute(stage.context(make()))
    (name,) = server.pods
    server.pods[name] |= {"status": {**ended(0)["status"]}}
    event = fired(pause.value.trigger)
    server.pods.clear()
    assert make().resume(stage.context(make()), event) is None


def test_outputs_that_cannot_be_read_at_once_are_asked_for_again(
    server: StandIn, maker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Any] = [RuntimeError("exec refused"), RuntimeError("exec refused"), {"loss": "0.5"}]

    def extract(self: Any, pod: Any) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(GpuPodOperator, "extract_xcom", extract)
    monkeypatch.setattr("gpuflow.airflow.step_pods.time.sleep", lambda seconds: None)
    server.tell(GOOD)
    played = Stage().play(maker(outputs={"loss": "float"}))
    assert (played.state, played.result, len(server.made)) == ("success", {"loss": 0.5}, 1)


def test_outputs_that_vanished_with_their_pod_make_it_an_interruption(
    server: StandIn, maker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def extract(self: Any, pod: Any) -> Any:
        if len(server.made) == 1:
            server.pods.clear()
            raise RuntimeError("pod not found")
        return {"loss": 0.5}

    monkeypatch.setattr(GpuPodOperator, "extract_xcom", extract)
    monkeypatch.setattr("gpuflow.airflow.step_pods.time.sleep", lambda seconds: None)
    server.tell(GOOD, GOOD)
    played = Stage().play(maker(outputs={"loss": "float"}, interruptions=1))
    assert (played.state, played.tries, len(server.made)) == ("success", 1, 2)


def test_an_image_that_cannot_be_had_is_a_failure_after_a_while_not_a_wait_for_ever(
    server: StandIn, maker: Any
) -> None:
    server.tell([stuck("ImagePullBackOff")] * 1000, GOOD)
    played = Stage().play(maker(failures=1, startup_timeout_seconds=0))
    assert (played.state, played.tries) == ("success", 2)


def test_pods_of_one_run_never_exceed_the_runs_limit(server: StandIn, maker: Any) -> None:
    server.tell([], GOOD)
    stage = Stage()
    first, second = maker(limits=[at_most(1)], task_id="one"), maker(limits=[at_most(1)], task_id="two")
    with pytest.raises(TaskDeferred):
        first().execute(stage.context(first()))
    with pytest.raises(TaskDeferred) as pause:
        second().execute(stage.context(second()))
    assert pause.value.trigger.wait_for == "room"
    assert len(server.made) == 1
    server.pods.clear()
    assert stage.play(second).state == "success"


def test_of_two_pods_that_took_the_last_place_at_once_the_later_goes(server: StandIn, maker: Any) -> None:
    make = maker(limits=[at_most(1)])
    operator, stage = make(), Stage()
    server.tell([], GOOD)
    other = maker(task_id="other", limits=[at_most(1)])
    with pytest.raises(TaskDeferred):
        other().execute(stage.context(other()))
    operator._is_crowded = lambda context: False
    with pytest.raises(TaskDeferred) as pause:
        operator.execute(stage.context(operator))
    assert pause.value.trigger.wait_for == "room"
    assert [pod["metadata"]["labels"]["task_id"] for pod in server.pods.values()] == ["other"]


def test_a_condition_that_is_false_skips_the_task_before_any_pod(server: StandIn, maker: Any) -> None:
    when = (output("evaluate", "accuracy", "float") > 0.9) & param("deploy")
    stage = Stage(params={"deploy": True}, outputs={("evaluate", "accuracy"): 0.5})
    played = stage.play(maker(when=when))
    assert (played.state, len(server.made)) == ("skipped", 0)


@pytest.mark.parametrize(
    ("state", "ends"), [("success", "skipped"), ("failed", "success"), ("upstream_failed", "success")]
)
def test_an_exit_step_for_failures_runs_only_after_one(server: StandIn, maker: Any, state: str, ends: str) -> None:
    server.tell(GOOD)
    assert Stage(states={"a": "success", "b": state}).play(maker(only_after_failure=True)).state == ends


def test_without_a_triggerer_the_worker_waits_in_the_same_way(server: StandIn, maker: Any) -> None:
    server.tell(PREEMPTED, GOOD)
    played = Stage().play(maker(deferrable=False, interruptions=1))
    assert (played.state, played.deferrals, len(server.made)) == ("success", 0, 2)


@pytest.mark.parametrize(("policy", "left"), [("delete_pod", 0), ("delete_succeeded_pod", 1), ("keep_pod", 2)])
def test_pods_are_deleted_or_kept_by_policy(server: StandIn, maker: Any, policy: str, left: int) -> None:
    server.tell(BAD, GOOD)
    assert Stage().play(maker(failures=1, on_finish_action=policy)).state == "success"
    assert len(server.pods) == left
