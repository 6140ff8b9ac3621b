"""Which function reads which kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gpuflow.demands.model import Demand
from gpuflow.formats.documents import Document, Library
from gpuflow.readers.interface import Options, PassiveObject
from gpuflow.readers.kubernetes import jobs, operators
from gpuflow.readers.kubernetes.demand import Object
from gpuflow.readers.kubernetes.stored import stored_of

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


def demand_of(document: Document, library: Library, options: Options) -> Demand | PassiveObject:
    """What an object asks of a cluster. A field that cannot be read is an error with its place."""
    thing = Object(document, library, options)
    found = KINDS[(document.kind, document.group)](thing)
    if isinstance(found, PassiveObject):
        return found
    return replace(found, by_itself=True, kind=document.kind, stored=stored_of(thing, found))
