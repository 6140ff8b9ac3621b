"""The judge against scenes whose answer follows from a rule that one can name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from proofs.checker import manifests as m
from proofs.checker.case import NAMESPACE, OTHERS, Case, Manifest
from proofs.checker.judge import Judge, Truth
from tests.differential.oracle import OracleUnavailable

pytestmark = pytest.mark.go


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    try:
        with Judge() as running:
            yield running
    except OracleUnavailable as missing:
        if os.environ.get("CI"):
            pytest.fail(str(missing))
        pytest.skip(str(missing))


def judged(judge: Judge, steps: Manifest, *objects: Manifest, engine: str = "argo", **more: Any) -> Truth:
    pipeline = {
        "apiVersion": "gpuflow/v1",
        "kind": "Pipeline",
        "name": "p",
        "defaults": {"image": "i", "cpu": 1, "memory": "1Gi"},
        "steps": {name: {"command": ["x"], **step} for name, step in steps.items()},
    }
    shown = (m.namespace(), m.namespace(OTHERS), *objects)
    return judge.truths([Case("by hand", (), pipeline, engine, shown, **more)])[0]


def gpus(count: int) -> Manifest:
    return {"gpu": f"a100-80gb x {count}"}


def queue(name: str, gpu: int, **spec: Any) -> list[Manifest]:
    numbers = {"cpu": {"nominalQuota": "99"}, "memory": {"nominalQuota": "99Gi"}}
    quota = {"f": {**numbers, "nvidia.com/gpu": {"nominalQuota": str(gpu), **spec.pop("limits", {})}}}
    return [
        m.cluster_queue(f"cq-{name}", quota, **spec),
        m.local_queue(name, f"cq-{name}"),
        m.local_queue(name, f"cq-{name}", OTHERS),
    ]


@pytest.mark.parametrize(("there", "truth"), [(4, "always"), (3, "may-queue"), (1, "never")])
def test_steps_side_by_side_on_a_node(judge: Judge, there: int, truth: str) -> None:
    assert judged(judge, {"a": gpus(2), "b": gpus(2)}, m.node("n", there, 9)).word == truth


def test_steps_in_a_row_need_room_for_one(judge: Judge) -> None:
    assert judged(judge, {"a": gpus(2), "b": {**gpus(2), "needs": ["a"]}}, m.node("n", 2, 9)).word == "always"


@pytest.mark.parametrize(("hard", "truth"), [("2", "always"), ("1", "may-queue"), ("0", "never")])
def test_a_quota_of_pods(judge: Judge, hard: str, truth: str) -> None:
    assert judged(judge, {"a": {}, "b": {}}, m.node("n", 0, 9), m.quota("q", {"pods": hard})).word == truth


@pytest.mark.parametrize(
    ("engine", "kept", "truth"),
    [("argo", "kept", "never"), ("argo", "collected", "may-queue"), ("airflow", "deleted", "always")],
)
def test_what_has_ended_counts_until_it_is_deleted(judge: Judge, engine: str, kept: str, truth: str) -> None:
    steps: Manifest = {"a": {}, "b": {"needs": ["a"]}}
    found = judged(judge, steps, m.node("n", 0, 9), m.quota("q", {"count/pods": "1"}), engine=engine, kept=(kept,))
    assert found.word == truth


def test_others_may_end_and_may_not(judge: Judge) -> None:
    assert judged(judge, {"a": gpus(1)}, m.node("n", 1, 9), m.pod("busy", 1, 1, "n")).word == "may-queue"


def test_the_pods_of_a_daemon_set_stay(judge: Judge) -> None:
    owner = {"ownerReferences": [{"kind": "DaemonSet", "name": "d", "uid": "u", "apiVersion": "apps/v1"}]}
    assert judged(judge, {"a": {"cpu": 2}}, m.node("n", 0, 2), m.pod("d", 0, 1, "n", metadata=owner)).word == "never"


def test_a_strict_queue_behind_a_giant_never_moves(judge: Judge) -> None:
    giant = m.workload("giant", "lq", 40, 1, 1)
    for strategy, truth in (("StrictFIFO", "never"), ("BestEffortFIFO", "always")):
        objects = [m.node("n", 4, 9), m.flavor("f"), *queue("lq", 4, queueingStrategy=strategy), giant]
        assert judged(judge, {"a": {**gpus(1), "queue": "lq"}}, *objects).word == truth


def test_what_a_queue_does_not_lend_is_not_borrowed(judge: Judge) -> None:
    steps: Manifest = {"a": {**gpus(2), "queue": "mine"}, "b": {**gpus(2), "queue": "mine"}}
    for lent, truth in (("2", "always"), ("1", "may-queue")):
        objects = [
            m.node("n", 9, 9),
            m.flavor("f"),
            *queue("mine", 2, cohortName="co"),
            *queue("theirs", 2, cohortName="co", limits={"lendingLimit": lent}),
        ]
        assert judged(judge, steps, *objects).word == truth


def test_a_flavor_without_nodes_holds_its_pod_for_ever(judge: Judge) -> None:
    objects = [m.node("n", 4, 9), m.flavor("f", nodeLabels={"pool": "none"}), *queue("lq", 4)]
    assert judged(judge, {"a": {**gpus(1), "queue": "lq"}}, *objects).word == "never"


def test_workload_objects_count(judge: Judge) -> None:
    steps: Manifest = {"a": {**gpus(1), "queue": "lq"}, "b": {**gpus(1), "queue": "lq"}}
    objects = [m.node("n", 4, 9), m.flavor("f"), *queue("lq", 4)]
    for hard, truth in (("2", "always"), ("1", "never")):
        counted = m.quota("q", {"count/workloads.kueue.x-k8s.io": hard})
        assert judged(judge, steps, *objects, counted, kept=("kept",)).word == truth


def test_kubeflow_stores_its_drivers(judge: Judge) -> None:
    for hard, truth in (("3", "always"), ("2", "never")):
        objects = [m.node("n", 0, 9), m.quota("q", {"count/pods": hard})]
        assert judged(judge, {"a": {}}, *objects, engine="kubeflow").word == truth


def test_a_parallel_cap_is_kept(judge: Judge) -> None:
    case_steps: Manifest = {"a": {**gpus(1), "for_each": {"i": [1, 2, 3]}, "parallel": 1}}
    assert judged(judge, case_steps, m.node("n", 1, 9)).word == "always"


def test_a_namespace_that_is_being_deleted_takes_nothing(judge: Judge) -> None:
    ending = m.namespace(NAMESPACE, status={"phase": "Terminating"})
    pipeline_case = judged(judge, {"a": {}}, m.node("n", 0, 9), worlds=((ending, m.node("n", 0, 9)),))
    assert pipeline_case.word == "never"


def test_an_own_step_that_evicts_another_is_no_always(judge: Judge) -> None:
    steps: Manifest = {
        "a": {**gpus(2), "queue": "lq", "priority": {"queue": "low"}},
        "b": {**gpus(2), "queue": "lq", "priority": {"queue": "high"}},
    }
    evicts = {
        "withinClusterQueue": "LowerPriority",
        "reclaimWithinCohort": "Never",
        "borrowWithinCohort": {"policy": "Never"},
    }
    objects = [m.node("n", 9, 9), m.flavor("f"), *queue("lq", 2, preemption=evicts)]
    classes = [m.priority_class("low", 1), m.priority_class("high", 100)]
    found = judged(judge, steps, *objects, *classes)
    assert found.word == "may-queue"
