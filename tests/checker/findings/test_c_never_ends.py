"""Findings C, and point 7 on retries: runs that cannot finish are *never*, with a code of their own."""

from __future__ import annotations

from typing import Any

import pytest

from gpuflow.site import Site
from tests.checker.kueue.scenes import flavor, holder, pod_set, workload
from tests.checker.whole_scenes import (
    A100,
    NAMESPACE,
    TAINT,
    Body,
    checked,
    codes,
    line,
    node,
    queues,
    quota,
    running,
    text_of,
)

RESULTS = "count/workflowtaskresults.argoproj.io"


def counts(hard: dict[str, int], used: dict[str, int] | None = None) -> Body:
    amounts = {key: str(amount) for key, amount in hard.items()}
    status = {"hard": amounts, "used": {key: str((used or {}).get(key, 0)) for key in hard}}
    metadata = {"name": "objects", "namespace": NAMESPACE}
    return {
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": amounts}, "status": status,
    }  # fmt: skip


def chain(count: int, **more: Any) -> str:
    steps = {f"s{index}": {"command": ["x"], **more} for index in range(count)}
    for index in range(1, count):
        steps[f"s{index}"]["needs"] = [f"s{index - 1}"]
    return f"steps: {steps}"


def keeping() -> Site:
    """A site whose Argo deletes no pod before its run."""
    site = Site.load("nvidia")
    argo = site.engines["argo"].model_copy(update={"pod_gc": None})
    return site.model_copy(update={"engines": {**site.engines, "argo": argo}})


def test_c1_six_steps_in_a_row_leave_six_pods_where_five_are_allowed() -> None:
    report = checked(chain(6), counts({"count/pods": 5}), engine="argo", site=keeping())
    assert (report.verdict, codes(report)) == ("never", ["GF509"])
    assert line(report, "ResourceQuota", "count/pods").verdict == "never"
    assert "the run cannot finish" in text_of(report, "GF509")
    assert checked(chain(5), counts({"count/pods": 5}), engine="argo").verdict == "always"


def test_c1_where_argo_deletes_pods_after_a_while_the_last_step_waits_for_that() -> None:
    report = checked(chain(6), counts({"count/pods": 5}), engine="argo")
    assert (report.verdict, codes(report)) == ("may-queue", ["GF512"])


def test_c1_pods_of_others_may_be_deleted() -> None:
    report = checked(chain(5), counts({"count/pods": 5}, {"count/pods": 3}), engine="argo")
    assert (report.verdict, codes(report)) == ("may-queue", ["GF512"])


def test_c1_an_engine_that_deletes_pods_that_succeeded_needs_room_for_those_that_run() -> None:
    report = checked(chain(6), counts({"count/pods": 1}), engine="airflow")
    assert report.verdict == "always"
    report = checked(chain(6, retry={"failures": 2}), counts({"count/pods": 5}), engine="airflow")
    assert report.verdict == "may-queue"  # 2 failed pods of each step may be kept
    assert str(line(report, "ResourceQuota", "count/pods").peak) == "13"


@pytest.mark.parametrize("more", ["when: params.deep", "cache: true"])
def test_c1_a_step_that_may_be_left_out_is_not_counted_on(more: str) -> None:
    text = f"params: {{deep: true}}\n{chain(5)[:-1]}, last: {{command: [x], needs: [s4], {more}}}}}"
    assert checked(text, counts({"count/pods": 5}), engine="argo").verdict == "may-queue"


def test_point_7_results_of_argos_pods_count_until_the_run_ends() -> None:
    report = checked(chain(3), counts({RESULTS: 2}), engine="argo")
    assert (report.verdict, codes(report)) == ("never", ["GF509"])
    assert "3 WorkflowTaskResults" in text_of(report, "GF509")


def test_point_7_a_chain_of_three_on_two_pods() -> None:
    assert checked(chain(3), counts({"count/pods": 2}), engine="argo", site=keeping()).verdict == "never"


def test_e5_a_workflow_that_is_never_created_is_refused_by_quota() -> None:
    report = checked(chain(1), counts({"count/workflows.argoproj.io": 0}), engine="argo")
    assert (report.verdict, codes(report)) == ("never", ["GF501"])
    assert "asks again every" not in text_of(report, "GF501")


# Point 8: Argo starts every container through its executor.

SIDECAR = "steps: {a: {command: [x], memory: %s, sidecars: [{name: proxy, image: i, command: [x], memory: %s}]}}"


def test_point_8_a_sidecar_that_argos_executor_does_not_fit_into_is_named() -> None:
    report = checked(SIDECAR % ("1Gi", "16Mi"), engine="argo")
    assert codes(report) == ["GF526"]
    assert 'container "proxy" may use 16Mi' in text_of(report, "GF526")
    assert codes(checked(SIDECAR % ("1Gi", "256Mi"), engine="argo")) == []
    assert codes(checked(SIDECAR % ("1Gi", "16Mi"), engine="airflow")) == []


def test_point_8_a_limit_that_a_limit_range_gives_counts_too() -> None:
    defaults = {"type": "Container", "default": {"memory": "32Mi"}, "defaultRequest": {"memory": "16Mi"}}
    small: Body = {
        "apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "small", "namespace": NAMESPACE},
        "spec": {"limits": [defaults]},
    }  # fmt: skip
    text = "steps: {a: {command: [x], sidecars: [{name: proxy, image: i, command: [x]}]}}"
    assert 'container "proxy" may use 32Mi' in text_of(checked(text, small, engine="argo"), "GF526")


# C3: the flavor with room has no nodes, and a queue whose head is never admitted.


def test_c3_a_flavor_without_nodes_is_named_and_that_waiting_does_not_help() -> None:
    flavors = [flavor("full", nodeLabels=A100), flavor("empty", nodeLabels={"x": "y"})]
    scene = queues({"full": quota(2), "empty": quota(2)}, flavors=flavors)
    text = "steps: {a: {command: [x], gpu: {count: 2, memory: 70Gi}, queue: lq, retry: {interruptions: 1}}}"
    report = checked(text, *scene, holder("h", {"full": {"nvidia.com/gpu": "2"}}), node("n", 2))
    assert report.verdict == "may-queue"
    assert "may get quota of flavor empty, whose nodes cannot hold it" in text_of(report, "GF516")
    assert "until somebody deletes the pod" in text_of(report, "GF516")


def test_k9c_behind_a_workload_that_is_never_admitted_only_its_removal_helps() -> None:
    text = "steps: {a: {command: [x], queue: lq, retry: {interruptions: 1}}}"
    stuck = workload(pod_set(gpu="99"), name="stuck")
    report = checked(text, *queues({"f": quota(4)}, queueingStrategy="StrictFIFO"), stuck)
    assert (report.verdict, codes(report)) == ("never", ["GF510"])
    assert "until workload team-a/stuck is removed" in text_of(report, "GF510")
    assert checked(text, *queues({"f": quota(4)}), stuck).verdict == "always"


def test_k9c_behind_a_workload_that_waits_the_step_waits_too() -> None:
    text = "steps: {a: {command: [x], queue: lq, retry: {interruptions: 1}}}"
    waits, held = workload(pod_set(gpu="4"), name="waits"), holder("h", {"f": {"nvidia.com/gpu": "1"}})
    report = checked(text, *queues({"f": quota(4)}, queueingStrategy="StrictFIFO"), waits, held)
    assert (report.verdict, codes(report)) == ("may-queue", ["GF519"])


def test_c3_a_step_that_always_gets_the_flavor_without_nodes_never_runs() -> None:
    flavors = [flavor("empty", nodeLabels={"x": "y"}), flavor("full", nodeLabels=A100)]
    gpus = {"nominalQuota": "2", "borrowingLimit": "0", "lendingLimit": "0"}
    scene = queues({"empty": {**quota(2), "nvidia.com/gpu": gpus}, "full": quota(2)}, flavors=flavors, cohortName="c")
    text = "steps: {a: {command: [x], gpu: {count: 2, memory: 70Gi}, queue: lq, retry: {interruptions: 1}}}"
    report = checked(text, *scene, node("n", 2))
    assert (report.verdict, codes(report)) == ("never", ["GF506"])


# C2: a node that a node group adds has the pods of DaemonSets on it.


def daemon(cpu: str, **spec: Any) -> Body:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    template = {"metadata": {"labels": {"d": "d"}}, "spec": {"containers": [container], **spec}}
    metadata = {"name": "agent", "namespace": "kube-system"}
    return {
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata,
        "spec": {"selector": {"matchLabels": {"d": "d"}}, "template": template},
    }  # fmt: skip


def test_c2_daemons_take_their_share_of_new_nodes() -> None:
    """The step asks for the whole template node, and an agent runs on every node."""
    group = node("group", 8, cpu="8", group=3)
    text = "steps: {a: {command: [x], cpu: 8, gpu: a100-80gb x 8}}"
    assert checked(text, group).verdict == "may-queue"
    assert (checked(text, group, daemon("100m")).verdict, checked(text, group, daemon("0")).verdict) == (
        "never",
        "may-queue",
    )


def test_c2_a_daemon_for_other_nodes_takes_nothing() -> None:
    text = "steps: {a: {command: [x], cpu: 8, gpu: a100-80gb x 8}}"
    group = node("group", 8, cpu="8", group=3)
    assert checked(text, group, daemon("100m", nodeSelector={"pool": "cpu"})).verdict == "may-queue"
    assert checked(text, node("group", 8, cpu="8", group=3, taints=[TAINT]), daemon("100m")).verdict == "may-queue"


def test_c2_a_node_that_lacks_its_daemon_will_get_it() -> None:
    """The agent's pod is a moment away; with it the node has no room for both steps."""
    text = "steps: {a: {command: [x], cpu: 2}, b: {command: [x], cpu: 1}}"
    owned = {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "controller": True}]}
    there = running("agent-1", "n", requests={"cpu": "1"})
    there = {**there, "metadata": {**there["metadata"], **owned}}
    other = running("other", "n", requests={"cpu": "0"})
    report = checked(text, node("n", cpu="3"), daemon("1"), other)
    assert report.verdict == "may-queue"
    assert "kube-system/agent (of a DaemonSet)" in text_of(report, "GF524")
    assert checked(text, node("n", cpu="4"), daemon("1"), other, there).verdict == "always"
    assert checked(text, node("n", cpu="3"), daemon("1", nodeSelector={"pool": "gpu"}), other).verdict == "always"


def test_c3_one_of_two_steps_surely_gets_the_flavor_without_nodes() -> None:
    """Each flavor has quota for one of them. Whichever comes first gets the first flavor, and stays Pending."""
    flavors = [flavor("empty", nodeLabels={"x": "y"}), flavor("full", nodeLabels=A100)]
    scene = [*queues({"empty": quota(2), "full": quota(2)}, flavors=flavors), node("n", 4)]
    each = "{command: [x], gpu: {count: 2, memory: 70Gi}, queue: lq, retry: {interruptions: 1}}"
    report = checked(f"steps: {{a: {each}, b: {each}}}", *scene)
    assert report.verdict == "never"
    assert "whichever of steps a, b is admitted first gets quota of flavor empty" in text_of(report, "GF511")
    waits = workload(pod_set(gpu="2"), name="waits")
    assert checked(f"steps: {{a: {each}, b: {each}}}", *scene, waits).verdict == "may-queue"
