"""Whole pipelines on the nodes of a cluster: always, after waiting, never, or unknown.

Tests gpuflow/checker/pipeline/nodes/verdicts.py, gpuflow/checker/pipeline/placement.py and
gpuflow/checker/pipeline/pod_groups.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.checker.whole_scenes import A100, NAMESPACE, TAINT, checked, codes, line, node, running, text_of


def copies(count: int, gpus: int = 1, **fields: str) -> str:
    more = "".join(f", {key}: {value}" for key, value in fields.items())
    return f"steps: {{a: {{command: [x], gpu: a100-80gb x {gpus}, for_each: {{i: [{_items(count)}]}}{more}}}}}"


def _items(count: int) -> str:
    return ", ".join(map(str, range(count)))


@pytest.mark.parametrize(
    ("copied", "gpus", "free", "verdict"),
    [
        (16, 1, (8, 8), "always"),
        (17, 1, (8, 8), "may-queue"),
        (2, 2, (3, 3), "always"),
        (3, 2, (3, 3), "may-queue"),
        (4, 4, (8, 8), "always"),
        (3, 4, (8, 7, 3), "always"),
        (4, 4, (8, 7, 3), "may-queue"),
        (1, 8, (8, 1), "always"),
    ],
)
def test_copies_fit_as_whole_pods_fit_on_nodes(copied: int, gpus: int, free: tuple[int, ...], verdict: str) -> None:
    nodes = [node(f"n{index}", gpu) for index, gpu in enumerate(free)]
    assert checked(copies(copied, gpus), *nodes).verdict == verdict


def test_the_largest_parallelism_that_always_has_room_is_named() -> None:
    report = checked(copies(17), node("n", 8), node("m", 8))
    assert codes(report) == ["GF515"]
    assert line(report, "Nodes", "nvidia.com/gpu").safe_parallelism == 16
    assert "always admitted with parallel: 16" in text_of(report, "GF515")
    assert checked(copies(17, parallel="16"), node("n", 8), node("m", 8)).verdict == "always"


def test_what_runs_on_the_nodes_takes_room_away() -> None:
    report = checked(copies(4), node("n", 4), running("x", "n", 1))
    assert report.verdict == "may-queue"
    scope = line(report, "Nodes", "nvidia.com/gpu")
    assert (str(scope.used), str(scope.peak), str(scope.hard), scope.safe_parallelism) == ("1", "4", "4", 3)
    assert (
        checked(copies(4), node("n", 4), {**running("x", "n", 1), "status": {"phase": "Succeeded"}}).verdict == "always"
    )


def test_a_full_cluster_means_waiting_in_the_schedulers_words() -> None:
    report = checked(copies(1), node("n", 1), running("x", "n", 1))
    assert report.verdict == "may-queue"
    assert "has no room now" in text_of(report, "GF515")
    assert "0/1 nodes are available: 1 Insufficient nvidia.com/gpu." in text_of(report, "GF515")


def test_free_gpus_in_pieces_are_told_apart_from_too_few() -> None:
    report = checked(copies(3, 2), node("n", 3), node("m", 3))
    assert report.verdict == "may-queue"
    assert "6 are free" in text_of(report, "GF515")
    assert "2 such pods fit, and 3 would fit in one piece" in text_of(report, "GF515")


TRAIN_THEN_TEST = """steps:
  train: {command: [x], gpu: a100-80gb x 8, for_each: {i: [1, 2]}}
  test: {command: [x], gpu: a100-80gb, for_each: {i: [1, 2, 3]}%s}"""


def test_only_steps_that_may_be_alive_together_take_each_others_room() -> None:
    nodes = node("n", 8), node("m", 8)
    assert checked(TRAIN_THEN_TEST % ", needs: [train]", *nodes).verdict == "always"
    report = checked(TRAIN_THEN_TEST % "", *nodes)
    assert report.verdict == "may-queue"
    assert "train" in text_of(report, "GF515")


def test_one_small_pod_on_each_node_keeps_a_large_one_out() -> None:
    text = "steps: {big: {command: [x], gpu: a100-80gb x 8}, small: {command: [x], gpu: a100-80gb%s}}"
    nodes = node("n", 8), node("m", 8)
    assert checked(text % "", *nodes).verdict == "always"
    assert checked(text % ", for_each: {i: [1, 2]}", *nodes).verdict == "may-queue"


def test_pods_for_other_nodes_do_not_count() -> None:
    text = "steps: {gpu: {command: [x], gpu: a100-80gb, cpu: 4}, cpu: {command: [x], cpu: 4, for_each: {i: [1, 2]}}}"
    fenced = node("g", 1, cpu="4", taints=[TAINT])
    assert checked(text, fenced, node("c", cpu="8")).verdict == "always"
    assert checked(text, node("g", 1, cpu="4"), node("c", cpu="8")).verdict == "may-queue"


def test_pod_slots_run_out_too() -> None:
    text = "steps: {a: {command: [x], cpu: 10m, memory: 1Mi, for_each: {i: [1, 2, 3]}}}"
    assert checked(text, node("n", pods=3)).verdict == "always"
    assert checked(text, node("n", pods=2)).verdict == "may-queue"


def test_memory_that_only_one_of_two_nodes_has() -> None:
    text = "steps: {a: {command: [x], memory: 200Gi, for_each: {i: [1, 2]}}}"
    assert checked(text, node("n", memory="400Gi"), node("m", memory="100Gi")).verdict == "always"
    report = checked(text, node("n", memory="399Gi"), node("m", memory="199Gi"))
    assert report.verdict == "may-queue"
    assert line(report, "Nodes", "memory").verdict == "may-queue"
    assert line(report, "Nodes", "cpu").verdict == "always"


def test_cordoned_and_unwell_nodes_count_for_never_only() -> None:
    assert checked(copies(1), node("n", 1, unschedulable=True)).verdict == "may-queue"
    unwell = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    assert checked(copies(1), node("n", 1, taints=[unwell])).verdict == "may-queue"
    assert checked(copies(1, 2), node("n", 1, unschedulable=True)).verdict == "never"


def test_a_node_group_that_may_grow_means_waiting_for_new_nodes() -> None:
    report = checked(copies(8, 4), node("n", 8), node("pool", 8, group=5))
    assert report.verdict == "may-queue"
    assert "3 new nodes of group pool" in text_of(report, "GF520")
    assert checked(copies(2, 4), node("n", 8), node("pool", 8, group=5)).verdict == "always"
    assert checked(copies(1, 9), node("n", 8), node("pool", 8, group=5)).verdict == "never"


def test_a_step_for_a_group_without_nodes_waits_for_the_first() -> None:
    report = checked(copies(1), node("pool", 8, group=2))
    assert (report.verdict, codes(report)) == ("may-queue", ["GF520"])
    assert "1 new node of group pool" in text_of(report, "GF520")


def test_several_runs_share_the_nodes() -> None:
    nodes = node("n", 8), node("m", 8)
    assert checked(copies(8), *nodes, runs=2).verdict == "always"
    assert checked(copies(8), *nodes, runs=3).verdict == "may-queue"


def test_steps_in_a_row_meet_those_of_other_runs() -> None:
    nodes = node("n", 8), node("m", 8)
    assert checked(TRAIN_THEN_TEST % ", needs: [train]", *nodes, runs=2).verdict == "may-queue"


def test_a_fan_out_of_unknown_size_is_unknown_unless_it_is_capped() -> None:
    text = """steps:
  list: {command: [x], outputs: {n: json}}
  a: {for_each: {i: {output: list.n}}, %scommand: [x], gpu: a100-80gb}"""
    report = checked(text % "", node("n", 8), node("c", cpu="900"))
    assert (report.verdict, "GF514" in codes(report)) == ("unknown", True)
    assert checked(text % "parallel: 8, ", node("n", 8), node("c", cpu="900")).verdict == "always"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ("topology: {spread: zone}", "topology spread constraints"),
        ("topology: {same: zone}", "its affinity to other pods"),
        ("kubernetes: {scheduler: volcano}", "how scheduler volcano decides"),
    ],
)
def test_what_is_not_weighed_is_unknown_and_named(fields: str, reason: str) -> None:
    """A zone whose node is cordoned takes no pod, and one pod of the step is there."""
    there = running("x", "m", labels={"gpuflow.dev/pipeline": "p", "gpuflow.dev/step": "a"})
    there["metadata"]["namespace"] = NAMESPACE
    nodes = [
        node(name, 8, labels={"topology.kubernetes.io/zone": name}, unschedulable=closed)
        for name, closed in (("n", False), ("m", True))
    ]
    text = f"steps: {{a: {{command: [x], gpu: a100-80gb, {fields}, for_each: {{i: [1, 2]}}}}}}"
    report = checked(text, *nodes, there)
    assert report.verdict == "unknown"
    assert reason in text_of(report, "GF535")
    if "same" in fields:
        assert checked(text, *nodes).verdict == "always"
    assert checked(f"steps: {{a: {{command: [x], gpu: a100-80gb x 9, {fields}}}}}", node("n", 8)).verdict == "never"


def test_a_running_pod_that_keeps_apart_closes_its_node() -> None:
    term = {"labelSelector": {"matchLabels": {"gpuflow.dev/step": "a"}}, "topologyKey": "kubernetes.io/hostname"}
    apart = {
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{**term, "namespaces": ["team-a"]}]}
    }
    nodes = [node(name, 1, labels={"kubernetes.io/hostname": name}) for name in ("n", "m")]
    shy = running("x", "n", spec={"affinity": apart})
    assert checked(copies(2), *nodes, shy).verdict == "may-queue"
    assert checked(copies(1), *nodes, shy).verdict == "always"
    other = copies(2).replace("a:", "b:", 1)
    assert checked(other, *nodes, shy).verdict == "always"


GANG = "command: [x], gpu: a100-80gb x 8, gang: {workers: 2}"


def test_a_gang_needs_room_for_all_its_pods() -> None:
    text = f"steps: {{g: {{{GANG}}}}}"
    assert checked(text, node("n", 8), node("m", 8)).verdict == "always"
    assert checked(text, node("n", 8), node("m", 8), running("x", "m", 1)).verdict == "may-queue"
    report = checked(text, node("n", 8))
    assert report.verdict == "never"
    assert "all 2 pods of the gang together" in text_of(report, "GF506")


def test_two_gangs_that_do_not_fit_together_can_block_each_other() -> None:
    text = f"steps: {{g: {{{GANG}}}, h: {{{GANG}%s}}}}"
    three = [node(name, 8) for name in "abc"]
    report = checked(text % "", *three)
    assert report.verdict == "may-queue"
    assert "2 gangs at once" in text_of(report, "GF522")
    assert [each.severity for each in report.findings if each.code == "GF522"] == ["error"]
    assert checked(text % "", *three, node("d", 8)).verdict == "always"
    assert checked(text % ", needs: [g]", *three).verdict == "always"


def test_an_engines_driver_pods_need_room_as_well() -> None:
    text = "steps: {a: {command: [x], gpu: a100-80gb}}"
    gpus = node("n", 8, taints=[TAINT])
    assert checked(text, gpus, engine="kubeflow").verdict == "never"
    report = checked(text, gpus, node("c"), engine="kubeflow")
    assert report.verdict == "always"
    assert "driver" in text_of(checked(text, gpus, engine="kubeflow"), "GF506")


def test_mig_slices_are_counted_for_themselves() -> None:
    text = "steps: {a: {command: [x], mig: 1g.10gb of a100-80gb, for_each: {i: [1, 2, 3]}}}"
    labels = {**A100, "nvidia.com/mig.strategy": "mixed"}
    sliced = node("n", labels=labels, offers={"nvidia.com/mig-1g.10gb": "3"})
    assert checked(text, sliced).verdict == "always"
    assert checked(text, node("n", labels=labels, offers={"nvidia.com/mig-1g.10gb": "2"})).verdict == "may-queue"


def test_waiting_is_told_in_the_words_of_the_engine() -> None:
    nodes = node("n", 8), node("c")
    assert "schedule_timeout_seconds" in text_of(checked(copies(9), *nodes, engine="airflow"), "GF515")
    assert "deadline" in text_of(checked(copies(9), *nodes, engine="argo"), "GF515")


NODE_POOL = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "gpus"}}


def test_nodes_that_somebody_else_may_start_make_never_unknown() -> None:
    assert checked(copies(1, 8), node("n", 4)).verdict == "never"
    report = checked(copies(1, 8), node("n", 4), NODE_POOL)
    assert report.verdict == "unknown"
    assert "NodePool gpus may start other nodes" in text_of(report, "GF506")
    assert {scope.verdict for scope in report.scopes} <= {"always", "unknown"}


CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "data", "namespace": NAMESPACE},
    "spec": {"volumeName": "pv"},
}


def volume(**spec: object) -> dict[str, object]:
    shared = {"accessModes": ["ReadWriteMany"], **spec}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv"}, "spec": shared}


@pytest.mark.parametrize(
    ("objects", "verdict"),
    [
        ([CLAIM, volume()], "always"),
        ([CLAIM, volume(accessModes=["ReadWriteOnce"])], "always"),
        ([CLAIM, volume(nodeAffinity={"required": {"nodeSelectorTerms": []}})], "never"),
        ([CLAIM, {**volume(), "metadata": {"name": "pv", "labels": {"topology.kubernetes.io/zone": "a"}}}], "always"),
        ([CLAIM], "unknown"),
        ([], "unknown"),
    ],
)
def test_a_claim_leaves_the_nodes_open_that_can_mount_it(objects: list[dict[str, Any]], verdict: str) -> None:
    text = "steps: {a: {command: [x], gpu: a100-80gb, volumes: {/data: {claim: data}}}}"
    assert checked(text, node("n", 1), node("m"), *objects).verdict == verdict
