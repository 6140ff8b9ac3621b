"""A queue that will not take a step: Kueue's sentence, and what its numbers say can be done.

Tests gpuflow/checker/hints/refusals.py and gpuflow/checker/pipeline/queues/findings.py.
"""

from __future__ import annotations

import pytest

from tests.checker.advice_scenes import of, only, queue, told

STEP = "steps: {a: {command: [x], queue: research, gpu: a100-80gb x 2, retry: {interruptions: 1}}}"
FULL = {"cpu": "9", "memory": "9Gi", "nvidia.com/gpu": "4"}
GFD = "nvidia.com/gpu.product"


def hint(cluster: str, step: str = STEP) -> str:
    report = told(step, cluster)
    assert report.verdict == "never"
    finding = only(report, "GF507")
    assert finding.kubernetes
    return finding.hint or ""


def test_a_queue_that_covers_gpus_alone_is_told_to_cover_cpu_and_memory_too() -> None:
    text_of = hint(queue({"nvidia.com/gpu": "4"}))
    assert "ClusterQueue cq covers nvidia.com/gpu; the step also asks for cpu, memory" in text_of
    assert "excludeResourcePrefixes" in text_of


def test_a_step_above_all_that_its_queue_can_have_is_told_the_most() -> None:
    text_of = hint(queue({**FULL, "nvidia.com/gpu": "1"}))
    assert "nvidia.com/gpu: the queue can give at most 1 in flavor f" in text_of


def test_flavors_for_other_gpus_are_named_by_the_gpu() -> None:
    text_of = hint(queue(FULL, flavor_labels={GFD: "NVIDIA-L4", "zone": "a"}))
    assert f"the queue's flavors are for f: {GFD}=NVIDIA-L4" in text_of


def test_a_flavor_behind_a_taint_names_the_taint() -> None:
    text_of = hint(queue(FULL, taints=[{"key": "team", "value": "x", "effect": "NoSchedule"}]))
    assert "flavor f: tolerate team (" in text_of


@pytest.mark.parametrize(
    "stopped", [{"stopPolicy": "Hold"}, {"stopPolicy": "HoldAndDrain"}, {"local": {"stopPolicy": "Hold"}}]
)
def test_a_stopped_queue_is_said_to_be_stopped(stopped: dict[str, object]) -> None:
    assert "it is stopped (stopPolicy)" in hint(queue(FULL, **stopped))  # type: ignore[arg-type]  # any field of a spec


def test_a_queue_for_other_namespaces_says_so() -> None:
    home = "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: ns}\n"
    assert "is not for this namespace" in hint(queue(FULL, selector={"matchLabels": {"team": "other"}}) + home)


def test_a_misspelled_queue_is_answered_with_the_queues_there_are() -> None:
    assert 'did you mean "research"?' in hint(queue(FULL), STEP.replace("queue: research", "queue: reserch"))


def test_a_step_that_its_queue_takes_gets_no_such_finding() -> None:
    assert of(told(STEP, queue(FULL)), "GF507") == []
