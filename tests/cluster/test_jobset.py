"""What JobSet and the Job controller say of a gang, its pods' ends written by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from . import kubelet_by_hand, nodes
from .cluster import Cluster
from .fixtures import AnyCluster
from .gangs import OF_JOBSET, condition, gang, ranks
from .kube import Kube, KubeError
from .waiting import until

pytestmark = pytest.mark.control_plane

NODE = "gang-by-hand"
POOL = {"gpuflow.test/pool": NODE}
ONLY_POOL: dict[str, Any] = {"nodeSelector": POOL, "tolerations": [{"key": nodes.FENCE["key"], "operator": "Exists"}]}
SIZE = 3


@pytest.fixture(scope="module")
def node(private_cluster: Cluster, jobset: AnyCluster) -> Iterator[str]:
    """A simulated node of its own, with JobSet on its cluster."""
    with nodes.standing(private_cluster.kube, NODE, POOL) as name:
        yield name


@pytest.fixture
def running(node: str, namespace: Kube) -> list[dict[str, Any]]:
    """The pods of a JobSet called `train`, all of them started."""
    namespace.create(three("train"))
    placed = until("the ranks to be placed", lambda: all_placed(namespace))
    for each in placed:
        kubelet_by_hand.start(namespace, each)
    return placed


def three(name: str, subdomain: str = "") -> dict[str, Any]:
    labels, image = kubelet_by_hand.LABELS, "gpuflow.test/never-pulled:1"
    return gang(name, SIZE, image, ["train"], pod_labels=labels, subdomain=subdomain, **ONLY_POOL)


def all_placed(kube: Kube) -> list[dict[str, Any]]:
    placed = [each for each in ranks(kube, "train") if each["spec"].get("nodeName")]
    return placed if len(placed) == SIZE else []


def the_job(kube: Kube) -> dict[str, Any]:
    (job,) = kube.list("job", f"{OF_JOBSET}=train")
    return job


def deleted(kube: Kube) -> list[dict[str, Any]]:
    return [each for each in ranks(kube, "train") if each["metadata"].get("deletionTimestamp")]


def test_a_gang_whose_ranks_all_succeed_is_completed(running: list[dict[str, Any]], namespace: Kube) -> None:
    for each in running[:-1]:
        kubelet_by_hand.end(namespace, each, 0)
    assert not condition(the_job(namespace), "Complete")
    kubelet_by_hand.end(namespace, running[-1], 0)
    ended = namespace.await_object("jobset", "train", "completed", lambda item: bool(condition(item, "Completed")))
    said = condition(ended, "Completed")
    assert said is not None
    assert ended["status"]["terminalState"] == "Completed"
    assert (said["reason"], said["message"]) == ("AllJobsCompleted", "jobset completed successfully")


# (how rank 1 ends, the Job's reason, its message)
ENDS: dict[str, tuple[dict[str, Any], str, str]] = {
    "a final exit code": (
        {"code": 79},
        "PodFailurePolicy",
        "Container main for pod {pod} failed with exit code 79 matching FailJob rule at index 0",
    ),
    "a disruption": (
        {"code": 143, "disruption": "EvictionByEvictionAPI"},
        "PodFailurePolicy",
        "Pod {pod} has condition DisruptionTarget matching FailJob rule at index 1",
    ),
    "the supervisor's word that it was interrupted": (
        {"code": 75},
        # Kueue's suspension ends ranks so too, and must not fail the gang: no rule says more of it.
        "BackoffLimitExceeded",
        "Job has reached the specified backoff limit",
    ),
    "any other exit code": ({"code": 1}, "BackoffLimitExceeded", "Job has reached the specified backoff limit"),
    "too little memory": (
        {"code": 137, "reason": "OOMKilled"},
        "BackoffLimitExceeded",
        "Job has reached the specified backoff limit",
    ),
}


@pytest.mark.parametrize("how", ENDS)
def test_one_rank_fails_the_gang_and_the_cause_outlives_the_pods(
    how: str, running: list[dict[str, Any]], namespace: Kube
) -> None:
    end, reason, message = ENDS[how]
    kubelet_by_hand.end(namespace, running[1], **end)
    until("the other ranks to be deleted", lambda: len(deleted(namespace)) == SIZE - 1)
    expected = message.format(pod=f"{namespace.namespace}/{running[1]['metadata']['name']}")
    target = condition(the_job(namespace), "FailureTarget")
    assert target is not None
    assert (target["reason"], target["message"]) == (reason, expected)
    # Nothing has failed yet for those who wait for the Job: its pods still end.
    assert not condition(the_job(namespace), "Failed")
    for each in deleted(namespace):
        assert not condition(each, "DisruptionTarget")
        kubelet_by_hand.end(namespace, each, 143)
        kubelet_by_hand.bury(namespace, each)
    ended = namespace.await_object("jobset", "train", "failed", lambda item: bool(condition(item, "Failed")))
    said = condition(ended, "Failed")
    assert said is not None
    assert (ended["status"]["terminalState"], said["reason"]) == ("Failed", "ReachedMaxRestarts")
    words = "jobset failed due to reaching max number of restarts (first failed job: train-worker-0)"
    assert said["message"] == words
    failed = condition(the_job(namespace), "Failed")
    assert failed is not None
    assert (failed["reason"], failed["message"]) == (reason, expected)


def test_an_interruption_after_a_failure_is_not_in_the_jobs_words(
    running: list[dict[str, Any]], namespace: Kube
) -> None:
    kubelet_by_hand.end(namespace, running[0], 1)
    until("the Job's verdict", lambda: condition(the_job(namespace), "FailureTarget"))
    kubelet_by_hand.end(namespace, running[2], 143, disruption="PreemptionByScheduler")
    last = namespace.get("pod", running[2]["metadata"]["name"])
    assert last is None or condition(last, "DisruptionTarget")
    said = condition(the_job(namespace), "FailureTarget")
    assert said is not None
    assert said["reason"] == "BackoffLimitExceeded"


def test_a_suspended_gang_comes_back_with_new_pods_and_nothing_counted(
    running: list[dict[str, Any]], namespace: Kube
) -> None:
    namespace("patch", "jobset", "train", "--type=merge", '--patch={"spec":{"suspend":true}}')
    for each in until("all ranks to be deleted", lambda: found if len(found := deleted(namespace)) == SIZE else []):
        kubelet_by_hand.end(namespace, each, 143)
        kubelet_by_hand.bury(namespace, each)
    held = namespace.await_object("jobset", "train", "suspended", lambda item: bool(condition(item, "Suspended")))
    said = condition(held, "Suspended")
    assert said is not None
    assert said["reason"] == "SuspendedJobs"
    namespace("patch", "jobset", "train", "--type=merge", '--patch={"spec":{"suspend":false}}')
    before = {each["metadata"]["uid"] for each in running}
    again = until("new ranks", lambda: all_placed(namespace))
    assert not before & {each["metadata"]["uid"] for each in again}
    for each in again:
        kubelet_by_hand.end(namespace, each, 0)
    ended = namespace.await_object("jobset", "train", "completed", lambda item: bool(condition(item, "Completed")))
    assert ended["status"].get("restarts", 0) == 0
    assert not the_job(namespace)["status"].get("failed")


LONGEST_POD = "JobSet name is too long, pod names generated for this JobSet will exceed 63 characters"
LONGEST_LEADER = "for coordinator label .* must be no more than 63 bytes"


@pytest.mark.parametrize(
    ("coordinator", "subdomain", "longest", "refusal"),
    [(False, "", 46, LONGEST_POD), (True, "", 25, LONGEST_LEADER), (True, "g-0123456789", 39, LONGEST_LEADER)],
    ids=["pods", "leader", "leader under a subdomain"],
)
def test_the_webhook_refuses_a_name_that_makes_others_too_long(
    coordinator: bool, subdomain: str, longest: int, refusal: str, node: str, namespace: Kube
) -> None:
    def named(length: int) -> dict[str, Any]:
        wanted = three("n" * length, subdomain)
        if not coordinator:
            del wanted["spec"]["coordinator"]
        return wanted

    namespace.create(named(longest))
    with pytest.raises(KubeError, match=refusal):
        namespace.create(named(longest + 1))
