"""Kubeflow's MPI operator on the private cluster: it makes a launcher and its workers of each MPIJob."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..engines import build
from .kube import documents
from .programs import Program

if TYPE_CHECKING:
    from .cluster import Cluster

NAMESPACE = "mpi-operator"
# It says with a fixed port that it lives.
HEALTH_PORT = 8080


def install(cluster: Cluster) -> None:
    """The definition, and the controller, which has no webhooks."""
    kube = cluster.kube
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    kube.apply(namespace, *documents(build.shared("mpi-operator", "crds.yaml")))
    kube.await_definitions()
    argv = (
        str(build.binary("mpi-operator")),
        f"--lock-namespace={NAMESPACE}",
        "--kube-api-qps=50",
        "--kube-api-burst=100",
    )
    cluster.run("mpi-operator", Program(argv, HEALTH_PORT, {"KUBECONFIG": str(cluster.layout.kubeconfig)}))
