"""The part that needs no node of its own: API server, controllers, scheduler, simulated GPU nodes, Kueue."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from ..engines.build import BY_PROGRAM
from . import nodes
from .cluster import Cluster
from .faults import Faults
from .fixtures import AnyCluster
from .kube import Kube, KubeError
from .pods import outcome, pod, release
from .queues import LABEL, queue, waiting_message
from .waiting import until

pytestmark = pytest.mark.control_plane

POOL = {"gpuflow.test/pool": "simulated"}
ONLY_POOL: dict[str, Any] = {"nodeSelector": POOL, "tolerations": [{"key": nodes.FENCE["key"], "operator": "Exists"}]}
IMAGE = "gpuflow.test/never-pulled:1"


@pytest.fixture(scope="module")
def gpu_nodes(private_cluster: Cluster) -> Iterator[list[str]]:
    """Two simulated nodes with eight GPUs each, fenced off from every other test."""
    kube, names = private_cluster.kube, ["simulated-0", "simulated-1"]
    kube.apply(*(nodes.simulated(name, labels=POOL, taints=[nodes.FENCE]) for name in names))
    for name in names:
        nodes.await_ready(kube, name)
    yield names
    kube("delete", "node", *names)


def gpu_pod(name: str, count: int, **more: Any) -> dict[str, Any]:
    return pod(name, IMAGE, ["train"], resources={"nvidia.com/gpu": str(count)}, **ONLY_POOL, **more)


def gpu_job(name: str, count: int, labels: dict[str, str] | None = None) -> dict[str, Any]:
    template = gpu_pod(name, count)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"template": {"spec": template["spec"]}},
    }


def finished(job: dict[str, Any]) -> bool:
    return bool(job["status"].get("succeeded"))


def test_the_api_server_is_the_pinned_version(private_cluster: Cluster) -> None:
    version = json.loads(private_cluster.kube("get", "--raw", "/version"))
    assert version["gitVersion"] == BY_PROGRAM["kube-apiserver"].version


def test_gpu_jobs_complete_on_simulated_nodes(gpu_nodes: list[str], namespace: Kube) -> None:
    namespace.create(*(gpu_job(f"job-{number}", 4) for number in range(4)))
    for number in range(4):
        namespace.await_object("job", f"job-{number}", "complete", finished)
    used = {item["spec"]["nodeName"] for item in namespace.list("pod")}
    assert used <= set(gpu_nodes)


def test_a_pod_that_asks_too_much_hears_why_from_the_scheduler(gpu_nodes: list[str], namespace: Kube) -> None:
    namespace.create(gpu_pod("greedy", 9))

    def refusal(item: dict[str, Any]) -> str:
        conditions = item["status"].get("conditions", ())
        return next((c["message"] for c in conditions if c.get("reason") == "Unschedulable"), "")

    greedy = namespace.await_object("pod", "greedy", "unschedulable", lambda item: bool(refusal(item)))
    assert "2 Insufficient nvidia.com/gpu" in refusal(greedy)


def test_a_quota_refuses_the_pod_that_goes_over_it(namespace: Kube, gpu_nodes: list[str]) -> None:
    hard = {"requests.nvidia.com/gpu": "2"}
    namespace.create(
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "gpus"}, "spec": {"hard": hard}}
    )
    namespace.await_object("resourcequota", "gpus", "counted", lambda item: bool(item.get("status", {}).get("hard")))
    namespace.create(gpu_pod("first", 2))
    with pytest.raises(KubeError) as refused:
        namespace.create(gpu_pod("second", 1))
    expected = "exceeded quota: gpus, requested: requests.nvidia.com/gpu=1, used: requests.nvidia.com/gpu=2, limited"
    assert expected in str(refused.value)


def test_a_higher_priority_takes_the_gpus_of_a_simulated_node(
    gpu_nodes: list[str], namespace: Kube, faults: Faults
) -> None:
    namespace.create(gpu_pod("victim", 8, keep=True))
    namespace.await_pod("victim", "Running")
    intruder = faults.preempt("victim")
    preempted = namespace.await_object(
        "pod", "victim", "preempted", lambda item: outcome(item).disruption == "PreemptionByScheduler"
    )
    release(namespace, "victim")
    namespace.await_pod(intruder, "Running")
    assert preempted["metadata"]["deletionTimestamp"]


@pytest.mark.parametrize("program", ["kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd"])
def test_work_goes_on_after_a_killed_program_returns(
    program: str, gpu_nodes: list[str], namespace: Kube, faults: Faults
) -> None:
    faults.restart(program)
    namespace.create(gpu_job("after", 1))
    namespace.await_object("job", "after", "complete", finished)


def test_kueue_gates_jobs_and_admits_them_as_quota_frees(
    kueue: AnyCluster, gpu_nodes: list[str], namespace: Kube
) -> None:
    with queue(namespace, {"nvidia.com/gpu": "2", "cpu": "4", "memory": "4Gi"}):
        namespace.create(gpu_job("too-large", 3, LABEL))
        message = until("Kueue's refusal", lambda: waiting_message(namespace, "too-large"))
        assert "insufficient quota for nvidia.com/gpu" in message
        namespace.create(*(gpu_job(f"job-{number}", 2, LABEL) for number in range(3)))
        for number in range(3):
            namespace.await_object("job", f"job-{number}", "complete", finished)
        held = namespace.get("job", "too-large")
        assert held is not None
        assert held["spec"]["suspend"]
