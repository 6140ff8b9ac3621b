"""`gpuflow why`: what keeps a pod, a workload, a workflow or a job from starting, and what would let it start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuflow.checker import fit_nodes
from gpuflow.checker.snapshot.prepared import PreparedCluster
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
