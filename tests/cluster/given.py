"""A cluster that somebody else runs, named by KUBECONFIG: tests use namespaces of their own in it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .kube import Kube

# The images that a cluster with a registry can pull, and the variables that name others.
IMAGES = {
    "busybox": ("GPUFLOW_TEST_BUSYBOX", "busybox:1.36"),
    "gpuflow": ("GPUFLOW_TEST_GPUFLOW", ""),
    "python": ("GPUFLOW_TEST_PYTHON", "python:3.11-slim"),
}
DEFINITIONS = {
    "argo": "workflows.argoproj.io",
    "jobset": "jobsets.jobset.x-k8s.io",
    "kueue": "clusterqueues.kueue.x-k8s.io",
    "mpi-operator": "mpijobs.kubeflow.org",
    "trainer": "trainjobs.trainer.kubeflow.org",
    "training-operator": "pytorchjobs.kubeflow.org",
    "volcano": "jobs.batch.volcano.sh",
}


class Lacking(RuntimeError):
    """The cluster does not have what a test needs."""


class GivenCluster:
    """What tests need to know of a cluster that was there before them."""

    private = False
    enter: tuple[str, ...] = ()

    def __init__(self, kubeconfig: Path) -> None:
        self.kube = Kube(kubeconfig)
        self.state: dict[str, Any] = {"node": True, "parts": []}

    def image(self, image: str) -> str:
        variable, usual = IMAGES[image]
        reference = os.environ.get(variable, usual)
        if not reference:
            raise Lacking(f"the cluster of KUBECONFIG needs an image for this test: name it in {variable}")
        return reference

    def ensure(self, addon: str, say: Callable[[str], None] = print) -> None:
        if self.kube.get("crd", DEFINITIONS[addon]) is None:
            raise Lacking(f"the cluster of KUBECONFIG ({self.kube.kubeconfig}) does not have {addon.capitalize()}")

    def environment(self) -> dict[str, str]:
        return {"KUBECONFIG": str(self.kube.kubeconfig)}
