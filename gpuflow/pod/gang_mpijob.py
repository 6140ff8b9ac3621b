"""A gang as an MPIJob of Kubeflow's MPI operator: its Launcher is the gang's leader, its Workers are the workers.

Every pod runs its own program under `gpuflow-run`, as of any other kind. The operator's keys and host file are there,
and nobody uses them: no sshd runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuflow.errors import fail
from gpuflow.pod.gang_template import KEPT, parts_of
from gpuflow.runtime.gang_kinds import MPIJOB

RANK = f"metadata.labels['{MPIJOB.rank}']"
LEADER = "$(GPUFLOW_GANG)-launcher.$(GPUFLOW_GANG)"
"""The host of the Launcher, in the Service of the MPIJob. The kubelet fills in the name of the gang."""
KEYS = "/etc/gpuflow-ssh"
"""Where the operator's keys are mounted: by default that would be over the keys that the image has for root."""
ONLY_WITH_LEADER = "an MPIJob has a Launcher, which is the gang's leader, and this gang has none"
WITH_LEADER = "write leader: true for one more pod, with one worker less, or set gangs.kind: jobset in the site"


def mpijob_of(pod: Mapping[str, Any], workers: int, leader: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """One attempt as an MPIJob, of the pod of each worker and that of the leader."""
    if leader is None:
        raise fail("GF408", ONLY_WITH_LEADER, hint=WITH_LEADER)
    _, labels, queued, deadline = parts_of(leader)
    return {
        "apiVersion": MPIJOB.api_version,
        "kind": MPIJOB.kind,
        "metadata": {"labels": {**labels, **queued}},
        "spec": {
            # Without it the Launcher has no number, and the operator hides the node's GPUs from it.
            "runLauncherAsWorker": True,
            # All pods wait for each other by themselves, and are never ready before.
            "launcherCreationPolicy": "AtStartup",
            "sshAuthMountPath": KEYS,
            "runPolicy": {
                **({"suspend": True} if queued else {}),
                "backoffLimit": 0,
                "cleanPodPolicy": "Running",
                "ttlSecondsAfterFinished": KEPT,
                **({} if deadline is None else {"activeDeadlineSeconds": deadline}),
            },
            "mpiReplicaSpecs": {"Launcher": _replicas(leader, 1), "Worker": _replicas(pod, workers)},
        },
    }


def _replicas(pod: Mapping[str, Any], count: int) -> dict[str, Any]:
    template = parts_of(pod).template
    # The kind says it for its pods, and warns about every pod that says it too.
    restarts = template["spec"].pop("restartPolicy", "Never")
    return {"replicas": count, "restartPolicy": restarts, "template": template}
