"""Which function reads which kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gpuflow.demands.model import Demand, UnseenPart
from gpuflow.formats.documents import Document, Library
from gpuflow.graph import Dag
from gpuflow.readers.interface import Options, PassiveObject
from gpuflow.readers.kubernetes import jobs, operators
from gpuflow.readers.kubernetes.demand import Object

KINDS: dict[tuple[str, str], Callable[[Object], Demand | PassiveObject]] = {
    ("Pod", ""): jobs.pod,
    ("PodTemplate", ""): jobs.pod_template,
    ("ReplicationController", ""): jobs.replicas,
    ("ReplicaSet", "apps"): jobs.replicas,
    ("Deployment", "apps"): jobs.deployment,
    ("StatefulSet", "apps"): jobs.stateful_set,
    ("DaemonSet", "apps"): jobs.daemon_set,
    ("Job", "batch"): jobs.job,
    ("CronJob", "batch"): jobs.cron_job,
    ("JobSet", "jobset.x-k8s.io"): jobs.job_set,
    ("LeaderWorkerSet", "leaderworkerset.x-k8s.io"): jobs.leader_worker_set,
    **{(kind, "kubeflow.org"): operators.training_job for kind in operators.REPLICA_SPECS},
    ("MPIJob", "kubeflow.org"): operators.mpi_job,
    ("Experiment", "kubeflow.org"): operators.experiment,
    ("TrainJob", "trainer.kubeflow.org"): operators.train_job,
    ("Job", "batch.volcano.sh"): jobs.volcano_job,
    ("RayCluster", "ray.io"): operators.ray_cluster,
    ("RayJob", "ray.io"): operators.ray_job,
    ("RayService", "ray.io"): operators.ray_service,
}


MANAGED_BY: dict[tuple[str, str], tuple[tuple[str, ...], str]] = {
    ("Job", "batch"): (("spec",), "kubernetes.io/job-controller"),
    ("CronJob", "batch"): (("spec", "jobTemplate", "spec"), "kubernetes.io/job-controller"),
    ("JobSet", "jobset.x-k8s.io"): (("spec",), "jobset.sigs.k8s.io/jobset-controller"),
    **{
        (kind, "kubeflow.org"): (("spec", "runPolicy"), "kubeflow.org/training-operator")
        for kind in operators.REPLICA_SPECS
    },
    ("MPIJob", "kubeflow.org"): (("spec", "runPolicy"), "kubeflow.org/mpi-operator"),
    ("TrainJob", "trainer.kubeflow.org"): (("spec",), "trainer.kubeflow.org/trainjob-controller"),
    ("RayCluster", "ray.io"): (("spec",), "ray.io/kuberay-operator"),
    ("RayJob", "ray.io"): (("spec",), "ray.io/kuberay-operator"),
}
"""Where each kind says which controller looks after it, and the name of its own."""


def demand_of(document: Document, library: Library, options: Options) -> Demand | PassiveObject:
    """What an object asks of a cluster. A field that cannot be read is an error with its place."""
    thing = Object(document, library, options)
    found = KINDS[(document.kind, document.group)](thing)
    if isinstance(found, PassiveObject):
        return found
    return replace(_managed_elsewhere(thing) or found, by_itself=True, kind=document.kind)


def _managed_elsewhere(thing: Object) -> Demand | None:
    """The demand of an object that another controller is told to look after: nobody here knows its pods.

    Mirrors managedByExternalController of the JobSet controller (v0.12.0) and syncJob of the Job controller (v1.36.3).
    """
    path, own = MANAGED_BY.get((thing.document.kind, thing.document.group), ((), ""))
    part = thing.root.at(*path) if path else None
    other = None if part is None else part.text("managedBy")
    if part is None or other is None or other == own:
        return None
    at = part.need("managedBy")
    unseen = UnseenPart(thing.name, f"{at.name} is {other}, and only that controller makes pods of it", at.where)
    return Demand(thing.name, (), Dag({}), unseen=(unseen,))
