"""How an attempt that is a PyTorchJob is judged: what its operator was read to write, in its order."""

from __future__ import annotations

from typing import Any

import pytest

from gpuflow.runtime.gang_kinds import KINDS, PYTORCHJOB
from gpuflow.runtime.gang_object import Gang, Names
from gpuflow.runtime.gang_verdict import judge
from gpuflow.runtime.manifests import Misuse
from gpuflow.runtime.outcomes import FINAL, INTERRUPTED, OUT_OF_MEMORY, RETRYABLE, SUCCEEDED, TIMED_OUT

FAILED_AT, COMPLETED_AT = "2026-11-17T01:00:02Z", "2026-11-17T01:00:00Z"
LATE = "Job train has failed because it was active longer than specified deadline"
BY_POD = "PyTorchJob train is failed because 1 Worker replica(s) failed."


def job(condition: str = "", message: str = BY_POD) -> dict[str, Any]:
    row = {"type": condition, "status": "True", "reason": f"PyTorchJob{condition}", "message": message}
    rows = [{**row, "lastTransitionTime": FAILED_AT}] if condition else []
    completed = {"completionTime": COMPLETED_AT} if condition else {}
    return {"kind": "PyTorchJob", "metadata": {"name": "train"}, "status": {"conditions": rows, **completed}}


def pod(
    rank: int, code: int | None = None, *, asked: str = "", disrupted: str = "", reason: str = ""
) -> dict[str, Any]:
    """A pod; `asked` is the second in which it was told to go, with a grace of 30 s."""
    labels = {PYTORCHJOB.rank: str(rank), PYTORCHJOB.role: "worker", PYTORCHJOB.pods: "train"}
    metadata: dict[str, Any] = {"name": f"train-worker-{rank}", "uid": f"uid-{rank}", "labels": labels}
    if asked:
        metadata.update(deletionTimestamp=f"2026-11-17T01:00:{30 + int(asked)}Z", deletionGracePeriodSeconds=30)
    state: dict[str, Any] = {"running": {}}
    if code is not None:
        why = reason or ("Error" if code else "Completed")
        state = {"terminated": {"exitCode": code, "reason": why, "finishedAt": FAILED_AT}}
    phase = "Running" if code is None else "Failed" if code else "Succeeded"
    conditions = [{"type": "DisruptionTarget", "status": "True", "reason": disrupted}] if disrupted else []
    status = {"phase": phase, "conditions": conditions, "containerStatuses": [{"name": "pytorch", "state": state}]}
    return {"metadata": metadata, "status": status}


# (the object, its pods, those that are gone, what it was)
ROWS: dict[str, tuple[dict[str, Any], list[dict[str, Any]], set[str], str | None]] = {
    "all run": (job(), [pod(0), pod(1)], set(), None),
    "one has failed, and the operator has not seen it": (job(), [pod(0), pod(1, 1)], set(), None),
    "done": (job("Succeeded"), [pod(0, 0), pod(1, 0)], set(), SUCCEEDED),
    "a rank fails": (job("Failed"), [pod(0, asked="2"), pod(1, 7)], set(), RETRYABLE),
    "a rank fails, and the others vanish": (job("Failed"), [pod(0, asked="2"), pod(1, 7)], {"uid-0"}, RETRYABLE),
    "a rank was deleted before, another one fails of it": (
        job("Failed"), [pod(0, asked="-9"), pod(1, 1)], {"uid-0"}, INTERRUPTED),
    "a rank is evicted, another one fails of it": (
        job("Failed"), [pod(0, 143, disrupted="EvictionByEvictionAPI"), pod(1, 1)], set(), INTERRUPTED),
    "a rank says that it was told to stop": (job("Failed"), [pod(0, 75), pod(1, 75)], set(), INTERRUPTED),
    "a rank says final": (job("Failed"), [pod(0, 79), pod(1, 79)], set(), FINAL),
    "no memory": (job("Failed"), [pod(0, 137, reason="OOMKilled"), pod(1, 1)], set(), OUT_OF_MEMORY),
    "too long: pods are deleted before it says so": (
        job("Failed", LATE), [pod(0, 75, asked="1"), pod(1, 75, asked="1")], set(), TIMED_OUT),
    "failed, and no pod is left": (job("Failed"), [], set(), INTERRUPTED),
    "a rank is lost, and the operator makes it anew": (job(), [pod(0), pod(1)], {"uid-1"}, INTERRUPTED),
    "a rank that was done is removed": (job(), [pod(0), pod(1, 0)], {"uid-1"}, None),
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS)
def test_the_verdict(row: str) -> None:
    document, pods, gone, outcome = ROWS[row]
    verdict = judge(document, [document], pods, gone=gone, container="pytorch", kind=PYTORCHJOB)
    assert (verdict and verdict.outcome) == outcome
    assert outcome != RETRYABLE or "worker 1" in str(verdict)


def test_names_leave_room_for_the_pods() -> None:
    template = {"spec": {"containers": [{"name": "pytorch"}], "terminationGracePeriodSeconds": 7}}
    spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": 1000, "template": template}}}
    gang = Gang({"kind": "PyTorchJob", "metadata": {}, "spec": spec}, Names("p", "r", "9" * 80), None)
    assert gang.shape == (1000, "worker", 7.0, "PyTorchJob")
    name = gang.name(99)
    assert len(f"{name}-worker-999") <= 63 and name[0].isalpha()


@pytest.mark.parametrize("kind", ["TrainJob", "MPIJob", "Job", None])
def test_no_other_kind(kind: str | None) -> None:
    with pytest.raises(Misuse, match="a gang is a JobSet or a PyTorchJob"):
        Gang({"kind": kind, "metadata": {}, "spec": {}}, Names("p", "r", "s"), None)
    assert kind not in KINDS


def test_a_manifest_without_pods_is_refused() -> None:
    with pytest.raises(Misuse, match="not as PyTorchJob wants it"):
        Gang({"kind": "PyTorchJob", "metadata": {}, "spec": {}}, Names("p", "r", "s"), None)
