"""Workloads of other queues: whoever waits in one, or was admitted, may come to the nodes that the pipeline needs.

Tests gpuflow/checker/pipeline/nodes/pending.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.checker.kueue.scenes import cluster_queue, flavor, holder, local_queue, pod_set, with_spec, workload
from tests.checker.whole_scenes import A100, TAINT, Body, checked, codes, node, queues, quota, text_of

QUEUED = "steps:\n  a: {command: [x], gpu: a100-80gb x 2, queue: lq, retry: {interruptions: 1}}"
FLAVOR = [flavor("f", nodeLabels=A100)]


def two_teams(ours: int, theirs: int, asked: int = 2, cpu: str = "1", **spec: Any) -> list[Body]:
    """Our queue, and another one that is full and in which somebody waits. They share nodes and no quota."""
    small = {"cpu": "8", "memory": "64Gi"}
    held = holder("h", {"f": {"nvidia.com/gpu": str(theirs)}}, queue="cq2")
    held["spec"]["podSets"] = [with_spec(pod_set(), **spec)]
    return [
        *queues({"f": quota(ours, **small)}, flavors=FLAVOR),
        cluster_queue({"f": quota(theirs, **small)}, name="cq2"),
        local_queue("lq2", "cq2"),
        held,
        workload(with_spec(pod_set(gpu=str(asked), cpu=cpu), **spec), name="w", spec={"queueName": "lq2"}),
    ]


SCENES: dict[str, tuple[list[Body], str]] = {
    "the nodes have all that the queues give out": ([*two_teams(2, 2), node("n", 4)], "always"),
    "two queues give out the same GPUs": ([*two_teams(2, 2), node("n", 2)], "may-queue"),
    "they do, and both still find room": ([*two_teams(4, 4), node("n", 2), node("m", 2)], "always"),
    "a cordoned node is none": ([*two_teams(2, 2), node("n", 2), node("m", 2, unschedulable=True)], "may-queue"),
    "the other does not tolerate our nodes": ([*two_teams(2, 2), node("n", 2, taints=[TAINT])], "always"),
    "the other belongs elsewhere": ([*two_teams(2, 2, nodeSelector={"x": "y"}), node("n", 2)], "always"),
    "only cpus are given out twice, and there are enough": ([*two_teams(2, 2), node("n", 4, cpu="12")], "always"),
    "cpus are given out twice": ([*two_teams(2, 2, cpu="8"), node("n", 4, cpu="8")], "may-queue"),
}


@pytest.mark.parametrize("name", SCENES)
def test_a_workload_of_another_queue_counts_on_the_nodes_that_it_may_be_sent_to(name: str) -> None:
    objects, verdict = SCENES[name]
    assert checked(QUEUED, *objects).verdict == verdict


def test_the_workloads_are_named_with_their_queue() -> None:
    report = checked(QUEUED, *two_teams(2, 2), node("n", 2))
    assert codes(report) == ["GF524"]
    assert (
        "pods team-a/h (admitted by queue cq2) and team-a/w (in queue cq2) wait for a node too and may get it first"
        in text_of(report, "GF524")
    )
