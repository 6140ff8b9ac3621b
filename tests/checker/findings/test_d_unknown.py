"""Findings D2: *unknown* where the answer is certain."""

from __future__ import annotations

from typing import Any

from gpuflow.checker.report import Report
from gpuflow.checker.run import check
from gpuflow.cluster import Cluster
from gpuflow.demands import Demand, PodSet, StepDemand, graph_of
from gpuflow.site import Site
from tests.assumed import ASSUMED
from tests.checker.kueue.scenes import holder
from tests.checker.whole_scenes import (
    HOME,
    NAMESPACE,
    Body,
    checked,
    codes,
    manifest,
    node,
    queues,
    quota,
    running,
)

FAIR = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta1",
    "kind": "Configuration",
    "metadata": {"name": "kueue"},
    "fairSharing": {"enable": True},
}


def test_k37_fair_sharing_decides_whom_not_whether() -> None:
    """The queue is full: whoever is preempted, the step has no quota now and gets some when others give it back."""
    text = "steps: {a: {command: [x], queue: lq, gpu: a100-80gb, retry: {interruptions: 1}}}"
    scene = [*queues({"f": quota(2)}, preemption={"withinClusterQueue": "LowerPriority"}), FAIR]
    full = holder("h", {"f": {"nvidia.com/gpu": "2"}})
    report = checked(text, *scene, full)
    assert (report.verdict, codes(report)) == ("may-queue", ["GF517"])
    assert checked(text, *scene).verdict == "always"
    assert checked(text.replace("a100-80gb,", "a100-80gb x 3,"), *scene, full).verdict == "never"


# W7b: a host port that is taken on every node.


def listening(name: str, on: str, *, owner: str | None = None) -> Body:
    pod = running(name, on)
    pod["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8080}]
    if owner is not None:
        reference = {"apiVersion": "apps/v1", "kind": owner, "name": "d", "uid": "u", "controller": True}
        pod["metadata"]["ownerReferences"] = [reference]
    return pod


def with_port(*objects: Body, copies: int = 1) -> Report:
    """The report on a step whose pod has port 8080 of its node."""
    container: dict[str, Any] = {
        "name": "main", "image": "i", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
        "ports": [{"containerPort": 80, "hostPort": 8080}],
    }  # fmt: skip
    step = StepDemand("a", (PodSet("main", 1, {"metadata": {}, "spec": {"containers": [container]}}),), copies)
    demand = Demand("p", (step,), graph_of((step,)))
    return check(demand, Cluster("cluster.yaml", tuple(map(manifest, (HOME, *objects))), assumed=ASSUMED), NAMESPACE)


def test_w7b_a_port_that_is_taken_everywhere_is_waited_for() -> None:
    report = with_port(node("n"), node("m"), listening("p", "n"), listening("q", "m"))
    assert (report.verdict, codes(report)) == ("may-queue", ["GF515"])


def test_w7b_a_port_that_pods_of_the_node_keep_is_never_free() -> None:
    report = with_port(node("n"), listening("p", "n", owner="DaemonSet"))
    assert (report.verdict, codes(report)) == ("never", ["GF506"])


def test_w7b_a_port_that_nobody_else_wants_is_always_there() -> None:
    assert with_port(node("n"), node("m"), listening("p", "n")).verdict == "always"
    assert with_port(node("n"), node("m"), copies=2).verdict == "unknown"


# C10: a gang that must be in one rack.

GANG = "steps: {a: {command: [x], gpu: a100-80gb x 8, gang: {workers: 2}, topology: {same: rack}}}"
RACK = "example.com/rack"


def racks(*names: str) -> list[Body]:
    return [node(f"n{index}", 8, labels={RACK: name}) for index, name in enumerate(names)]


def test_c10_a_gang_for_which_no_rack_is_large_enough_never_runs() -> None:
    nvidia = Site.load("nvidia")
    rack_site = nvidia.model_copy(update={"topology": nvidia.topology.model_copy(update={"rack": RACK})})
    report = checked(GANG, *racks("r1", "r2", "r3"), site=rack_site)
    assert (report.verdict, codes(report)) == ("never", ["GF506"])
    assert checked(GANG, *racks("r1", "r2", "r2"), site=rack_site).verdict == "unknown"
