"""Others who wait already: pods that no node has yet, and workloads that Kueue has not admitted yet.

Tests gpuflow/checker/contention/concurrency.py, gpuflow/checker/pipeline/nodes/pending.py and
gpuflow/checker/pipeline/queues/requests.py.
"""

from __future__ import annotations

from itertools import chain, combinations
from typing import Any, NamedTuple

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.checker.kueue.scenes import (
    API,
    cluster_queue,
    flavor,
    holder,
    local_queue,
    pod_set,
    with_spec,
    workload,
)
from tests.checker.test_whole_truth import Step, Vector, moments, pipelines, placements, written
from tests.checker.whole_scenes import (
    A100,
    NAMESPACE,
    TAINT,
    Body,
    checked,
    codes,
    node,
    queues,
    quota,
    running,
    text_of,
)

TWO = "steps:\n  a: {command: [x], gpu: a100-80gb x 2}"
QUEUED = "steps:\n  a: {command: [x], gpu: a100-80gb x 2, queue: lq, retry: {interruptions: 1}}"


def pending(
    name: str, gpu: int = 0, *, requests: Body | None = None, spec: Body | None = None, **metadata: Any
) -> Body:
    """A pod of somebody else that waits for a node."""
    pod = running(name, "", gpu, requests=requests or {}, spec=spec or {})
    pod["spec"] = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    return {**pod, "metadata": {**pod["metadata"], **metadata}, "status": {"phase": "Pending"}}


def test_a_pod_that_may_take_the_place_first_is_named() -> None:
    report = checked(TWO, node("n", 2), pending("p", 2))
    assert (report.verdict, codes(report)) == ("may-queue", ["GF524"])
    assert "pod others/p waits for a node too and may get it first" in text_of(report, "GF524")


def test_of_many_pods_the_largest_are_named_and_the_rest_counted() -> None:
    report = checked(TWO, node("n", 2), *(pending(f"p{index}", 1 + index % 2) for index in range(7)))
    assert "pods others/p1, others/p3, others/p5 and 4 more wait" in text_of(report, "GF524")


FITS = {"n": node("n", 2), "m": node("m", 2)}
ON_Y = {"nodeSelector": {"x": "y"}}
GATED = {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}
ON_N: Body = {
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]
            }
        }
    }
}
SEATS: dict[str, tuple[list[Body], str]] = {
    "it leaves room on the node": ([node("n", 4), pending("p", 2)], "always"),
    "another node is left": ([node("n", 2), node("m", 2), pending("p", 2)], "always"),
    "each node can be taken": ([node("n", 2), node("m", 2), pending("p", 2), pending("q", 2)], "may-queue"),
    "both want the same node": ([*FITS.values(), pending("p", 2, spec=ON_N), pending("q", 2)], "may-queue"),
    "it takes the cpus": ([node("n", 8, cpu="4"), pending("p", requests={"cpu": "4"})], "may-queue"),
    "it takes the last place for a pod": ([node("n", 2, pods=1), pending("p")], "may-queue"),
    "it fits once others leave": ([node("n", 8), running("r", "n", 4), pending("p", 8)], "may-queue"),
    "it fits on no node": ([node("n", 2), pending("p", 16)], "always"),
    "it belongs on other nodes": ([node("n", 2), node("m", labels={"x": "y"}), pending("p", 2, spec=ON_Y)], "always"),
    "it does not tolerate the node": ([node("n", 2, taints=[TAINT]), pending("p", 2)], "always"),
    "a gate holds it": ([node("n", 2), pending("p", 2, spec=GATED)], "always"),
    "it is being deleted": ([node("n", 2), pending("p", 2, deletionTimestamp="2026-01-01T00:00:00Z")], "always"),
    "it is over": ([node("n", 2), {**pending("p", 2), "status": {"phase": "Failed"}}], "always"),
    "it is of our own namespace": ([node("n", 2), pending("p", 2, namespace=NAMESPACE)], "may-queue"),
    "the node is full anyway": ([node("n", 2), running("r", "n", 2), pending("p", 2)], "may-queue"),
}


@pytest.mark.parametrize("name", SEATS)
def test_a_pod_that_waits_counts_where_it_could_sit(name: str) -> None:
    objects, verdict = SEATS[name]
    assert checked(TWO, *objects).verdict == verdict


def test_never_comes_from_the_nodes_alone() -> None:
    assert checked(TWO, node("n", 1), pending("p", 1)).verdict == "never"
    assert checked(TWO, node("n", 2), *(pending(f"p{index}", 2) for index in range(9))).verdict == "may-queue"


def test_a_pod_that_will_keep_ours_apart_is_named() -> None:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}, "namespaces": [NAMESPACE]}
    shy = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
    report = checked(TWO, node("n", 8, labels={**A100, "kubernetes.io/hostname": "n"}), pending("p", spec=shy))
    assert report.verdict == "may-queue"
    assert "others/p" in text_of(report, "GF524")


class Others(NamedTuple):
    """Who is bound, with the node, and who waits."""

    bound: list[tuple[int, Vector]]
    waiting: list[Vector]


VECTORS = st.tuples(st.integers(1, 3), st.integers(1, 3))


def can_lose(steps: list[Step], nodes: list[Vector], others: Others) -> bool:
    """Whether some step can find no room at some moment: whoever is bound may have left, whoever waits may sit."""
    gone = chain.from_iterable(combinations(others.bound, size) for size in range(len(others.bound) + 1))
    frees = [_free(nodes, left) for left in gone]
    waits = list(chain.from_iterable(combinations(others.waiting, size) for size in range(len(others.waiting) + 1)))
    for alive in moments(steps):
        for index in range(len(alive)):
            asking = steps[alive[index]]
            own = [(steps[each].gpus, steps[each].cpus) for each in (*alive[:index], *alive[index + 1 :])]
            for free in frees:
                for pending in waits:
                    for left in placements(free, [*own, *pending]):
                        if not any(gpus >= asking.gpus and cpus >= asking.cpus for gpus, cpus in left):
                            return True
    return False


def _free(nodes: list[Vector], bound: tuple[tuple[int, Vector], ...]) -> list[Vector]:
    free = [list(each) for each in nodes]
    for index, amounts in bound:
        for side in (0, 1):
            free[index][side] -= amounts[side]
    return [(gpus, cpus) for gpus, cpus in free]


@settings(max_examples=150, deadline=None)
@given(
    pipelines(most=2),
    st.lists(st.tuples(st.integers(2, 6), st.integers(2, 8)), min_size=1, max_size=3),
    st.lists(VECTORS, max_size=2),
    st.data(),
)
def test_always_holds_whoever_sits_down_first(
    steps: list[Step], nodes: list[Vector], waiting: list[Vector], data: st.DataObject
) -> None:
    bound: list[tuple[int, Vector]] = []
    for index, (gpus, cpus) in enumerate(nodes):
        if data.draw(st.booleans()):
            amounts = st.tuples(st.integers(0, gpus), st.integers(0, cpus))
            bound.append((index, data.draw(amounts)))
    objects = [node(f"n{index}", gpus, cpu=str(cpus)) for index, (gpus, cpus) in enumerate(nodes)]
    for number, (index, (gpus, cpus)) in enumerate(bound):
        objects.append(running(f"r{number}", f"n{index}", gpus, requests={"cpu": str(cpus)}))
    for number, (gpus, cpus) in enumerate(waiting):
        objects.append(pending(f"p{number}", gpus, requests={"cpu": str(cpus)}))
    verdict = checked(written(steps), *objects).verdict
    fits_alone = all(any(gpus >= step.gpus and cpus >= step.cpus for gpus, cpus in nodes) for step in steps)
    assert (verdict == "never") is not fits_alone
    if fits_alone:
        truth = "may-queue" if can_lose(steps, nodes, Others(bound, waiting)) else "always"
        event(f"said {verdict}, true {truth}")
        assert verdict == truth or (verdict, truth) == ("may-queue", "always")


def waits(gpus: int, name: str = "other", **rest: Any) -> Body:
    return workload(pod_set(gpu=str(gpus), cpu="1", memory="1Gi"), name=name, minute=5, **rest)


def test_a_workload_that_may_be_admitted_first_is_named() -> None:
    report = checked(QUEUED, *queues({"f": quota(2)}), waits(2))
    assert (report.verdict, codes(report)) == ("may-queue", ["GF524"])
    assert f"workload {NAMESPACE}/other waits for the same quota and may be admitted first" in text_of(report, "GF524")


FINISHED = {"conditions": [{"type": "Finished", "status": "True"}]}
TWO_FLAVORS = [flavor("f", nodeLabels={"pool": "f"}), flavor("g", nodeLabels={"pool": "g"})]

LINES: dict[str, tuple[list[Body], str]] = {
    "there is quota for both": ([*queues({"f": quota(4)}), waits(2)], "always"),
    "it can never be admitted": ([*queues({"f": quota(2)}), waits(3)], "always"),
    "it is over": ([*queues({"f": quota(2)}), waits(2, status=FINISHED)], "always"),
    "it is not active": ([*queues({"f": quota(2)}), waits(2, spec={"active": False})], "always"),
    "it comes later by priority": ([*queues({"f": quota(2)}), waits(2, priority=-5)], "may-queue"),
    "the queue is strict": ([*queues({"f": quota(2)}, queueingStrategy="StrictFIFO"), waits(2)], "may-queue"),
    "it takes quota of the cohort": (
        [
            *queues({"f": quota(0)}, cohortName="c"),
            cluster_queue({"f": quota(2)}, name="cq2", cohortName="c"),
            local_queue("lq2", "cq2"),
            waits(2, spec={"queueName": "lq2"}),
        ],
        "may-queue",
    ),
    "it may not borrow what is ours": (
        [
            *queues({"f": {**quota(0), "nvidia.com/gpu": {"nominalQuota": "2", "lendingLimit": "0"}}}, cohortName="c"),
            cluster_queue({"f": quota(2)}, name="cq2", cohortName="c"),
            local_queue("lq2", "cq2"),
            waits(2, spec={"queueName": "lq2"}),
        ],
        "always",
    ),
    "it waits for another flavor": (
        [
            *queues({"f": quota(2)}),
            cluster_queue({"g": quota(2)}, name="cq2"),
            {"apiVersion": API, "kind": "ResourceFlavor", "metadata": {"name": "g"}},
            local_queue("lq2", "cq2"),
            waits(2, spec={"queueName": "lq2"}),
        ],
        "always",
    ),
    "its node selector keeps it off our flavor": (
        [
            *queues({"f": quota(2), "g": quota(2)}, flavors=TWO_FLAVORS),
            workload(with_spec(pod_set(gpu="2"), nodeSelector={"pool": "g"}), name="w"),
        ],
        "always",
    ),
    "our flavor could never hold it": (
        [*queues({"f": quota(2), "g": quota(9)}, flavors=TWO_FLAVORS), waits(5)],
        "always",
    ),
}


@pytest.mark.parametrize("name", LINES)
def test_a_workload_that_waits_counts_where_it_may_be_charged(name: str) -> None:
    objects, verdict = LINES[name]
    assert checked(QUEUED, *objects).verdict == verdict


@settings(max_examples=100, deadline=None)
@given(pipelines(most=2), st.integers(3, 8), st.integers(0, 3), st.lists(st.integers(1, 9), max_size=3))
def test_always_holds_whoever_is_admitted_first(steps: list[Step], most: int, held: int, waiting: list[int]) -> None:
    objects = [
        *queues({"f": quota(most)}),
        *([holder("h", {"f": {"nvidia.com/gpu": str(held)}})] if held else []),
        *(waits(gpus, name=f"w{number}") for number, gpus in enumerate(waiting)),
    ]
    verdict = checked(written(steps, ", queue: lq, retry: {interruptions: 1}"), *objects).verdict
    lines = list(chain.from_iterable(combinations(waiting, size) for size in range(len(waiting) + 1)))
    loses = any(
        sum(steps[each].gpus for each in alive) - steps[asking].gpus + sum(pending) + used <= most
        and sum(steps[each].gpus for each in alive) + sum(pending) + used > most
        for alive in moments(steps)
        for asking in alive
        for pending in lines
        for used in (0, held)
    )
    assert (verdict == "never") is any(step.gpus > most for step in steps)
    if verdict != "never":
        truth = "may-queue" if loses else "always"
        event(f"said {verdict}, true {truth}")
        # Who must leave before somebody sits down is not followed.
        assert verdict == truth or (verdict, truth) == ("may-queue", "always")


def with_status(objects: list[Body], kind: str, status: Body) -> list[Body]:
    return [{**each, "status": status} if each["kind"] == kind else each for each in objects]


def test_workloads_that_wait_and_are_not_in_the_snapshot_make_unknown() -> None:
    for shown, verdict in ((1, "unknown"), (2, "always")):
        others = [waits(1, name=f"w{number}") for number in range(shown)]
        report = checked(
            QUEUED, *with_status(queues({"f": quota(9)}), "ClusterQueue", {"pendingWorkloads": 2}), *others
        )
        text = text_of(report, "GF574")
        assert report.verdict == verdict
        assert ("has 2 pending workloads; the snapshot shows 1" in text) is (verdict == "unknown")


def test_a_workload_that_was_admitted_between_two_lists_is_not_missed() -> None:
    admitted = holder("h", {"f": {"nvidia.com/gpu": "1"}})
    objects = with_status(queues({"f": quota(9)}), "ClusterQueue", {"pendingWorkloads": 1, "reservingWorkloads": 0})
    assert checked(QUEUED, *objects, admitted).verdict == "always"


@pytest.mark.parametrize("kind", ["LocalQueue", "ClusterQueue"])
def test_a_queue_that_calls_itself_inactive_is_not_taken_for_an_active_one(kind: str) -> None:
    inactive = {"type": "Active", "status": "False", "reason": "Terminating", "message": "Can't admit new workloads"}
    report = checked(QUEUED, *with_status(queues({"f": quota(9)}), kind, {"conditions": [inactive]}))
    assert report.verdict == "may-queue"  # nothing deletes it: its status lags behind
    assert "until Kueue sees that it is active again" in text_of(report, "GF517")


def test_a_workload_of_unknown_age_stands_before_ours_in_a_strict_queue() -> None:
    huge = waits(9)
    huge = {**huge, "metadata": {key: huge["metadata"][key] for key in ("name", "namespace")}}
    report = checked(QUEUED, *queues({"f": quota(8)}, queueingStrategy="StrictFIFO"), huge)
    assert (report.verdict, codes(report)) == ("never", ["GF510"])
