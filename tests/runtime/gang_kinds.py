"""Objects of each kind that a gang can be, as their controllers were read to write them, with their pods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gpuflow.runtime.gangs.kinds import MPIJOB, PYTORCHJOB, TRAINJOB, VOLCANO, GangKind

FAILED_AT, COMPLETED_AT = "2026-11-17T01:00:02Z", "2026-11-17T01:00:00Z"
LATE = "Job train has failed because it was active longer than specified deadline"
BY_POD = "PyTorchJob train is failed because 1 Worker replica(s) failed."
RUNS, DONE, FAILED, TOO_LATE = "runs", "done", "failed", "too late"


def _pytorchjob(state: str) -> dict[str, Any]:
    """Training operator 1.9.3: the time is noted first, then pods are deleted, then the condition is written."""
    kind = {DONE: "Succeeded", FAILED: "Failed", TOO_LATE: "Failed"}.get(state, "")
    message = LATE if state == TOO_LATE else BY_POD
    row = {"type": kind, "status": "True", "reason": f"PyTorchJob{kind}", "message": message}
    rows = [{**row, "lastTransitionTime": FAILED_AT}] if kind else []
    completed = {"completionTime": COMPLETED_AT} if kind else {}
    return {"metadata": {"name": "train"}, "status": {"conditions": rows, **completed}}


def _volcano(state: str) -> dict[str, Any]:
    """Volcano 1.14.1: pods are deleted first, then the phase is written; its conditions are a list of phases."""
    phases = {RUNS: ["Pending", "Running"], DONE: ["Pending", "Running", "Completed"]}
    return volcano_in(*phases.get(state, ["Pending", "Running", "Terminating"]))


def volcano_in(*phases: str) -> dict[str, Any]:
    """A Job of Volcano after these phases, each a second after the other."""
    rows = [{"status": each, "lastTransitionTime": f"2026-11-17T01:00:{at:02}Z"} for at, each in enumerate(phases)]
    state = {"phase": phases[-1], "lastTransitionTime": rows[-1]["lastTransitionTime"]}
    return {"metadata": {"name": "train"}, "status": {"state": state, "conditions": rows}}


def _trainjob(state: str) -> dict[str, Any]:
    """Trainer 2.3.0 copies the end of its JobSet, which comes after that of a Job."""
    rows = [{"type": "Complete", "status": "True", "reason": "AllJobsCompleted"}] if state == DONE else []
    return {"metadata": {"name": "train"}, "status": {"conditions": rows}}


def _mpijob(state: str) -> dict[str, Any]:
    """MPI operator 0.8.2 copies the end of the Job that makes its launcher."""
    kind = {DONE: "Succeeded", FAILED: "Failed", TOO_LATE: "Failed"}.get(state)
    reason = {DONE: "MPIJobSucceeded", FAILED: "BackoffLimitExceeded/"}.get(state, "DeadlineExceeded")
    row = {"type": kind, "status": "True", "reason": reason, "lastTransitionTime": FAILED_AT}
    return {"metadata": {"name": "train"}, "status": {"conditions": [] if kind is None else [row]}}


OBJECTS: dict[GangKind, Callable[[str], dict[str, Any]]] = {
    PYTORCHJOB: _pytorchjob,
    VOLCANO: _volcano,
    TRAINJOB: _trainjob,
    MPIJOB: _mpijob,
}


def jobs_of(kind: GangKind, state: str, document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What says why it failed: its Jobs, where it has some, else the object itself."""
    if not kind.has_jobs:
        return [kind.as_job(document)]
    reason = {FAILED: "BackoffLimitExceeded", TOO_LATE: "DeadlineExceeded"}.get(state)
    row = {"type": "FailureTarget", "status": "True", "reason": reason, "lastTransitionTime": FAILED_AT}
    job = {"metadata": {"name": "train-worker-0"}, "status": {"conditions": [] if reason is None else [row]}}
    return [job] if kind.leading_job is None else [job, document]


def object_of(kind: GangKind, state: str) -> dict[str, Any]:
    """The object of an attempt: while it runs, done, failed because a pod failed, or past its deadline."""
    return {"apiVersion": kind.api_version, "kind": kind.kind, "spec": {}, **OBJECTS[kind](state)}


def pod(
    kind: GangKind,
    rank: int,
    code: int | None = None,
    *,
    asked: str = "",
    removed: bool = False,
    disrupted: str = "",
    reason: str = "",
    status_reason: str = "",
) -> dict[str, Any]:
    """A pod; `asked` is the second in which it was told to go, with a grace of 30 s. `removed`: by its controller."""
    role = kind.roles[0] if rank == 0 and kind.sets == (2,) else kind.roles[1]
    labels = {kind.rank: str(rank), kind.role: role, kind.pods: "train"}
    metadata: dict[str, Any] = {"name": f"train-worker-{rank}", "uid": f"uid-{rank}", "labels": labels}
    if asked or removed:
        after = int(asked or "2")
        metadata.update(deletionTimestamp=f"2026-11-17T01:00:{30 + after}Z", deletionGracePeriodSeconds=30)
    if removed and kind.removed_by_it is not None:
        metadata["annotations"] = {kind.removed_by_it: "true"}
    state: dict[str, Any] = {"running": {}}
    if code is not None:
        why = reason or ("Error" if code else "Completed")
        state = {"terminated": {"exitCode": code, "reason": why, "finishedAt": FAILED_AT}}
    phase = "Running" if code is None else "Failed" if code else "Succeeded"
    conditions = [{"type": "DisruptionTarget", "status": "True", "reason": disrupted}] if disrupted else []
    status = {"phase": phase, "conditions": conditions, "containerStatuses": [{"name": kind.container, "state": state}]}
    return {"metadata": metadata, "status": {**status, **({"reason": status_reason} if status_reason else {})}}
