"""Attempts after the first: with more memory, off spot nodes, on another node. They must find room as well.

Tests gpuflow/checker/run.py.
"""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.checker.test_open_quotas import quota
from tests.checker.test_whole_truth import Step, Vector, can_wait, moments, pipelines, placements, written
from tests.checker.whole_scenes import Body, checked, codes, node, running, text_of

GROWS = "steps:\n  a: {command: [x], memory: 16Gi, retry: {failures: 2, more_memory: {factor: 2, max: 48Gi}}}"
SPOT_NODE = node(
    "s",
    labels={"cloud.google.com/gke-spot": "true", "cloud.google.com/gke-provisioning": "spot"},
    taints=[{"key": "cloud.google.com/gke-spot", "value": "true", "effect": "NoSchedule"}],
)


@pytest.mark.parametrize(
    ("most", "used", "verdict"), [("48Gi", "0", "always"), ("47Gi", "0", "may-queue"), ("64Gi", "20Gi", "may-queue")]
)
def test_memory_that_grows_must_stay_within_the_quota(most: str, used: str, verdict: str) -> None:
    report = checked(GROWS, quota({"requests.memory": most}, used={"requests.memory": used}))
    assert report.verdict == verdict
    assert ("GF525" in codes(report)) is (verdict != "always")


def test_an_attempt_that_can_never_be_admitted_is_told_in_the_servers_words() -> None:
    report = checked(GROWS, quota({"limits.memory": "32Gi"}))
    text = text_of(report, "GF525")
    assert 'step "a": after running out of memory, a later attempt can never be admitted' in text
    assert "requested: limits.memory=48Gi" in text


def test_memory_that_grows_must_fit_on_a_node_also_in_a_pipeline_within() -> None:
    inner = "apiVersion: gpuflow/v1, kind: Pipeline, name: s, defaults: {image: i, cpu: 1}"
    text = f"steps:\n  sub: {{pipeline: {{{inner}, steps: {{{GROWS.removeprefix('steps:').strip()}}}}}}}"
    assert checked(text, node("n", memory="48Gi")).verdict == "always"
    report = checked(text, node("n", memory="47Gi"))
    assert report.verdict == "may-queue"
    assert 'step "sub.a"' in text_of(report, "GF525")


def test_the_first_attempt_alone_decides_what_is_never() -> None:
    assert checked(GROWS, node("n", memory="15Gi")).verdict == "never"
    assert (
        checked(GROWS.replace("failures: 2", "failures: 0, interruptions: 1"), node("n", memory="16Gi")).verdict
        == "always"
    )


@pytest.mark.parametrize(
    ("interruptions", "objects", "verdict"),
    [
        (3, [SPOT_NODE], "may-queue"),
        (3, [SPOT_NODE, node("d")], "always"),
        (3, [SPOT_NODE, node("d", cpu="1"), running("r", "d", requests={"cpu": "1"})], "may-queue"),
        (1, [SPOT_NODE], "always"),  # the budget ends before the step leaves spot nodes
    ],
)
def test_a_step_that_leaves_spot_nodes_needs_others(interruptions: int, objects: list[Body], verdict: str) -> None:
    retry = f"retry: {{interruptions: {interruptions}}}"
    text = f"steps:\n  a: {{command: [x], spot: {{mode: require, fallback_after: 2}}, {retry}}}"
    assert checked(text, *objects, site="gke").verdict == verdict


@pytest.mark.parametrize(
    ("failures", "nodes", "verdict"), [(1, 1, "may-queue"), (1, 2, "always"), (2, 2, "may-queue"), (0, 1, "always")]
)
def test_a_step_that_tries_on_another_node_needs_one(failures: int, nodes: int, verdict: str) -> None:
    text = f"steps:\n  a: {{command: [x], retry: {{failures: {failures}, other_node: true}}}}"
    report = checked(text, *(node(f"n{index}") for index in range(nodes)))
    assert report.verdict == verdict
    assert ("retry.other_node keeps later attempts away" in text_of(report, "GF525")) is (verdict != "always")


def test_on_argo_interruptions_use_up_nodes_as_well() -> None:
    text = "steps:\n  a: {command: [x], retry: {interruptions: 1, other_node: true}}"
    assert checked(text, node("n"), engine="argo").verdict == "may-queue"
    assert checked(text, node("n"), engine="airflow").verdict == "always"


def can_wait_elsewhere(steps: list[Step], nodes: list[Vector], failures: int) -> bool:
    """Whether some step finds no room when its earlier attempts failed on any so many nodes."""
    for alive in moments(steps):
        for index in range(len(alive)):
            asking = steps[alive[index]]
            others = [(steps[each].gpus, steps[each].cpus) for each in (*alive[:index], *alive[index + 1 :])]
            for left in placements(nodes, others):
                for avoided in combinations(range(len(nodes)), min(failures, len(nodes))):
                    open_nodes = [each for number, each in enumerate(left) if number not in avoided]
                    if not any(gpus >= asking.gpus and cpus >= asking.cpus for gpus, cpus in open_nodes):
                        return True
    return False


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(
    pipelines(most=3),
    st.lists(st.tuples(st.integers(1, 6), st.integers(1, 8)), min_size=1, max_size=4),
    st.integers(1, 2),
)
def test_always_holds_whichever_nodes_an_attempt_failed_on(
    steps: list[Step], nodes: list[Vector], failures: int
) -> None:
    manifests = [node(f"n{index}", gpus, cpu=str(cpus)) for index, (gpus, cpus) in enumerate(nodes)]
    text = written(steps, f", retry: {{failures: {failures}, other_node: true}}")
    verdict = checked(text, *manifests).verdict
    if verdict == "always":
        assert not can_wait(steps, nodes)
        assert not can_wait_elsewhere(steps, nodes, failures)
    elif verdict == "may-queue" and len(steps) == 1 and steps[0].copies == 1:
        assert can_wait_elsewhere(steps, nodes, failures)
