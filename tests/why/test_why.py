"""`gpuflow why`: what keeps a pod, a workload, a workflow or a job from starting, and what would let it start.

Tests gpuflow/cli/why.py, gpuflow/why/answer.py, gpuflow/why/pods.py and gpuflow/why/queues.py.
"""

from __future__ import annotations

import copy
import io
import json
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuflow.checker.nodes import fit_nodes
from gpuflow.checker.snapshot.validation import PreparedCluster
from gpuflow.cli.main import main
from gpuflow.cluster.manifests import cluster_of
from gpuflow.why.pods import why_pod

GPU = "nvidia.com/gpu"


def node(name: str, gpus: int = 8, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": spec,
        "status": {"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110", GPU: str(gpus)}},
    }


def pod(name: str, gpus: int, namespace: str = "team-a", status: Any = None, **spec: Any) -> dict[str, Any]:
    resources = {"limits": {GPU: str(gpus)}} if gpus else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [{"name": "main", "image": "x", "resources": resources}], **spec},
        "status": status or {"phase": "Running" if "nodeName" in spec else "Pending"},
    }


def kueue(name: str, cpu: int = 0, gpus: int = 4) -> list[dict[str, Any]]:
    group = {
        "coveredResources": [GPU],
        "flavors": [{"name": "a100", "resources": [{"name": GPU, "nominalQuota": gpus}]}],
    }
    beta = "kueue.x-k8s.io/v1beta1"
    return [
        {"apiVersion": beta, "kind": "ResourceFlavor", "metadata": {"name": "a100"}, "spec": {}},
        {
            "apiVersion": beta,
            "kind": "ClusterQueue",
            "metadata": {"name": name},
            "spec": {"namespaceSelector": {}, "resourceGroups": [group]},
        },
        {
            "apiVersion": beta,
            "kind": "LocalQueue",
            "metadata": {"name": "gpus", "namespace": "team-a"},
            "spec": {"clusterQueue": name},
        },
    ]


def workload(name: str, gpus: int, owner: str | None = None, admitted: bool = False) -> dict[str, Any]:
    template = {"spec": pod("x", gpus)["spec"]}
    body: dict[str, Any] = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "team-a", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"queueName": "gpus", "podSets": [{"name": "main", "count": 1, "template": template}]},
        "status": {},
    }
    if owner is not None:
        body["metadata"]["ownerReferences"] = [{"kind": "Pod", "name": owner, "apiVersion": "v1", "uid": "u"}]
    if admitted:
        since = {"lastTransitionTime": "2026-01-01T00:00:00Z", "message": "", "reason": "QuotaReserved"}
        body["status"] = {
            "admission": {
                "clusterQueue": "team",
                "podSetAssignments": [
                    {"name": "main", "count": 1, "flavors": {GPU: "a100"}, "resourceUsage": {GPU: str(gpus)}}
                ],
            },
            "conditions": [
                {"type": "QuotaReserved", "status": "True", **since},
                {"type": "Admitted", "status": "True", **since},
            ],
        }
    return body


@pytest.fixture
def ask(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Ask about an object of these manifests: exit code and answer."""

    def asked(subject: str, *manifests: Any) -> tuple[int, dict[str, Any]]:
        file = tmp_path / "cluster.yaml"
        file.write_text(yaml.safe_dump_all(manifests), encoding="utf-8")
        code = main(["why", subject, "--cluster", str(file), "--namespace", "team-a", "--format", "json"])
        out = capsys.readouterr()
        return code, json.loads(out.out) if out.out else {"error": out.err}

    return asked


def test_a_pod_without_room_names_the_node_what_is_short_and_who_holds_it(ask: Any) -> None:
    code, answer = ask("pod/train", node("g1"), pod("holder", 6, "team-b", nodeName="g1"), pod("train", 4))
    assert code == 0 and answer["state"] == "waits"
    [cause] = answer["causes"]
    assert cause["by"] == "nodes"
    assert cause["kubernetes"] == f"0/1 nodes are available: 1 Insufficient {GPU}."
    assert cause["starts_when"] == [f"node g1 has 2 more {GPU} free (8 in all; now held: team-b/holder 6)"]


def test_pods_of_lower_priority_are_named_only_where_they_are_enough(ask: Any) -> None:
    low = pod("low", 2, "team-b", nodeName="g1", priority=0)
    high = pod("high", 6, "team-b", nodeName="g1", priority=100)
    _, enough = ask("pod/train", node("g1"), low, high, pod("train", 2, priority=50))
    _, short = ask("pod/train", node("g1"), low, high, pod("train", 4, priority=50))
    assert "may preempt pods of lower priority there: team-b/low" in enough["causes"][0]["starts_when"][0]
    assert "preempt" not in short["causes"][0]["starts_when"][0]


def test_a_pod_that_no_node_can_hold_never_starts(ask: Any) -> None:
    code, answer = ask("pod/train", node("g1"), pod("train", 16))
    assert code == 1 and answer["state"] == "never"
    assert answer["causes"][0]["starts_when"] == [
        f"it asks for less, or a larger node comes ({GPU}: asks for 16, g1 has 8)"
    ]


def test_a_pod_that_fits_is_about_to_start_after_those_of_higher_priority(ask: Any) -> None:
    _, answer = ask("pod/train", node("g1"), pod("train", 1), pod("first", 1, "team-b", priority=9))
    assert answer["state"] == "starts"
    assert "after the pods of higher priority that wait too (team-b/first)" in answer["summary"]


def test_without_nodes_it_is_unknown(ask: Any) -> None:
    code, answer = ask("pod/train", pod("train", 1))
    assert code == 0 and answer["state"] == "unknown"


def test_a_cordoned_node_is_said_with_the_schedulers_words(ask: Any) -> None:
    _, answer = ask("pod/train", node("g1", unschedulable=True), pod("train", 1))
    assert answer["state"] == "waits"
    assert "were unschedulable" in answer["causes"][0]["starts_when"][0]


@pytest.mark.parametrize(
    ("status", "state", "words"),
    [
        ({"phase": "Running", "containerStatuses": [{"name": "main", "state": {"running": {}}}]}, "runs", "runs on"),
        ({"phase": "Succeeded"}, "ended", "ended"),
        (
            {
                "phase": "Pending",
                "containerStatuses": [{"name": "main", "state": {"waiting": {"reason": "ImagePullBackOff"}}}],
            },
            "waits",
            "ImagePullBackOff",
        ),
        ({"phase": "Pending"}, "waits", "has not reported"),
    ],
)
def test_a_pod_that_has_its_node(ask: Any, status: Any, state: str, words: str) -> None:
    _, answer = ask("pod/train", node("g1"), pod("train", 1, status=status, nodeName="g1"))
    assert answer["state"] == state and words in answer["summary"]


def test_a_gate_of_kueue_is_answered_by_its_workload(ask: Any) -> None:
    gated = pod("train", 4, schedulingGates=[{"name": f"kueue.x-k8s.io/{gate}"} for gate in ("admission", "topology")])
    holder = workload("holder", 2, admitted=True)
    _, answer = ask("pod/train", node("g1"), gated, *kueue("team"), holder, workload("pod-train", 4, owner="train"))
    assert answer["state"] == "waits" and answer["causes"][0]["by"] == "queue"
    assert answer["causes"][0]["starts_when"] == [
        f"2 more {GPU} of flavor a100 is given back; now held by team-a/holder (2 in team)"
    ]
    assert "insufficient unused quota" in answer["causes"][0]["kubernetes"]


def older(name: str, gpus: int, *, second: int = 0, priority: int = 0) -> dict[str, Any]:
    """A workload that came at this second of the year 2025."""
    body = workload(name, gpus)
    body["metadata"]["creationTimestamp"] = f"2025-01-01T00:00:{second:02}Z"
    body["spec"]["priority"] = priority
    return body


def place(answer: dict[str, Any]) -> dict[str, Any]:
    [cause] = [each for each in answer["causes"] if "before it in" in each["message"] or "first in" in each["message"]]
    return cause


def test_a_workload_that_waits_names_its_place_and_who_is_tried_first(ask: Any) -> None:
    queue, holder = kueue("team"), workload("holder", 4, admitted=True)
    _, alone = ask("workload/c", *queue, holder, workload("c", 2))
    assert place(alone)["message"] == "it stands first in ClusterQueue team (BestEffortFIFO)"
    _, second = ask("workload/c", *queue, holder, workload("c", 2), older("b", 2))
    assert second["state"] == "waits"
    assert "2 more nvidia.com/gpu of flavor a100 is given back" in second["causes"][0]["starts_when"][0]
    assert place(second)["message"] == (
        "1 workload stands before it in ClusterQueue team (BestEffortFIFO, by priority and age): team-a/b"
    )
    [when] = place(second)["starts_when"]
    assert when == (
        "team-a/b is admitted or gone, or 2 nvidia.com/gpu of flavor a100 is given back for it too: it is tried first"
    )


def test_the_place_in_a_queue_is_by_priority_and_then_by_age(ask: Any) -> None:
    scene = [*kueue("team"), workload("holder", 4, admitted=True), workload("c", 2)]
    others = [older("b", 1, second=9), older("a", 3, second=5), older("z", 2, second=30, priority=9)]
    newer = workload("d", 1)
    newer["metadata"]["creationTimestamp"] = "2026-01-01T00:00:01Z"
    low = older("low", 1, priority=-1)
    _, answer = ask("workload/c", *scene, *others, newer, low)
    assert place(answer)["message"].startswith("3 workloads stand before it")
    assert place(answer)["message"].endswith(": team-a/z, team-a/a, team-a/b")
    # Evicted because a check failed, it stands where that put it: behind those that came since.
    back = older("b", 1)
    back["status"]["conditions"] = [
        {
            "type": "Evicted",
            "status": "True",
            "reason": "AdmissionCheck",
            "message": "",
            "lastTransitionTime": "2026-02-01T00:00:00Z",
        }
    ]
    _, answer = ask("workload/c", *scene, back)
    assert place(answer)["message"].startswith("it stands first")


def test_who_stands_before_it_and_asks_for_nothing_of_it_is_no_rival(ask: Any) -> None:
    scene = [*kueue("team"), workload("holder", 4, admitted=True), workload("c", 2)]
    _, answer = ask("workload/c", *scene, older("big", 9), older("none", 0))
    assert place(answer)["message"].startswith("2 workloads stand before it") and place(answer)["starts_when"] == []
    scene[1]["spec"]["queueingStrategy"] = "StrictFIFO"
    _, strict = ask("workload/c", *scene, older("big", 9))
    assert "(StrictFIFO, by priority and age)" in place(strict)["message"]
    assert any("the queue is StrictFIFO" in each["message"] for each in strict["causes"])


def test_a_place_is_not_known_where_workloads_are_not_shown(ask: Any) -> None:
    queue, holder = kueue("team"), workload("holder", 4, admitted=True)
    queue[1]["status"] = {"pendingWorkloads": 3}
    _, answer = ask("workload/c", *queue, holder, workload("c", 2), older("b", 2))
    assert answer["state"] == "waits"
    [cause] = [each for each in answer["causes"] if "is not known" in each["message"]]
    assert "it has 3 workloads that wait" in cause["message"] and cause["message"].endswith("shows 2")
    queue[1]["status"] = {"pendingWorkloads": 2}
    _, shown = ask("workload/c", *queue, holder, workload("c", 2), older("b", 2))
    assert place(shown)["message"].startswith("1 workload stands before it")
    ageless = older("b", 2)
    del ageless["metadata"]["creationTimestamp"]
    _, answer = ask("workload/c", *kueue("team"), holder, workload("c", 2), ageless)
    assert any("b: no creationTimestamp" in each["message"] for each in answer["causes"])
    elsewhere = older("b", 2)
    elsewhere["metadata"]["namespace"] = "team-b"
    _, answer = ask("workload/c", *kueue("team"), holder, workload("c", 2), elsewhere)
    assert any("which ClusterQueue team-b/b waits in is not shown" in each["message"] for each in answer["causes"])


def test_a_workload_beyond_its_queue_never_starts(ask: Any) -> None:
    code, answer = ask("workload/big", node("g1"), *kueue("team"), workload("big", 5))
    assert code == 1 and answer["state"] == "never"
    assert "maximum capacity" in answer["causes"][0]["kubernetes"]


def test_a_workload_with_room_and_one_without_a_queue(ask: Any) -> None:
    _, fits = ask("workload/small", node("g1"), *kueue("team"), workload("small", 1))
    assert fits["state"] == "starts"
    lost = workload("lost", 1)
    lost["spec"]["queueName"] = "none"
    code, answer = ask("workload/lost", node("g1"), *kueue("team"), lost)
    assert code == 1 and answer["summary"] == "its LocalQueue does not exist"


def test_another_gate_is_named(ask: Any) -> None:
    _, answer = ask("pod/train", node("g1"), pod("train", 1, schedulingGates=[{"name": "example.com/wait"}]))
    assert answer["causes"][0]["by"] == "gate" and "example.com/wait" in answer["summary"]


def job(name: str, gpus: int, **spec: Any) -> dict[str, Any]:
    template = {"spec": {**pod("x", gpus)["spec"], "restartPolicy": "Never"}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "team-a"},
        "spec": {"template": template, **spec},
    }


def quota(used: int, hard: int = 4) -> dict[str, Any]:
    key = f"requests.{GPU}"
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "gpus", "namespace": "team-a"},
        "spec": {"hard": {key: str(hard)}},
        "status": {"hard": {key: str(hard)}, "used": {key: str(used)}},
    }


def test_a_job_whose_pods_a_quota_refuses(ask: Any) -> None:
    code, answer = ask("job/train", node("g1"), quota(used=3), job("train", 2))
    assert code == 0 and answer["state"] == "waits"
    [part] = answer["parts"]
    assert part["causes"][0]["by"] == "quota" and "exceeded quota: gpus" in part["causes"][0]["kubernetes"]
    code, answer = ask("job/train", node("g1"), quota(used=0), job("train", 5))
    assert code == 1 and answer["state"] == "never"


def test_a_suspended_job_with_and_without_a_workload(ask: Any) -> None:
    _, alone = ask("job/train", node("g1"), job("train", 2, suspend=True))
    assert alone["summary"] == "the job is suspended"
    owned = workload("job-train", 5)
    owned["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "train", "apiVersion": "batch/v1", "uid": "u"}]
    code, answer = ask("job/train", node("g1"), *kueue("team"), owned, job("train", 5, suspend=True))
    assert code == 1 and answer["causes"][0]["by"] == "queue"


def workflow(nodes: Any, **spec: Any) -> dict[str, Any]:
    container = {"image": "x", "resources": {"limits": {GPU: "2"}}}
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": "nightly", "namespace": "team-a"},
        "spec": {
            "entrypoint": "main",
            "templates": [
                {"name": "main", "dag": {"tasks": [{"name": "train", "template": "train"}]}},
                {"name": "train", "container": container},
            ],
            **spec,
        },
        "status": {"phase": "Running", "nodes": {each["id"]: each for each in nodes}},
    }


def test_a_workflow_says_why_each_of_its_pods_waits(ask: Any) -> None:
    waiting = pod("nightly-train-1", 16)
    waiting["metadata"]["labels"] = {"workflows.argoproj.io/workflow": "nightly"}
    step = {"id": "nightly-1", "displayName": "train", "type": "Pod", "phase": "Pending"}
    code, answer = ask("workflow/nightly", node("g1"), waiting, workflow([step]))
    assert code == 1 and answer["summary"] == "1 of 1 pods do not run"
    assert answer["parts"][0]["object"] == "pod/nightly-train-1" and answer["parts"][0]["state"] == "never"


def test_a_workflow_whose_pod_is_not_there_quotes_argo(ask: Any) -> None:
    step = {"id": "nightly-1", "displayName": "gone", "type": "Pod", "phase": "Pending", "message": "exceeded quota"}
    _, answer = ask("workflow/nightly", node("g1"), workflow([step]))
    assert answer["parts"][0]["causes"][0]["kubernetes"] == "exceeded quota"


def test_a_suspended_workflow_and_one_that_waits_for_a_person(ask: Any) -> None:
    _, answer = ask("workflow/nightly", node("g1"), workflow([], suspend=True))
    assert answer["summary"] == "the workflow is suspended"
    step = {"id": "nightly-1", "displayName": "approve", "type": "Suspend", "phase": "Running"}
    _, answer = ask("workflow/nightly", node("g1"), workflow([step]))
    assert answer["summary"] == "the step approve waits for a person"


@pytest.mark.parametrize("word", ["train", "node/g1", "pod/", "pods"])
def test_what_cannot_be_asked_about_is_one_message(ask: Any, word: str) -> None:
    code, answer = ask(word, node("g1"))
    assert code == 2 and "GF903" in answer["error"]
    assert "write KIND/NAME" in answer["error"] or "known here: job, pod, workflow, workload" in answer["error"]


def test_an_object_that_is_not_there_says_which_are_alike(ask: Any) -> None:
    code, answer = ask("pod/trian", node("g1"), pod("train", 1))
    assert code == 2 and "GF795" in answer["error"] and 'did you mean "train"?' in answer["error"]


def test_text_for_a_person(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(yaml.safe_dump_all([node("g1"), pod("train", 16)]), encoding="utf-8")
    assert main(["why", "pod/train", "--cluster", str(file), "--namespace", "team-a"]) == 1
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == "pod/train: never: no node can hold it, even an empty one; the closest is g1"
    assert rest[0].startswith("    starts when it asks for less")


amounts = st.integers(0, 9)


@settings(deadline=None, max_examples=150)
@given(
    sizes=st.lists(st.integers(0, 8), min_size=1, max_size=4),
    held=st.lists(st.tuples(st.integers(0, 3), amounts), max_size=6),
    asked=amounts,
)
def test_the_answer_is_what_the_scheduler_does(sizes: list[int], held: list[tuple[int, int]], asked: int) -> None:
    """Never: not even on empty nodes. Waits: not now, and on the nodes named when they are empty. Starts: now."""
    nodes = [node(f"n{index}", size) for index, size in enumerate(sizes)]
    bound = [
        pod(f"p{index}", gpus, "team-b", nodeName=f"n{host % len(sizes)}") for index, (host, gpus) in enumerate(held)
    ]
    waiting = pod("train", asked)
    answer = why_pod(waiting, PreparedCluster(cluster_of([*nodes, *bound, waiting]), "team-a"))
    now = fit_nodes(waiting, nodes, bound).feasible
    ever = fit_nodes(waiting, nodes).feasible
    assert answer.state == ("starts" if now else "waits" if ever else "never")
    if answer.state == "waits":
        named = [word.split()[1] for word in answer.causes[0].starts_when if word.startswith("node ")]
        assert named and set(named) <= set(ever)


# ------------------------------------------------------- dumps that somebody edited, and states that are easy to miss

JUNK = (None, [], {}, "x", 7, True, [None], ["x"], {"a": None}, {"a": 7}, 1.5)


def _samples() -> list[tuple[str, list[dict[str, Any]]]]:
    gated = pod("train", 1, schedulingGates=[{"name": "kueue.x-k8s.io/admission"}, {"name": "example.com/wait"}])
    gated["metadata"] |= {
        "labels": {"kueue.x-k8s.io/pod-group-name": "g"},
        "ownerReferences": [{"kind": "Job", "name": "j"}],
    }
    waiting = {"name": "main", "state": {"waiting": {"reason": "ErrImagePull", "message": "no"}}}
    placed = pod("train", 1, nodeName="g1", status={"phase": "Pending", "containerStatuses": [waiting]})
    queued = workload("wl", 4, owner="train")
    queued["status"] = {
        "conditions": [{"type": "QuotaReserved", "status": "False", "message": "no"}],
        "requeueState": {"requeueAt": "2026-01-01T00:00:00Z", "count": 2},
        "admissionChecks": [{"name": "c", "state": "Pending"}],
    }
    reserved = copy.deepcopy(queued)
    reserved["status"]["conditions"][0]["status"] = "True"
    run = workflow(
        [
            {"id": "n-1", "type": "Pod", "phase": "Pending", "displayName": "train", "message": "no"},
            {"id": "n-2", "type": "Suspend", "phase": "Running", "displayName": "approve", "message": "no"},
        ]
    )
    run["status"]["synchronization"] = {
        "mutex": {"waiting": [{"mutex": "m", "holder": "h"}]},
        "semaphore": {"waiting": [{"semaphore": "s", "holders": ["h"]}]},
    }
    owned = job("j", 1)
    owned["spec"]["template"]["metadata"] = {"labels": {"a": "b"}}
    owned["status"] = {"conditions": [{"type": "Suspended", "status": "True"}], "succeeded": 0}
    return [
        ("pod/train", [pod("train", 4), node("g1")]),
        ("pod/train", [gated, node("g1"), queued, *kueue("team")]),
        ("pod/train", [placed, node("g1")]),
        ("workload/wl", [queued, *kueue("team", gpus=2)]),
        ("workload/wl", [reserved, *kueue("team")]),
        ("workflow/nightly", [run, node("g1")]),
        ("job/j", [owned, node("g1")]),
        ("job/j", [{**owned, "spec": {**owned["spec"], "suspend": True}}, workload("wl", 4), *kueue("team")]),
    ]


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in pairs:
        yield (*path, key)
        yield from _paths(below, (*path, key))


@settings(deadline=None, max_examples=200)
@given(data=st.data())
def test_whatever_stands_in_a_dump_there_is_an_answer_or_one_message(data: st.DataObject) -> None:
    subject, manifests = data.draw(st.sampled_from(_samples()))
    manifests = copy.deepcopy(manifests)
    path = data.draw(st.sampled_from([path for path in _paths(manifests) if path[1:2] not in ((), ("kind",))]))
    holder: Any = manifests
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = data.draw(st.sampled_from(JUNK))
    out, err = io.StringIO(), io.StringIO()
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(out), redirect_stderr(err):
        file = Path(folder) / "dump.json"
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests}), encoding="utf-8")
        code = main(["why", subject, "--cluster", str(file), "--namespace", "team-a"])
    assert code in (0, 1, 2) and "GF999" not in err.getvalue(), err.getvalue()


def test_a_template_that_no_api_server_takes_is_said(ask: Any) -> None:
    broken = job("train", 1)
    broken["spec"]["template"]["metadata"] = {"labels": {"a": None}}
    code, answer = ask("job/train", node("g1"), broken)
    assert (code, answer["state"]) == (1, "never") and "label" in answer["parts"][0]["causes"][0]["kubernetes"]


def test_another_scheduler_is_never_spoken_for(ask: Any) -> None:
    for gpus in (1, 16):
        code, answer = ask("pod/train", node("g1"), pod("train", gpus, schedulerName="volcano"))
        assert any("volcano" in cause["message"] for cause in answer["causes"])
        assert (code, answer["state"]) == (0, "unknown")


def test_a_step_that_waits_for_a_lock_is_not_answered_by_the_quota(ask: Any) -> None:
    said = "Waiting for team-a/Mutex/gpu lock. Lock status: 0/1"
    step = {"id": "n-1", "displayName": "train", "type": "Pod", "phase": "Pending", "message": said}
    step["synchronizationStatus"] = {"waiting": "team-a/Mutex/gpu"}
    _, answer = ask("workflow/nightly", node("g1"), quota(used=4), workflow([step]))
    [cause] = answer["parts"][0]["causes"]
    assert (cause["by"], cause["kubernetes"]) == ("engine", said)
    assert cause["message"] == "the step train waits for the lock team-a/Mutex/gpu"


def test_a_job_with_fewer_pods_than_it_wants_says_what_keeps_the_others(ask: Any) -> None:
    one = pod("train-0", 2, nodeName="g1")
    one["metadata"]["labels"] = {"batch.kubernetes.io/job-name": "train"}
    half = job("train", 2, parallelism=2, completions=2)
    _, answer = ask("job/train", node("g1"), quota(used=3), one, half)
    assert [part["state"] for part in answer["parts"]] == ["runs", "waits"]
    assert answer["parts"][1]["causes"][0]["by"] == "quota"
    _, paused = ask("job/train", node("g1"), job("train", 2, parallelism=0))
    assert paused["summary"] == "the job asks for no pod now"


def test_pods_of_one_name_in_two_namespaces_are_told_apart(ask: Any) -> None:
    _, answer = ask("pod/train", node("g1"), pod("train", 1, "team-b", nodeName="g1"), pod("train", 16))
    assert answer["state"] == "never"


def test_a_claim_that_is_missing_is_not_called_a_lack_of_room(ask: Any) -> None:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "gone"}}]
    _, answer = ask("pod/train", node("g1"), pod("train", 1, volumes=volumes))
    assert answer["state"] == "waits"
    assert answer["summary"] == "node g1 has room for it, and something else keeps it away"
    assert 'persistentvolumeclaim "gone" not found' in answer["causes"][0]["starts_when"][0]


def test_devices_by_claim_are_not_looked_at_and_said_so(ask: Any) -> None:
    claims = [{"name": "r", "resourceClaimName": "x"}]
    _, answer = ask("pod/train", node("g1"), pod("train", 1, resourceClaims=claims))
    assert answer["state"] == "unknown"
    assert answer["causes"][0]["message"].startswith("as far as gpuflow can tell, it fits on node g1")


def test_a_workload_that_was_evicted_waits_until_kueue_tries_again(ask: Any) -> None:
    evicted = workload("wl", 1)
    evicted["status"] = {
        "conditions": [{"type": "Evicted", "status": "True"}, {"type": "QuotaReserved", "status": "False"}],
        "requeueState": {"requeueAt": "2099-01-01T00:00:00Z", "count": 1},
    }
    _, answer = ask("workload/wl", *kueue("team"), evicted)
    assert answer["state"] == "waits"
    assert answer["summary"] == "Kueue tries it again at 2099-01-01T00:00:00Z, after 1 eviction"
