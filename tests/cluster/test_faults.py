"""Each way of losing a pod, and what the pod shows of it afterwards."""

from __future__ import annotations

from typing import Any

import pytest

from .cluster import Cluster
from .faults import Faults
from .fixtures import AnyCluster
from .kube import Kube
from .pods import Outcome, outcome, pod, release_all

pytestmark = pytest.mark.cluster

ENDED = ("Succeeded", "Failed")
WAIT = ("sh", "-c", "trap 'exit 143' TERM; echo started; while true; do sleep 0.1; done")


def start(cluster: AnyCluster, kube: Kube, *command: str, **more: Any) -> None:
    kube.create(pod("victim", cluster.image("busybox"), command or WAIT, keep=True, **more))
    kube.await_pod("victim", "Running")


def ended(kube: Kube, timeout: float = 60.0) -> Outcome:
    """What the pod shows once it has ended."""
    try:
        done = kube.await_object("pod", "victim", "ended", lambda item: outcome(item).phase in ENDED, timeout)
        return outcome(done)
    finally:
        release_all(kube)


def test_delete_sends_term(cluster: AnyCluster, namespace: Kube, faults: Faults) -> None:
    start(cluster, namespace)
    faults.delete("victim")
    assert ended(namespace) == Outcome("Failed", None, "Error", 143, None)


def test_delete_kills_who_ignores_term(cluster: AnyCluster, namespace: Kube, faults: Faults) -> None:
    start(cluster, namespace, "sh", "-c", "trap '' TERM; while true; do sleep 0.1; done")
    faults.delete("victim", grace=1)
    assert ended(namespace) == Outcome("Failed", None, "Error", 137, None)


def test_delete_of_a_program_that_exits_zero_looks_like_success(
    cluster: AnyCluster, namespace: Kube, faults: Faults
) -> None:
    start(cluster, namespace, "sh", "-c", "trap 'exit 0' TERM; while true; do sleep 0.1; done")
    faults.delete("victim")
    assert ended(namespace) == Outcome("Succeeded", None, "Completed", 0, None)


def test_force_delete_removes_the_object_before_the_process(
    cluster: AnyCluster, namespace: Kube, faults: Faults
) -> None:
    namespace.create(pod("victim", cluster.image("busybox"), WAIT))
    namespace.await_pod("victim", "Running")
    faults.force_delete("victim")
    assert namespace.get("pod", "victim") is None


def test_eviction_names_its_cause(cluster: AnyCluster, namespace: Kube, faults: Faults) -> None:
    start(cluster, namespace)
    faults.evict("victim")
    assert ended(namespace) == Outcome("Failed", None, "Error", 143, "EvictionByEvictionAPI")


def test_preemption_names_its_cause_and_the_intruder_runs(cluster: AnyCluster, namespace: Kube, faults: Faults) -> None:
    start(cluster, namespace, resources={"nvidia.com/gpu": "1"})
    intruder = faults.preempt("victim")
    assert ended(namespace) == Outcome("Failed", None, "Error", 143, "PreemptionByScheduler")
    namespace.await_pod(intruder, "Running")


def test_out_of_memory_is_137_with_its_own_reason(cluster: AnyCluster, namespace: Kube, faults: Faults) -> None:
    namespace.create(faults.out_of_memory("victim"))
    assert ended(namespace) == Outcome("Failed", None, "OOMKilled", 137, None)


def test_a_lost_node_leaves_its_pods_in_doubt_until_it_returns(
    private_cluster: Cluster, cluster: AnyCluster, namespace: Kube, faults: Faults
) -> None:
    unreachable = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
    start(cluster, namespace, tolerations=[{**unreachable, "tolerationSeconds": 2}])
    faults.lose_node(power=True)
    faults.await_node_lost()
    doubtful = namespace.await_object(
        "pod", "victim", "given up", lambda item: bool(item["metadata"].get("deletionTimestamp"))
    )
    assert outcome(doubtful) == Outcome("Running", None, None, None, "DeletionByTaintManager")
    faults.return_node()
    assert ended(namespace) == Outcome("Failed", None, "Error", 137, "DeletionByTaintManager")


def test_a_removed_node_takes_its_pods_with_it(
    private_cluster: Cluster, cluster: AnyCluster, namespace: Kube, faults: Faults
) -> None:
    start(cluster, namespace)
    faults.lose_node(power=True, remove=True)
    collected = namespace.await_object(
        "pod", "victim", "collected", lambda item: bool(outcome(item).disruption), timeout=120
    )
    release_all(namespace)
    assert outcome(collected) == Outcome("Failed", None, None, None, "DeletionByPodGC")


def test_a_running_pod_survives_a_killed_kubelet(
    private_cluster: Cluster, cluster: AnyCluster, namespace: Kube, faults: Faults
) -> None:
    start(cluster, namespace)
    before = namespace.get("pod", "victim")
    faults.restart("kubelet")
    after = namespace.get("pod", "victim")
    assert before is not None
    assert after is not None
    assert (
        after["status"]["containerStatuses"][0]["containerID"]
        == (before["status"]["containerStatuses"][0]["containerID"])
    )
    assert after["status"]["phase"] == "Running"
    release_all(namespace)
