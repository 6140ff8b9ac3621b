"""What waiting costs: deadlines that run on, quota that waiting pods hold, runs that overlap, GPU pods ranked last.

Tests gpuflow/checker/rules/deadlocks.py, gpuflow/checker/rules/pods.py and gpuflow/checker/run.py.
"""

from __future__ import annotations

import pytest

from gpuflow.engines import NO_ENGINE, engine_names, facts_of
from tests.checker.advice_scenes import BARE, limit_range, of, only, queue, quota, told

BUDGET = "retry: {interruptions: 1}"
QUEUED = f"steps: {{a: {{command: [x], queue: research, gpu: a100-80gb, {BUDGET}}}}}"
FAN = f"steps: {{a: {{command: [x], queue: research, for_each: {{i: {{range: 5}}}}, gpu: a100-80gb, {BUDGET}}}}}"
GPUS = "requests.nvidia.com/gpu"
ROOMY = {"cpu": "99", "memory": "99Gi", "nvidia.com/gpu": "99"}


@pytest.mark.parametrize("engine", [NO_ENGINE, *engine_names()])
@pytest.mark.parametrize("what", ["quota", "queue", "nodes", "objects"])
def test_every_engine_says_what_waiting_means_in_one_short_sentence(engine: str, what: str) -> None:
    sentence = facts_of(engine).waits[what]  # type: ignore[index]  # the four words
    assert sentence.endswith(".")
    assert len(sentence) < 200


def test_a_line_that_may_queue_says_what_its_engine_does() -> None:
    two = "steps: {a: {command: [x], gpu: a100-80gb}, b: {command: [x], gpu: a100-80gb}}"
    airflow = only(told(two, quota({GPUS: "1"}), engine="airflow"), "GF512").hint or ""
    assert "GpuPodOperator, which gpuflow compile writes, waits" in airflow
    assert "asks again every 10 s" in (only(told(two, quota({GPUS: "1"}), engine="argo"), "GF512").hint or "")


def test_finished_pods_in_the_way_are_not_called_waiting() -> None:
    many = "steps: {a: {command: [x], for_each: {i: {range: 5}}}}"
    hint = only(told(many, quota({"count/pods": "4"}), engine="argo"), "GF512").hint or ""
    assert "podGC" in hint


def test_a_deadline_over_a_queue_is_noted_and_a_timeout_is_not() -> None:
    finding = only(told("deadline: 2h\n" + QUEUED), "GF552")
    assert finding.severity == "note"
    assert 'the deadline of 2h keeps running while step "a" may wait in a queue' in finding.message
    assert (finding.where.file, finding.where.line) == ("p.yaml", 5)
    assert of(told(QUEUED.replace("command: [x]", "command: [x], timeout: 2h")), "GF552") == []
    assert of(told("deadline: 2h\n" + QUEUED.replace("queue: research, ", "")), "GF552") == []


def test_a_deadline_over_a_quota_that_runs_out_is_a_warning() -> None:
    text = "deadline: 2h\nsteps: {a: {command: [x]}, b: {command: [x]}}"
    assert only(told(text, quota({"pods": "1"})), "GF552").severity == "warning"
    assert of(told(text, quota({"pods": "2"})), "GF552") == []


def test_queued_pods_that_use_up_a_quota_while_they_wait_are_pointed_out_once() -> None:
    report = told(FAN, quota({GPUS: "3", "requests.cpu": "3"}) + queue({**ROOMY, "nvidia.com/gpu": "2"}))
    finding = only(report, "GF554")
    assert "wait in queue research" in finding.message
    assert "a quota of 5 is enough for all pods that may wait; or let only the queue count it" in (finding.hint or "")


def test_a_quota_as_large_as_what_may_wait_is_not_pointed_out() -> None:
    assert of(told(FAN, quota({GPUS: "5"}) + queue({**ROOMY, "nvidia.com/gpu": "2"})), "GF554") == []


def test_a_step_that_does_not_get_in_at_all_holds_nothing() -> None:
    assert of(told(QUEUED, quota({GPUS: "2"}, {GPUS: "2"})), "GF554") == []


def test_pods_that_wait_in_no_queue_hold_no_quota() -> None:
    assert of(told(FAN.replace("queue: research, ", ""), quota({GPUS: "3"})), "GF554") == []


def test_overlapping_runs_are_noted_until_they_are_counted() -> None:
    text = 'schedule: {cron: "0 * * * *", concurrency: %s}\nsteps: {a: {command: [x]}}'
    assert "--runs N" in (only(told(text % "allow"), "GF553").hint or "")
    assert of(told(text % "allow", runs=2), "GF553") == []
    assert of(told(text % "forbid"), "GF553") == []


@pytest.mark.parametrize(
    ("engine", "verdict"), [("argo", "never"), ("kubeflow", "never"), ("airflow", "always"), ("none", "always")]
)
def test_a_deadline_makes_pods_count_as_terminating_where_the_engine_writes_it_on_them(
    engine: str, verdict: str
) -> None:
    for_terminating = quota({"pods": "0"}).replace("spec:\n", "spec:\n  scopes: [Terminating]\n")
    assert told("deadline: 2h\nsteps: {a: {command: [x]}}", for_terminating, engine=engine).verdict == verdict


def test_exit_steps_outlive_the_deadline() -> None:
    for_terminating = quota({"pods": "1"}).replace("spec:\n", "spec:\n  scopes: [Terminating]\n")
    text = "deadline: 2h\nsteps: {a: {command: [x]}}\nexit: {b: {command: [x]}, c: {command: [x]}}"
    assert told(text, for_terminating, engine="argo").verdict == "always"


GPU_ONLY = "steps: {a: {command: [x], gpu: a100-80gb}, b: {command: [x], gpu: a100-80gb}, c: {command: [x]}}"


def test_gpu_pods_without_cpu_and_memory_are_said_to_be_best_effort_once() -> None:
    finding = only(told(GPU_ONLY, defaults=BARE), "GF551")
    assert finding.message.startswith("steps a, b ask for GPUs but not for cpu or memory: their pods are BestEffort")
    assert finding.severity == "warning"


def test_a_limit_range_or_one_number_makes_them_burstable() -> None:
    assert of(told(GPU_ONLY, limit_range(type="Container", default={"cpu": "1"}), defaults=BARE), "GF551") == []
    assert of(told(GPU_ONLY, defaults="defaults: {image: i, memory: 1Gi}\n"), "GF551") == []
    assert of(told("steps: {c: {command: [x]}}", defaults=BARE), "GF551") == []
