"""Findings D2: *unknown* where the answer is certain."""

from __future__ import annotations

from typing import Any

import pytest

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
    assert_a_snapshot_says_the_same,
    checked,
    codes,
    manifest,
    node,
    queues,
    quota,
    running,
    text_of,
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
    assert with_port(node("n"), node("m"), copies=2).verdict == "always"


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


# L1, L5, L6, L7: what pods ask of each other.

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
SELF = {"app": "a"}


def hosts(*zones: str, **more: Any) -> list[Body]:
    """Nodes n0, n1 ..., each in a zone."""
    named = [(f"n{number}", zone) for number, zone in enumerate(zones)]
    return [node(name, labels={HOST: name, ZONE: zone}, **more) for name, zone in named]


def apart(labels: Body = SELF, key: str = HOST, field: str = "podAntiAffinity", **more: Any) -> Body:
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": key, **more}
    return {"affinity": {field: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def spread(key: str = ZONE, **more: Any) -> Body:
    selector = {"matchLabels": SELF}
    return {
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector, **more}
        ]
    }


def step_of(name: str, spec: Body, copies: int = 1, pods: int = 1, labels: Body = SELF, **requests: str) -> StepDemand:
    asked = {"cpu": "1", "memory": "1Gi", **requests}
    container = {"name": "main", "image": "i", "resources": {"requests": asked}, "ports": spec.pop("ports", [])}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [container], **spec}}
    return StepDemand(name, (PodSet("main", pods, pod),), copies)


def judged(steps: StepDemand | list[StepDemand], *objects: Body, runs: int = 1) -> Report:
    steps = [steps] if isinstance(steps, StepDemand) else steps
    demand = Demand("p", tuple(steps), graph_of(tuple(steps)))
    scene = Cluster("cluster.yaml", tuple(map(manifest, (HOME, *objects))), assumed=ASSUMED)
    report = check(demand, scene, NAMESPACE, runs=runs)
    assert_a_snapshot_says_the_same(report, demand, scene, runs)
    return report


def bound(name: str, on: str, labels: Body = SELF, *, owner: str | None = None, **more: Any) -> Body:
    pod = running(name, on, labels=labels, **more)
    pod["metadata"]["namespace"] = NAMESPACE
    if owner is not None:
        pod["metadata"]["ownerReferences"] = [{"apiVersion": "apps/v1", "kind": owner, "name": "d", "uid": "u"}]
    return pod


@pytest.mark.parametrize(
    ("copies", "pods", "verdict"),
    [(1, 1, "always"), (3, 1, "always"), (4, 1, "may-queue"), (1, 3, "always"), (1, 4, "never"), (2, 3, "may-queue")],
)
@pytest.mark.parametrize("spec", [apart(), {"ports": [{"containerPort": 80, "hostPort": 80}]}])
def test_l5_one_pod_a_node_has_a_node_while_there_are_as_many(spec: Body, copies: int, pods: int, verdict: str) -> None:
    assert judged(step_of("a", dict(spec), copies, pods), *hosts("z", "z", "z")).verdict == verdict


def test_l5_pods_that_are_there_keep_their_nodes() -> None:
    three = hosts("z", "z", "z")
    assert judged(step_of("a", apart(), 2), *three, bound("x", "n0")).verdict == "always"
    assert judged(step_of("a", apart(), 3), *three, bound("x", "n0")).verdict == "may-queue"
    assert judged(step_of("a", apart(), 3), *three, bound("x", "n0", {"app": "b"})).verdict == "always"
    elsewhere = running("x", "n0", labels=SELF)  # in another namespace
    assert judged(step_of("a", apart(), 3), *three, elsewhere).verdict == "always"


def test_l5_pods_of_two_steps_keep_apart_whoever_asks_for_it() -> None:
    shy, other = step_of("a", apart({"app": "b"}), 2), step_of("b", {}, 2, labels={"app": "b"})
    assert judged([shy, other], *hosts("z", "z")).verdict == "may-queue"
    assert judged([shy, other], *hosts("z", "z", "z")).verdict == "always"
    # Four copies of the shy step may share a node: what closes nodes to them are the two others.
    many = step_of("a", apart({"app": "b"}), 4)
    assert judged([many, step_of("b", {}, 2, labels={"app": "b"})], *hosts(*"zzzzz")).verdict == "always"
    assert judged([many, step_of("b", {}, 2, labels={"app": "c"})], *hosts("z")).verdict == "always"
    # Labels tell steps apart that are alike otherwise.
    alike = [step_of("c", {}, 1, labels={"app": "c"}), step_of("b", {}, 1, labels={"app": "b"})]
    assert judged([step_of("a", apart({"app": "b"})), *alike], *hosts("z")).verdict == "may-queue"


def test_l5_several_runs_keep_apart_too() -> None:
    assert judged(step_of("a", apart(), 2), *hosts(*"zzzz"), runs=2).verdict == "always"
    assert judged(step_of("a", apart(), 2), *hosts(*"zzz"), runs=2).verdict == "may-queue"


def test_l5_a_full_node_is_none_of_those_that_are_needed() -> None:
    full = running("x", "n0", requests={"cpu": "64"})
    assert judged(step_of("a", apart(), 3), *hosts("z", "z", "z"), full).verdict == "may-queue"
    assert judged(step_of("a", apart(), 2), *hosts("z", "z", "z"), full).verdict == "always"


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (apart({"app": "b"}, field="podAffinity"), "its affinity to other pods"),
        (apart({"job-name": "a"}), "labels that a controller writes"),
        (apart({"batch.kubernetes.io/job-name": "a"}), "labels that a controller writes"),
        (apart({"kubernetes_pod_operator": "True"}), "labels that a controller writes"),
        (apart({"app.kubernetes.io/name": "kuberay"}), "labels that a controller writes"),
    ],
)
def test_l5_what_is_not_modeled_is_said(spec: Body, reason: str) -> None:
    report = judged(step_of("a", spec, 2), *hosts("z", "z", "y"))
    assert report.verdict == "unknown" and reason in text_of(report, "GF535")


def test_l5_a_gang_that_is_apart_by_zone_needs_a_node_in_each() -> None:
    assert judged(step_of("a", apart(key=ZONE), pods=2), *hosts("x", "y")).verdict == "always"
    assert judged(step_of("a", apart(key=ZONE), pods=3), *hosts("x", "y")).verdict == "never"
    # A node without the key is in no zone: any number may be there.
    assert judged(step_of("a", apart(key=ZONE), pods=3), *hosts("x", "y"), node("w")).verdict != "never"


def test_l5_what_keeps_nodes_closed_is_said() -> None:
    report = judged(step_of("a", apart(), 4), *hosts("z", "z", "y"))
    assert "pods that cannot be on a node with it (host ports, anti-affinity)" in text_of(report, "GF515")
    group = node("g", labels={HOST: "g"}, group=8)
    assert "3 new nodes of group g" in text_of(judged(step_of("a", apart(), 4), hosts("z")[0], group), "GF520")


def test_l5_a_name_that_two_nodes_share_is_no_node() -> None:
    twins = [node(name, labels={HOST: "n"}) for name in ("n", "m")]
    assert judged(step_of("a", apart(), 2), *twins).verdict == "may-queue"
    assert judged(step_of("a", apart()), *twins).verdict == "always"


def test_l5_a_zone_for_each_node_is_a_node() -> None:
    assert judged(step_of("a", apart(key=ZONE), 3), *hosts(*"xyz")).verdict == "always"
    assert judged(step_of("a", apart(key=ZONE), 4), *hosts(*"xyz")).verdict == "may-queue"


def waiting(labels: Body, **spec: Any) -> Body:
    pod = bound("w", "n0", labels, spec=spec)
    pod["spec"]["nodeName"] = ""
    return {**pod, "status": {"phase": "Pending"}}


def test_l5_a_pod_that_waits_may_take_the_node_first() -> None:
    assert judged(step_of("a", apart()), *hosts("z"), waiting(SELF)).verdict == "unknown"
    assert judged(step_of("a", apart()), *hosts("z"), waiting({"app": "b"})).verdict == "always"
    assert judged(step_of("a", apart()), *hosts("z"), waiting({})).verdict == "unknown"
    elsewhere = {**waiting({}), "metadata": {"name": "w", "namespace": "others"}}
    assert judged(step_of("a", apart()), *hosts("z"), elsewhere).verdict == "always"
    port = {"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]}
    wanted = [{"containerPort": 80, "hostPort": 80}]
    assert judged(step_of("a", {"ports": wanted}), *hosts("z"), waiting({}, **port)).verdict == "unknown"


def test_l1_pods_of_every_node_keep_others_out_for_good() -> None:
    two = hosts("z", "z")
    daemons = [bound(f"d{at}", f"n{at}", owner="DaemonSet") for at in (0, 1)]
    report = judged(step_of("a", apart(), labels={}), *two, *daemons)
    assert (report.verdict, codes(report)) == ("never", ["GF506"])
    assert "keeps the step out (host port, anti-affinity)" in text_of(report, "GF506")
    assert judged(step_of("a", apart(), labels={}), *two, daemons[0]).verdict == "always"
    mortal = [bound(f"d{at}", f"n{at}", owner="ReplicaSet") for at in (0, 1)]
    assert judged(step_of("a", apart(), labels={}), *two, *mortal).verdict == "may-queue"
    # By the zone, one of them is enough for both nodes.
    assert judged(step_of("a", apart(key=ZONE), labels={}), *two, daemons[0]).verdict == "never"
    # They may be those who ask for it.
    shy = [bound(f"d{at}", f"n{at}", {}, owner="DaemonSet", spec=apart()) for at in (0, 1)]
    assert judged(step_of("a", {}), *two, *shy).verdict == "never"
    assert judged(step_of("a", {}, labels={}), *two, *shy).verdict == "always"


def test_l1_labels_that_are_not_known_keep_nobody_out_for_good() -> None:
    two = hosts("z", "z")
    daemons = [bound(f"d{at}", f"n{at}", {"app": "b"}, owner="DaemonSet") for at in (0, 1)]
    absent = {"matchExpressions": [{"key": "job-name", "operator": "DoesNotExist"}]}
    shy = [bound(f"d{at}", f"n{at}", {}, owner="DaemonSet", spec=apart(labelSelector=absent)) for at in (0, 1)]
    assert judged(step_of("a", {}, labels={}), *two, *shy).verdict == "may-queue"
    narrowed = apart({"app": "b"}, matchLabelKeys=["pod-template-hash"])
    assert judged(step_of("a", narrowed, labels={}), *two, *daemons).verdict == "may-queue"


@pytest.mark.parametrize(
    ("copies", "zones", "more", "verdict"),
    [
        (3, "xyz", {}, "always"),
        (9, "xyz", {}, "always"),
        (3, "xxx", {}, "always"),
        (3, "xyz", {"minDomains": 4}, "unknown"),
        (3, "xyz", {"topologyKey": "example.com/rack"}, "never"),
        (3, "xyz", {"topologyKey": "example.com/rack", "whenUnsatisfiable": "ScheduleAnyway"}, "always"),
        (3, "xyz", {"topologyKey": HOST, "maxSkew": 2}, "always"),
    ],
)
def test_l6_a_spread_is_met_where_every_domain_always_has_room(
    copies: int, zones: str, more: Body, verdict: str
) -> None:
    assert judged(step_of("a", spread(**more), copies), *hosts(*zones)).verdict == verdict


def test_l6_a_domain_without_room_keeps_the_others_closed() -> None:
    full = running("x", "n0", requests={"cpu": "64"})
    assert judged(step_of("a", spread(), 3), *hosts(*"xyz"), full).verdict == "unknown"
    assert judged(step_of("a", spread(), 3), *hosts(*"xxyz"), full).verdict == "always"
    tainted = node("t", labels={ZONE: "t", HOST: "t"}, taints=[{"key": "k", "effect": "NoSchedule"}])
    assert judged(step_of("a", spread(), 3), *hosts(*"xyz"), tainted).verdict == "unknown"
    honors = spread(nodeTaintsPolicy="Honor")
    assert judged(step_of("a", honors, 3), *hosts(*"xyz"), tainted).verdict == "always"
    cordoned = node("t", labels={ZONE: "t", HOST: "t"}, unschedulable=True)
    assert judged(step_of("a", spread(), 3), *hosts(*"xyz"), cordoned).verdict == "unknown"
    group = node("t", labels={ZONE: "t", HOST: "t"}, group=3)
    assert judged(step_of("a", spread(), 3), *hosts(*"xyz"), group).verdict == "unknown"
    key = "topologySpreadConstraints"
    both = {key: [*spread()[key], *spread(HOST)[key]]}
    assert judged(step_of("a", both, 3), *hosts(*"xyz")).verdict == "unknown"


def test_l7_a_port_is_shared_with_other_steps_and_other_addresses() -> None:
    def step(name: str, copies: int, **port: Any) -> StepDemand:
        return step_of(name, {"ports": [{"containerPort": 80, "hostPort": 80, **port}]}, copies, labels={})

    assert judged([step("a", 1), step("b", 1)], *hosts(*"zz")).verdict == "always"
    assert judged([step("a", 1), step("b", 2)], *hosts(*"zz")).verdict == "may-queue"
    assert judged([step("a", 1), step("b", 1, protocol="UDP")], *hosts("z")).verdict == "always"
    two = [step("a", 1, hostIP="10.0.0.1"), step("b", 1, hostIP="10.0.0.2")]
    assert judged(two, *hosts("z")).verdict == "always"
    assert judged([*two, step("c", 1)], *hosts(*"zz")).verdict == "may-queue"
