"""A gang as a PyTorchJob of Kubeflow's training operator (v1): all ranks are its workers, and worker 0 is rank 0.

Without a Master the operator takes all ranks alike: it is done when all have succeeded, a rank's number is its index,
and no init container of the operator's own is added.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuflow.errors import fail
from gpuflow.pod.gang_template import KEPT, named_for, parts_of
from gpuflow.runtime.gang_kinds import PYTORCHJOB

WORKERS = "Worker"
RANK = f"metadata.labels['{PYTORCHJOB.rank}']"
LEADER = "$(GPUFLOW_GANG)-worker-0"
"""The Service of worker 0, which is named like its pod. The kubelet fills in the name of the gang."""
WITHOUT_LEADER = "set gangs.kind: jobset in the site, or count the leader among the workers: rank 0"
PROCESSES = "PET_NPROC_PER_NODE"


NO_LEADER = (
    "beside a Master the training operator puts an init container into every worker, which gives up after "
    "about 200 seconds: a gang that waits for a node would fail"
)


def pytorchjob_of(pod: Mapping[str, Any], workers: int, leader: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """One attempt as a PyTorchJob, of the pod of each rank."""
    if leader is not None:
        raise fail("GF408", f"a PyTorchJob has no leader: {NO_LEADER}", hint=WITHOUT_LEADER)
    template, labels, queued, deadline = parts_of(named_for(PYTORCHJOB, pod))
    # The kind says it for its pods, and warns about every pod that says it too.
    restarts = template["spec"].pop("restartPolicy", "Never")
    policy = {
        **({"suspend": True} if queued else {}),
        # Not `backoffLimit: 0`, which would delete the other ranks before it says that one has failed: without any, and
        # with `Never`, a failed pod is not started again.
        "cleanPodPolicy": "Running",
        "ttlSecondsAfterFinished": KEPT,
        **({} if deadline is None else {"activeDeadlineSeconds": deadline}),
    }
    processes = _processes(template["spec"]["containers"][0])
    return {
        "apiVersion": PYTORCHJOB.api_version,
        "kind": PYTORCHJOB.name,
        "metadata": {"labels": {**labels, **queued}},
        "spec": {
            # The operator sets the variable after ours, so that this value counts.
            **({} if processes is None else {"nprocPerNode": processes}),
            "runPolicy": policy,
            "pytorchReplicaSpecs": {
                WORKERS: {"replicas": workers, "restartPolicy": restarts, "template": template},
            },
        },
    }


def _processes(container: Mapping[str, Any]) -> str | None:
    values = [each.get("value") for each in container.get("env", ()) if each["name"] == PROCESSES]
    return values[-1] if values else None
