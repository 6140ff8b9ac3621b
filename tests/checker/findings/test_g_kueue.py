"""Findings G: what 132 runs on a real Kueue showed."""

from __future__ import annotations

import pytest

from gpuflow.checker.report import Report
from tests.checker.findings.test_c_never_ends import counts, keeping
from tests.checker.kueue.scenes import API, cluster_queue, flavor, holder, local_queue, pod_set, workload
from tests.checker.whole_scenes import A100, Body, checked, codes, line, node, queues, quota, running, text_of

GPU = "nvidia.com/gpu"


def limited(gpu: int, **limits: int) -> dict[str, str | dict[str, str]]:
    """Quota of a flavor with limits on its GPUs alone: borrowingLimit, lendingLimit."""
    return {**quota(gpu), GPU: {"nominalQuota": str(gpu), **{key: str(limit) for key, limit in limits.items()}}}


def teams(ours: dict[str, object], theirs: dict[str, object]) -> list[Body]:
    """Queue `left` that we use, and `right` of the same cohort."""
    return [
        flavor("f"),
        cluster_queue({"f": ours}, name="left", cohortName="team"),
        cluster_queue({"f": theirs}, name="right", cohortName="team"),
        local_queue("l", "left"),
        local_queue("r", "right"),
    ]


def step(name: str, gpus: int, queue: str = "l") -> str:
    return f"  {name}: {{command: [x], queue: {queue}, gpu: a100-80gb x {gpus}, retry: {{interruptions: 1}}}}\n"


# G1: quota that a lending limit keeps back is not always there.


def test_g1_what_a_cohort_gave_out_too_much_is_taken_from_what_a_queue_keeps() -> None:
    """`left` keeps its 5 for itself. `right` has 1 and holds 2: Kueue lets `left` have 4."""
    text = "steps:\n" + step("a", 3) + step("b", 2)
    over = holder("h", {"f": {GPU: "2"}}, queue="right")
    report = checked(text, *teams(limited(5, lendingLimit=0), limited(1)), over)
    shown = line(report, "ClusterQueue", GPU)
    assert (str(shown.peak), str(shown.hard), shown.verdict) == ("5", "4", "may-queue")
    assert report.verdict == "may-queue"
    assert checked(text, *teams(limited(5, lendingLimit=0), limited(2)), over).verdict == "always"


def waiting(report: Report) -> set[str]:
    """The steps of which it is said that they may wait in their queue."""
    found = (each for each in report.findings if each.code == "GF517")
    return {name for each in found for name in ("big", "small", "far", "near") if f'"{name}" may wait' in each.message}


def test_g1_a_step_that_takes_kept_and_lent_quota_can_use_up_what_is_kept() -> None:
    """10 GPUs of which 4 are lent: 6 are kept back. `big` takes 8 of both kinds, and `small` finds 2 of its 3."""
    text = "steps:\n" + step("big", 8) + step("small", 3)
    assert waiting(checked(text, *teams(limited(10, lendingLimit=4), limited(0)))) == {"big", "small"}


def test_g1_a_step_that_is_too_large_for_our_borrowing_limit_still_takes_what_we_count_on() -> None:
    """We may have 6 of the 10 that `right` lends; a step of 8 there leaves 2 of our 3."""
    text = "steps:\n" + step("far", 8, "r") + step("near", 3)
    assert waiting(checked(text, *teams(limited(0, borrowingLimit=6), limited(10)))) == {"far", "near"}


def test_g1_what_is_kept_back_and_is_enough_is_still_always() -> None:
    text = "steps:\n" + step("big", 2) + step("small", 1)
    assert checked(text, *teams(limited(4, lendingLimit=1), limited(4))).verdict == "always"


# G3: the quotas add up to what the nodes have, and still another queue's workloads can take the place.

A100_FLAVOR = flavor("f", nodeLabels=A100)


def two_queues(ours: int, theirs: int, *others: Body) -> list[Body]:
    """Queues without a cohort on the same nodes."""
    return [
        A100_FLAVOR,
        cluster_queue({"f": quota(ours)}, name="left"),
        cluster_queue({"f": quota(theirs)}, name="right"),
        local_queue("l", "left"),
        local_queue("r", "right"),
        *others,
    ]


def waits(name: str, gpus: int, pods: int = 1) -> Body:
    return workload(pod_set(gpu=str(gpus), count=pods), name=name, spec={"queueName": "r"})


def test_g3_small_workloads_of_another_queue_can_lie_on_every_node() -> None:
    """4 + 4 GPUs of quota on two nodes of 4. Four pods of 1 GPU on both nodes, and a step of 4 finds none."""
    nodes = [node("n1", 4), node("n2", 4)]
    full = holder("h", {"f": {GPU: "4"}}, queue="right")
    scene = two_queues(4, 4, full, *nodes, running("there", "n1", 4), *(waits(f"w{i}", 1) for i in range(4)))
    report = checked("steps:\n" + step("a", 4), *scene)
    assert report.verdict == "may-queue"
    assert "(in queue right)" in text_of(report, "GF524")


def test_g3_workloads_that_cannot_take_the_place_do_not_count() -> None:
    """The other queue never sends more than 4 GPUs to the nodes, so that a step of 1 GPU always finds one of 8."""
    nodes = [node("n1", 4), node("n2", 4)]
    full = holder("h", {"f": {GPU: "4"}}, queue="right")
    scene = two_queues(4, 4, full, *nodes, *(waits(f"w{i}", 1) for i in range(20)))
    assert checked("steps:\n" + step("a", 1), *scene).verdict == "always"


def test_a7_a_workload_that_is_admitted_takes_its_place_before_its_pod_is_there() -> None:
    admitted = holder("h", {"f": {GPU: "2"}}, queue="right")
    scene = two_queues(4, 4, admitted, node("n", 4))
    report = checked("steps:\n" + step("a", 4), *scene)
    assert report.verdict == "may-queue"
    assert "team-a/h (admitted by queue right)" in text_of(report, "GF524")


def test_a7_a_pod_that_is_on_a_node_is_not_counted_twice() -> None:
    admitted = holder("h", {"f": {GPU: "2"}}, queue="right")
    on_node = running("p", "n", 2)
    on_node["metadata"]["namespace"] = admitted["metadata"]["namespace"]
    scene = two_queues(2, 2, admitted, on_node, node("n", 4))
    assert checked("steps:\n" + step("a", 2), *scene).verdict == "always"


# G2: Kueue keeps a Workload for every pod, also for one that is over.

WORKLOADS = "count/workloads.kueue.x-k8s.io"


@pytest.mark.parametrize(("allowed", "used", "verdict"), [(3, 0, "always"), (2, 0, "never"), (3, 1, "may-queue")])
def test_g2_finished_workloads_keep_counting(allowed: int, used: int, verdict: str) -> None:
    """Three steps in a row, each with a Workload that stays as long as its pod."""
    text = "".join(f"  s{i}: {{command: [x], queue: lq{f', needs: [s{i - 1}]' if i else ''}}}\n" for i in range(3))
    scene = [*queues({"f": quota(8)}), counts({WORKLOADS: allowed}, {WORKLOADS: used})]
    report = checked("steps:\n" + text, *scene, engine="argo", site=keeping())
    assert report.verdict == verdict
    assert "GF509" in codes(report) if verdict == "never" else "GF509" not in codes(report)


def test_g2_pods_without_a_queue_have_no_workload() -> None:
    report = checked("steps: {a: {command: [x]}}", *queues({"f": quota(8)}), counts({WORKLOADS: 0}), engine="argo")
    assert report.verdict == "always"
    everyone = local_queue("default", "cq")
    report = checked("steps: {a: {command: [x]}}", *queues({"f": quota(8)}), everyone, counts({WORKLOADS: 0}))
    assert report.verdict == "never"


def test_g2_no_workload_can_be_made_where_none_is_allowed() -> None:
    text = "steps: {a: {command: [x], queue: lq}}"
    report = checked(text, *queues({"f": quota(8)}), counts({WORKLOADS: 0}), engine="airflow")
    assert (report.verdict, codes(report)) == ("never", ["GF501"])


# G4: one step of the pipeline evicts another.


def priorities(**values: int) -> list[Body]:
    return [
        {"apiVersion": API, "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value}
        for name, value in values.items()
    ]


def ranked(*more: str) -> str:
    each = "command: [x], queue: lq, gpu: a100-80gb x 3, retry: {interruptions: 1}"
    after = "".join(more)
    return f"steps: {{big: {{{each}, priority: {{queue: high}}}}, small: {{{each}, priority: {{queue: low}}{after}}}}}"


def preempting(policy: str) -> list[Body]:
    scene = queues({"f": quota(4)}, preemption={"withinClusterQueue": policy})
    return [*scene, *priorities(high=10, low=1)]


def test_g4_a_step_that_may_evict_a_parallel_step_is_named() -> None:
    report = checked(ranked(), *preempting("LowerPriority"))
    assert report.verdict == "may-queue"
    assert 'step "big" may evict step "small" of the same pipeline' in text_of(report, "GF527")
    assert "always admitted with parallel: 1" in text_of(report, "GF517")


def test_g4_nobody_is_evicted_where_the_queue_does_not_or_where_steps_wait_for_each_other() -> None:
    assert "GF527" not in codes(checked(ranked(), *preempting("Never")))
    assert "GF527" not in codes(checked(ranked(", needs: [big]"), *preempting("LowerPriority")))
    assert "GF527" not in codes(checked("parallel: 1\n" + ranked(), *preempting("LowerPriority")))


def test_g4_a_large_step_evicts_a_newer_one_of_the_same_priority() -> None:
    text = "steps:\n" + step("big", 4, "lq") + step("small", 1, "lq")
    report = checked(text, *preempting("LowerOrNewerEqualPriority"))
    assert 'step "big" may evict step "small"' in text_of(report, "GF527")
    assert 'step "small" may evict' not in text_of(report, "GF527")


def test_g_smaller_steps_behind_the_pipelines_own_waiting_pods_are_named() -> None:
    """Both large steps do not fit together; the one that waits holds up `cheap`, for which there is quota."""
    text = "steps:\n" + step("one", 3, "lq") + step("two", 2, "lq") + "  cheap: {command: [x], queue: lq}\n"
    scene = queues({"f": quota(4)}, queueingStrategy="StrictFIFO")
    report = checked(text, *scene)
    assert 'step "cheap" waits behind it' in text_of(report, "GF528")
    assert "GF528" not in codes(checked(text, *queues({"f": quota(4)})))


def test_g1_a_queue_that_lives_on_what_it_keeps_takes_nothing_from_the_cohort() -> None:
    """`right` keeps its 1 and uses no more: the 1 of `left` is always there."""
    text = "steps:\n" + step("near", 1) + step("far", 1, "r")
    assert checked(text, *teams(limited(1), limited(1, lendingLimit=0))).verdict == "always"
    assert checked(text, *teams(limited(1), limited(1, lendingLimit=0)), waits("w", 1)).verdict == "may-queue"


def test_g1_another_queue_takes_from_the_cohort_what_it_does_not_keep() -> None:
    """`right` keeps 1 of its 2. A step of 2 there takes 1 of the 2 that both share: 1 is left."""
    text = "steps:\n" + step("near", 1) + step("far", 2, "r")
    assert checked(text, *teams(limited(1), limited(2, lendingLimit=1))).verdict == "always"
    assert checked(text, *teams(limited(1), limited(2, lendingLimit=2))).verdict == "always"
    assert checked(text, *teams(limited(0), limited(2, lendingLimit=1))).verdict == "may-queue"
