"""Findings E1 to E6, E9 and the end of F: advice that holds when it is followed, hints that say what engines say.

Tests gpuflow/checker/hints/refusals.py.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from gpuflow.checker.report import Report
from gpuflow.report.text import render
from tests.checker.followed_advice import Line, advice
from tests.checker.kueue import scenes as kueue
from tests.checker.whole_scenes import NAMESPACE, Body, checked, codes, line, node, queues, quota, running, text_of

POOL = {"pool": "f"}


def followed(text: str, *objects: Body, **more: Any) -> tuple[Report, list[Line]]:
    """The report and its lines of advice, each of them followed and found to hold."""
    report = checked(text, *objects, **more)
    lines = list(advice(text, report))
    for each in lines:
        after = checked(each.text, *objects, **more)
        assert each.is_kept(report, after), (each, render(after))
    return report, lines


def limits(hard: dict[str, str], used: dict[str, str] | None = None) -> Body:
    status = {"hard": hard, "used": {**dict.fromkeys(hard, "0"), **(used or {})}}
    metadata = {"name": "q", "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": hard}, "status": status}


def limit_range(**bounds: Any) -> Body:
    metadata = {"name": "l", "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": {"limits": [bounds]}}


def copies(count: int, more: str = "gpu: a100-80gb") -> str:
    return f"steps: {{a: {{command: [x], for_each: {{i: {{range: {count}}}}}, {more}}}}}"


def one(more: str) -> str:
    return f"steps: {{a: {{command: [x], {more}}}}}"


QUEUED = "queue: lq, retry: {interruptions: 1}"


# E1: the number of GPUs


def test_e1_the_number_of_gpus_counts_with_the_labels_of_the_flavor() -> None:
    flavored = queues({"f": quota(8)}, flavors=[kueue.flavor("f", nodeLabels=POOL)])
    report, lines = followed(
        one(f"gpu: a100-80gb x 8, {QUEUED}"), *flavored, node("seven", 7), node("six", 6, labels=POOL)
    )
    assert codes(report) == ["GF506"]
    assert [each.words for each in lines] == ["ask for 6 in each pod"]


def test_e1_a_number_that_a_limit_range_refuses_is_not_named() -> None:
    bound = limit_range(type="Container", max={"nvidia.com/gpu": "3"}, default={"nvidia.com/gpu": "0"})
    _, lines = followed(one("gpu: a100-80gb x 8"), node("n", 4), bound)
    assert [each.words for each in lines] == ["ask for 3 in each pod"]
    _, lines = followed(one("gpu: a100-80gb x 8"), node("n", 4))
    assert [each.words for each in lines] == ["ask for 4 in each pod"]


def test_e1_no_number_where_the_step_is_refused_for_something_else_too() -> None:
    small = limits({"requests.cpu": "500m"})
    report, lines = followed(one("gpu: a100-80gb x 8"), node("n", 4), small)
    assert ("GF501" in codes(report), lines) == (True, [])


HOOK: Body = {
    "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
    "metadata": {"name": "guard"},
    "webhooks": [{"name": "a.b.c", "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                  "resources": ["pods"]}]}],
}  # fmt: skip


def test_e1_what_is_unknown_anyway_takes_no_advice_away() -> None:
    text = one("gpu: a100-80gb x 8")
    report = checked(text, node("n", 4), HOOK)
    (found,) = advice(text, report)
    after = checked(found.text, node("n", 4), HOOK)
    assert ("GF531" in codes(report), found.words) == (True, "ask for 4 in each pod")
    assert (after.verdict, codes(after)) == ("unknown", ["GF531"])


# E2 and E3: parallel, and the line that decides


def test_e2_the_number_counts_pod_slots() -> None:
    report, lines = followed(copies(9), node("n", 8, pods=3), node("m", 8, pods=2))
    assert report.verdict == "may-queue"
    assert [each.words for each in lines] == ["always admitted with parallel: 5"]
    assert checked("parallel: 6\n" + copies(9), node("n", 8, pods=3), node("m", 8, pods=2)).verdict == "may-queue"


@pytest.mark.parametrize("other", ["gpu: a100-80gb x 99", "cpu: 900"])
def test_e2_no_number_in_a_report_that_says_never(other: str) -> None:
    text = copies(9)[:-1] + f", z: {{command: [x], {other}}}}}"
    report, lines = followed(text, node("n", 8), limits({"pods": "3"}))
    assert report.verdict == "never"
    assert [each for each in lines if each.kind == "parallel"] == []
    assert "parallel:" not in render(report)


def test_e2_no_number_where_it_would_not_be_enough() -> None:
    elsewhere = running("x", "n", 8)
    report, lines = followed(copies(3), node("n", 8), elsewhere, limits({"pods": "2"}))
    assert (report.verdict, lines) == ("may-queue", [])


def test_e2_kubeflow_keeps_no_parallel_and_gets_no_number() -> None:
    report, lines = followed(copies(3), limits({"requests.nvidia.com/gpu": "2"}), engine="kubeflow")
    assert (report.verdict, lines) == ("may-queue", [])


def test_e2_the_number_is_never_smaller_than_a_gang() -> None:
    text = "steps: {a: {command: [x], gang: {workers: 3}}, b: {command: [x], gang: {workers: 3}}}"
    report, lines = followed(text, limits({"pods": "5"}))
    assert (report.verdict, [each.words for each in lines]) == ("may-queue", ["always admitted with parallel: 5"])
    assert list(advice(text, checked(text, limits({"pods": "3"})))) != []


def test_e2_runs_at_once_get_a_number_that_holds_for_all_of_them() -> None:
    report, lines = followed(copies(4), limits({"requests.nvidia.com/gpu": "6"}), runs=2)
    assert (report.verdict, [each.words for each in lines]) == ("may-queue", ["always admitted with parallel: 3"])


def test_e2_a_fan_out_of_unknown_size_is_bounded_by_a_number() -> None:
    text = """steps:
  list: {command: [x], outputs: {n: json}}
  a: {for_each: {i: {output: list.n}}, command: [x], gpu: a100-80gb}"""
    report, lines = followed(text, limits({"requests.nvidia.com/gpu": "4"}))
    assert (report.verdict, [each.words for each in lines]) == ("unknown", ["always admitted with parallel: 4"])


def test_e3_pod_slots_that_decide_are_a_line_of_the_table() -> None:
    report, _ = followed(copies(4), node("n", 8, pods=2))
    scope = line(report, "Nodes", "pods")
    assert (scope.verdict, str(scope.used), str(scope.peak), str(scope.hard)) == ("may-queue", "0", "4", "2")
    assert line(report, "Nodes", "nvidia.com/gpu").verdict == "always"
    assert [each.resource for each in checked(copies(4), node("n", 8)).scopes] == ["nvidia.com/gpu"]


# E4: what the scheduler says


def apart(labels: dict[str, str]) -> Body:
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
    return {
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{**term, "namespaces": [NAMESPACE]}]}
    }


def test_e4_a_node_that_is_closed_by_anti_affinity_is_not_said_to_be_full() -> None:
    shy = running("x", "n", spec={"affinity": apart({"gpuflow.dev/step": "a"})})
    report, _ = followed(one("gpu: a100-80gb"), node("n", 1, labels={"kubernetes.io/hostname": "n"}), shy)
    said = text_of(report, "GF515")
    assert "didn't satisfy existing pods anti-affinity rules" in said
    assert "runs a pod that keeps apart from it (anti-affinity)" in said
    assert "nvidia.com/gpu free" not in said


def test_e4_a_node_without_pod_slots_is_not_said_to_lack_labels() -> None:
    report, _ = followed(one("gpu: a100-80gb"), node("n", 1, pods=0))
    assert (report.verdict, codes(report)) == ("never", ["GF506"])
    said = text_of(report, "GF506")
    assert "Too many pods" in said
    assert "no pod slot" in said
    assert "labels and taints" not in said
    assert line(report, "Nodes", "pods").verdict == "never"


def test_e4_slots_that_others_have_taken_are_named() -> None:
    others = [running(f"x{index}", "n") for index in range(2)]
    said = text_of(checked(one("gpu: a100-80gb"), node("n", 1, pods=2), *others), "GF515")
    assert "1 node (NVIDIA-A100-SXM4-80GB) has no pod slot free" in said
    assert "nvidia.com/gpu free" not in said


@pytest.mark.parametrize(
    ("there", "words"),
    [
        (
            node("n", 8, taints=[{"key": "a", "effect": "NoSchedule"}]),
            "every node has a taint that it does not tolerate",
        ),
        (node("n"), "every node lacks the labels that it asks for"),
    ],
)
def test_e4_labels_and_taints_are_told_apart(there: Body, words: str) -> None:
    assert words in text_of(checked(one("gpu: a100-80gb"), there), "GF506")


# E5 and E6: what the engine does


def test_e5_nothing_asks_again_for_a_workflow() -> None:
    key = "count/workflows.argoproj.io"
    never = checked(one("cpu: 1"), limits({key: "0"}), engine="argo")
    assert (never.verdict, codes(never)) == ("never", ["GF501"])
    full = checked(one("cpu: 1"), limits({key: "2"}, {key: "2"}), engine="argo")
    assert (full.verdict, codes(full)) == ("may-queue", ["GF512"])
    for report, code in ((never, "GF501"), (full, "GF512")):
        assert "asks again every" not in text_of(report, code)


@pytest.mark.parametrize(
    ("objects", "code"),
    [
        ([node("n", 1), running("x", "n", 1)], "GF515"),
        ([limits({"pods": "1"}, {"pods": "1"})], "GF512"),
        ([*queues({"f": quota(1)}), kueue.holder("x", {"f": {"nvidia.com/gpu": "1"}})], "GF517"),
    ],
    ids=["node", "quota", "queue"],
)
def test_e6_a_queue_timeout_ends_the_wait(objects: list[Body], code: str) -> None:
    more = f", {QUEUED}" if code == "GF517" else ""
    patient = one(f"gpu: a100-80gb{more}")
    assert "queue_timeout" not in text_of(checked(patient, *objects, engine="airflow"), code)
    hasty = one(f"gpu: a100-80gb, queue_timeout: 1m{more}")
    assert "queue_timeout: after waiting 1m the step fails" in text_of(checked(hasty, *objects, engine="airflow"), code)


# E9


GROWING = "memory: 16Gi, retry: {failures: 3, more_memory: {max: 64Gi}}"


def test_e9_more_memory_over_a_limit_range_is_told_its_max() -> None:
    bound = limit_range(type="Container", max={"memory": "32Gi"})
    report, lines = followed(one(GROWING), bound)
    assert "GF525" in codes(report)
    assert [each.words for each in lines] == ["say more_memory.max: 32Gi:"]
    _, lines = followed(one(GROWING), limit_range(type="Container", max={"memory": "16Gi"}))
    assert lines == []  # the step has that much at first


def test_e9_a_driver_in_a_default_queue_is_not_sent_to_another() -> None:
    full = [kueue.flavor("f"), kueue.cluster_queue({"f": quota(8, cpu="10m")}), kueue.local_queue("default")]
    report = checked(one("cpu: 1"), *full, engine="kubeflow")
    said = [each for each in report.findings if each.code == "GF507" and "driver" in each.message]
    assert len(said) == 1
    assert "use another queue" not in (said[0].hint or "")
    assert "LocalQueue default" in (said[0].hint or "")
    assert "use another queue" in text_of(checked(one("cpu: 1, " + QUEUED), *full, kueue.local_queue()), "GF507")


def test_e9_only_steps_that_run_at_the_same_time_are_named() -> None:
    text = (
        "steps: {s1: {command: [x], gpu: a100-80gb x 3}, s2: {command: [x], gpu: a100-80gb x 2}, "
        "s3: {command: [x], gpu: a100-80gb x 3, needs: [s2]}}"
    )
    said = text_of(checked(text, node("n", 4)), "GF515")
    assert 'step "s2" may find no room: s1, s2 together ask for up to 5 nvidia.com/gpu' in said
    queued = re.sub(r"command: \[x\]", f"command: [x], {QUEUED}", text)
    said = text_of(checked(queued, *queues({"f": quota(4)})), "GF517")
    assert 'step "s2" may wait in queue lq: s1, s2 together ask for up to 5 nvidia.com/gpu' in said


def test_e9_a_thousand_is_written_out() -> None:
    report = checked(
        copies(2, "cpu: 600"), limits({"requests.cpu": "1000"}), *(node(name, cpu="1000") for name in "nm")
    )
    text = render(report)
    assert "hard 1000 " in text
    assert "peak 1200 " in text
    assert "leaves 1000 of 1000" in text
    assert not re.search(r"\d+k\b", text)
    assert str(line(report, "ResourceQuota", "requests.cpu").hard) == "1k"  # as Kubernetes writes it


def test_e9_one_number_in_a_report() -> None:
    text = copies(9, f"gpu: a100-80gb, {QUEUED}")
    objects = [limits({"pods": "7", "requests.cpu": "6"}), *queues({"f": quota(5)}), node("n", 4)]
    report, lines = followed(text, *objects)
    assert [each.words for each in lines] == ["always admitted with parallel: 4"]
    assert render(report).count("parallel") == 1


# F: other GPUs

H100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}


def test_f_a_gpu_that_the_queue_refuses_is_not_named() -> None:
    a100 = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
    only_a100 = queues({"f": quota(8)}, flavors=[kueue.flavor("f", nodeLabels=a100)])
    there = node("n", 8, labels=H100)
    text = one(f"gpu: a100-80gb, {QUEUED}")
    report, lines = followed(text, *only_a100, there)
    assert (report.verdict, lines) == ("never", [])
    both = queues({"f": quota(8), "g": quota(8)}, flavors=[kueue.flavor("f", nodeLabels=a100), kueue.flavor("g")])
    _, lines = followed(text, *both, there)
    assert [each.words for each in lines] == ["h100-80gb (79.14 GiB)"]
