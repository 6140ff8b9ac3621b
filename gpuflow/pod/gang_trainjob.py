"""A gang as a TrainJob of Kubeflow Trainer (v2): it names a TrainingRuntime, in which the whole JobSet is written.

A TrainJob alone cannot say all of a pod, and it restarts what its runtime lets it restart. So each attempt has a
runtime of its own, made before it and deleted with it. The runtime has no `mlPolicy`: Trainer then leaves the number of
pods and their variables as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuflow.kubernetes.labels import WORKERS
from gpuflow.pod.gang_jobset import jobset_of
from gpuflow.pod.gang_template import named_for
from gpuflow.runtime.gang_kinds import TRAINJOB

RUNTIME = "TrainingRuntime"
ANCESTOR = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
"""The label by which Trainer, and those who look at TrainJobs, find the Job that trains."""


def trainjob_of(pod: Mapping[str, Any], workers: int, leader: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """One attempt as a TrainJob, with its runtime beside it as `runtime`: whoever makes it takes them apart."""
    first = None if leader is None else named_for(TRAINJOB, leader)
    jobset = jobset_of(named_for(TRAINJOB, pod), workers, first, TRAINJOB.container)
    suspended = jobset["spec"].pop("suspend", False)
    for each in jobset["spec"]["replicatedJobs"]:
        if each["name"] == WORKERS:
            each["template"]["metadata"] = {"labels": dict(ANCESTOR)}
    return {
        "apiVersion": TRAINJOB.api_version,
        "kind": TRAINJOB.kind,
        "metadata": jobset["metadata"],
        "spec": {
            **({"suspend": True} if suspended else {}),
            # Whoever makes it fills in the name, which is its own.
            "runtimeRef": {"apiGroup": TRAINJOB.group, "kind": RUNTIME, "name": ""},
        },
        "runtime": {
            "apiVersion": TRAINJOB.api_version,
            "kind": RUNTIME,
            "spec": {"template": {"spec": jobset["spec"]}},
        },
    }
