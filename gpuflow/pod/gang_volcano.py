"""A gang as a Job of Volcano: one task whose pods are the ranks, or one for the leader and one for its workers.

Volcano's scheduler starts all of its pods or none, in a queue of Volcano's own: Kueue has no part in it. It restarts
nothing by itself. `TerminateJob`, and not `AbortJob`: pods that have ended stay in both cases, and say why; but only a
terminated Job is removed after its time, and nobody can resume it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuflow.errors import fail
from gpuflow.kubernetes.labels import LEADER, QUEUE_LABEL, QUEUE_PRIORITY_LABEL, WORKERS
from gpuflow.pod.gang_template import KEPT, parts_of
from gpuflow.runtime.gang_kinds import VOLCANO

RANK = f"metadata.labels['{VOLCANO.rank}']"
SCHEDULER = "volcano"
NO_QUEUE_PRIORITY = "a queue of Volcano's has no priority of Kueue's: priority.queue would be lost"
WITHOUT_QUEUE_PRIORITY = (
    "use priority.pod, by which Volcano orders its queues, or let gangs of the site be JobSets that the cluster's own "
    "scheduler places"
)


def host_of(first: str) -> str:
    """The host of rank 0, in the Service of the Job. The kubelet fills in the name of the gang."""
    return f"$(GPUFLOW_GANG)-{first}-0.$(GPUFLOW_GANG)"


def vcjob_of(pod: Mapping[str, Any], workers: int, leader: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """One attempt as a Job of Volcano, of the pod of each worker. Beside a leader, rank 0, there are two tasks."""
    parts = parts_of(pod)
    tasks = [_task(WORKERS, workers, pod)]
    if leader is not None:
        tasks.insert(0, _task(LEADER, 1, leader))
    return {
        "apiVersion": VOLCANO.api_version,
        "kind": VOLCANO.kind,
        "metadata": {"labels": parts.labels},
        "spec": {
            "schedulerName": pod["spec"].get("schedulerName") or SCHEDULER,
            **queued_fields(pod),
            "minAvailable": sum(task["replicas"] for task in tasks),
            # Nothing is ever restarted; 0 would become 3.
            "maxRetry": 1,
            # One policy for both: a pod that is evicted also fails, and the order of two would decide.
            "policies": [{"events": ["PodEvicted", "PodFailed"], "action": "TerminateJob"}],
            # Ranks are never ready before they have met. A policy of the network is for whoever owns the namespace.
            "plugins": {"svc": ["--publish-not-ready-addresses=true", "--disable-network-policy=true"]},
            "ttlSecondsAfterFinished": KEPT,
            "tasks": tasks,
        },
    }


def queued_fields(pod: Mapping[str, Any]) -> dict[str, str]:
    """Where Volcano queues a gang and before whom: fields of its Job, and of its PodGroup."""
    labels = pod["metadata"].get("labels", {})
    if QUEUE_PRIORITY_LABEL in labels:
        raise fail("GF408", NO_QUEUE_PRIORITY, hint=WITHOUT_QUEUE_PRIORITY)
    found = {"queue": labels.get(QUEUE_LABEL), "priorityClassName": pod["spec"].get("priorityClassName")}
    return {key: value for key, value in found.items() if value}


def as_scheduled(pod: Mapping[str, Any]) -> dict[str, Any]:
    """A rank's pod as Volcano makes it: in no queue of Kueue's."""
    metadata = pod["metadata"]
    own = metadata.get("labels", {})
    labels = {key: value for key, value in own.items() if key not in (QUEUE_LABEL, QUEUE_PRIORITY_LABEL)}
    return {**pod, "metadata": {**metadata, "labels": labels}, "spec": {"schedulerName": SCHEDULER, **pod["spec"]}}


def _task(name: str, pods: int, pod: Mapping[str, Any]) -> dict[str, Any]:
    parts = parts_of(pod)
    # Volcano has no deadline for a whole Job: each of its pods has one.
    deadline = {} if parts.deadline is None else {"activeDeadlineSeconds": parts.deadline}
    template = {**parts.template, "spec": {**parts.template["spec"], **deadline}}
    return {"name": name, "replicas": pods, "minAvailable": pods, "template": template}
