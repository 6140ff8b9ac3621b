"""The definitions of the kinds that gangs can be, as their projects ship them in their Go modules."""

from __future__ import annotations

import functools
import json
import subprocess
from pathlib import Path
from typing import NamedTuple

from ..engines.build import BuildError
from .kube import Kube, documents


class Shipped(NamedTuple):
    """Where a project ships definitions: its module, and files in it."""

    module: str
    files: tuple[str, ...]


JOBSET = Shipped("sigs.k8s.io/jobset@v0.12.0", ("config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml",))
SHIPPED: dict[str, tuple[Shipped, ...]] = {
    "jobset": (JOBSET,),
    "pytorchjob": (
        Shipped("github.com/kubeflow/training-operator@v1.9.3", ("manifests/base/crds/kubeflow.org_pytorchjobs.yaml",)),
    ),
    "trainjob": (
        JOBSET,
        Shipped(
            "github.com/kubeflow/trainer/v2@v2.3.0",
            (
                "manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml",
                "manifests/base/crds/trainer.kubeflow.org_trainingruntimes.yaml",
            ),
        ),
    ),
    "mpijob": (Shipped("github.com/kubeflow/mpi-operator@v0.8.2", ("manifests/base/kubeflow.org_mpijobs.yaml",)),),
    "jobset+volcano": (
        JOBSET,
        Shipped("volcano.sh/volcano@v1.14.1", ("config/crd/volcano/bases/scheduling.volcano.sh_podgroups.yaml",)),
    ),
    "volcano": (Shipped("volcano.sh/volcano@v1.14.1", ("config/crd/volcano/bases/batch.volcano.sh_jobs.yaml",)),),
}
"""By the words of the site."""


@functools.cache
def folder_of(module: str) -> Path:
    """Where a module is unpacked; it is downloaded when it is not there."""
    try:
        words = ["go", "mod", "download", "-json", module]
        # Outside of any module: it is named with its version.
        found = subprocess.run(words, cwd="/", check=True, capture_output=True, text=True).stdout
        return Path(json.loads(found)["Dir"])
    except (OSError, subprocess.CalledProcessError, KeyError, ValueError) as error:
        raise BuildError(f"{module} cannot be had: {error}") from None


def install(kube: Kube, word: str) -> None:
    """The definitions that gangs of a kind need."""
    for shipped in SHIPPED[word]:
        for file in shipped.files:
            kube.apply(*documents(folder_of(shipped.module) / file))
    kube.await_definitions()
