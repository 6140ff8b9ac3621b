"""A gang as a JobSet: one Job whose pods are the ranks, or one for the leader and one for its workers.

It restarts nothing by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuflow.kubernetes.labels import LEADER, WORKERS
from gpuflow.pod.gang_template import KEPT, parts_of
from gpuflow.runtime.gang_kinds import JOBSET

RANK = f"metadata.annotations['{JOBSET.rank}']"
COORDINATOR = "metadata.annotations['jobset.sigs.k8s.io/coordinator']"
"""Where JobSet writes the host name of rank 0."""
FINAL = 79
"""The supervisor's word for "final". As a rule it restarts nothing: the Job notes it, where it outlives the pods.

There is none for "interrupted" (75), with which ranks end that are told to stop: a Job that Kueue suspends would fail
by it, and could not come back.
"""


def jobset_of(
    pod: Mapping[str, Any],
    workers: int,
    leader: Mapping[str, Any] | None = None,
    container: str = JOBSET.container,
) -> dict[str, Any]:
    """One attempt as a JobSet, of the pod of each worker. Beside a leader, rank 0, there are two Jobs.

    `container`: what the program's container is called.
    """
    template, labels, queued, deadline = parts_of(pod)
    jobs = [_job(WORKERS, workers, template, deadline, container)]
    if leader is not None:
        first = parts_of(leader)
        jobs.insert(0, _job(LEADER, 1, first.template, first.deadline, container))
    return {
        "apiVersion": JOBSET.api_version,
        "kind": JOBSET.name,
        "metadata": {"labels": {**labels, **queued}},
        "spec": {
            **({"suspend": True} if queued else {}),
            "coordinator": {"replicatedJob": jobs[0]["name"], "jobIndex": 0, "podIndex": 0},
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            "successPolicy": {"operator": "All", "targetReplicatedJobs": [job["name"] for job in jobs]},
            "failurePolicy": {"maxRestarts": 0, "restartStrategy": "BlockingRecreate"},
            "ttlSecondsAfterFinished": KEPT,
            "replicatedJobs": jobs,
        },
    }


def _job(name: str, pods: int, template: Mapping[str, Any], deadline: int | None, container: str) -> dict[str, Any]:
    final = {"action": "FailJob", "onExitCodes": {"containerName": container, "operator": "In", "values": [FINAL]}}
    disrupted = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    spec = {
        "parallelism": pods,
        "completions": pods,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        # Two pods of one rank never overlap.
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {"rules": [final, disrupted]},
        **({} if deadline is None else {"activeDeadlineSeconds": deadline}),
        "template": dict(template),
    }
    return {"name": name, "replicas": 1, "template": {"spec": spec}}
