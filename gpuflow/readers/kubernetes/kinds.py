"""Which function reads which kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gpuflow.demands.model import Demand
from gpuflow.formats.documents import Document, Library
from gpuflow.readers.interface import Options, PassiveObject
from gpuflow.readers.kubernetes import jobs, katib, ray, training, volcano
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
    **{(kind, "kubeflow.org"): training.training_job for kind in training.REPLICA_SPECS},
    ("MPIJob", "kubeflow.org"): training.mpi_job,
    ("Experiment", "kubeflow.org"): katib.experiment,
    ("TrainJob", "trainer.kubeflow.org"): training.train_job,
    ("Job", "batch.volcano.sh"): volcano.volcano_job,
    ("RayCluster", "ray.io"): ray.ray_cluster,
    ("RayJob", "ray.io"): ray.ray_job,
    ("RayService", "ray.io"): ray.ray_service,
}


def demand_of(document: Document, library: Library, options: Options) -> Demand | PassiveObject:
    """What an object asks of a cluster. A field that cannot be read is an error with its place."""
    found = KINDS[(document.kind, document.group)](Object(document, library, options))
    return replace(found, by_itself=True, kind=document.kind) if isinstance(found, Demand) else found
