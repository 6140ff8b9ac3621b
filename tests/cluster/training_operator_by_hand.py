"""PyTorchJobs on a real API server: the definition that Kubeflow's training operator ships, which is played by hand.

The operator itself is not run. What it would write is taken from its source (v1.9.3): pods with its labels, owned by
the object; a failed pod makes the object fail, and what still runs is deleted after that.
"""

from __future__ import annotations

import contextlib
import copy
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..engines.build import BuildError
from . import kubelet_by_hand, nodes
from .fixtures import lacking
from .kube import Kube, Manifest, documents

MODULE = "github.com/kubeflow/training-operator"
# Kueue is built with it, so that it is there where engines have been built.
HOME = Path(__file__).parents[1] / "engines" / "kueue"
LABEL = "training.kubeflow.org"


@contextlib.contextmanager
def ground(kube: Kube, node: str) -> Iterator[str]:
    """The definition, and a simulated node of its own."""
    try:
        install(kube)
    except BuildError as error:
        lacking(str(error))
    with nodes.standing(kube, node, {"gpuflow.test/pool": node}) as name:
        yield name


def install(kube: Kube) -> None:
    """The definition of PyTorchJobs."""
    try:
        subprocess.run(["go", "mod", "download", MODULE], cwd=HOME, check=True, capture_output=True)
        words = ["go", "list", "-m", "-f", "{{.Dir}}", MODULE]
        found = subprocess.run(words, cwd=HOME, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        raise BuildError(f"the definition of PyTorchJobs cannot be had: {error}") from None
    kube.apply(*documents(Path(found) / "manifests/base/crds/kubeflow.org_pytorchjobs.yaml"))
    kube.await_definitions()


def make_pods(kube: Kube, job: Manifest, node: str) -> list[dict[str, Any]]:
    """The pods of a PyTorchJob that are not there, on a node, and all of them in the order of their ranks."""
    there = {each["metadata"]["name"] for each in pods_of(kube, job)}
    metadata = job["metadata"]
    for role, spec in job["spec"]["pytorchReplicaSpecs"].items():
        for index in range(spec["replicas"]):
            name = f"{metadata['name']}-{role.lower()}-{index}"
            if name in there:
                continue
            made = copy.deepcopy(spec["template"])
            inner = made.setdefault("metadata", {})
            inner["name"] = name
            inner["labels"] = {
                **inner.get("labels", {}),
                **kubelet_by_hand.LABELS,
                f"{LABEL}/job-name": metadata["name"],
                f"{LABEL}/replica-type": role.lower(),
                f"{LABEL}/replica-index": str(index),
            }
            inner["ownerReferences"] = [
                {
                    "apiVersion": job["apiVersion"],
                    "kind": job["kind"],
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ]
            made["spec"].update(nodeName=node, restartPolicy=spec["restartPolicy"])
            kube.create({"apiVersion": "v1", "kind": "Pod", **made})
    return pods_of(kube, job)


def pods_of(kube: Kube, job: Manifest) -> list[dict[str, Any]]:
    """The pods of a PyTorchJob, in the order of their ranks."""
    found = kube.list("pod", f"{LABEL}/job-name={job['metadata']['name']}")
    return sorted(found, key=lambda each: int(each["metadata"]["labels"][f"{LABEL}/replica-index"]))


def fail(kube: Kube, job: Manifest, message: str = "") -> None:
    """The object says that it has failed, and the pods that still run are deleted."""
    name, now = job["metadata"]["name"], _now()
    words = message or f"PyTorchJob {name} is failed because 1 Worker replica(s) failed."
    _says(kube, name, "Failed", words, now)
    _clean(kube, job)


def run_out_of_time(kube: Kube, job: Manifest) -> None:
    """Past its deadline: the time is noted, the pods are deleted, and only then it says why."""
    name, now = job["metadata"]["name"], _now()
    _clean(kube, job)
    _says(kube, name, "Failed", f"Job {name} has failed because it was active longer than specified deadline", now)


def succeed(kube: Kube, job: Manifest) -> None:
    """All of its pods have succeeded."""
    name = job["metadata"]["name"]
    _says(kube, name, "Succeeded", f"PyTorchJob {kube.namespace}/{name} successfully completed.", _now())


def _clean(kube: Kube, job: Manifest) -> None:
    running = [each for each in pods_of(kube, job) if each["status"].get("phase") in ("Running", "Pending")]
    for each in running:
        kube("delete", "pod", each["metadata"]["name"], "--wait=false")


def _says(kube: Kube, name: str, kind: str, message: str, completed: str) -> None:
    now = _now()
    row = {"type": kind, "status": "True", "reason": f"PyTorchJob{kind}", "message": message}
    row |= {"lastTransitionTime": now, "lastUpdateTime": now}
    status = {"completionTime": completed, "conditions": [row], "replicaStatuses": {}}
    kube.patch_status("pytorchjob", name, status)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
