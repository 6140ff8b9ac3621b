"""Which function reads which kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gpuflow.demands.model import Demand
from gpuflow.formats.documents import Document, Library
from gpuflow.readers.interface import Options, PassiveObject
from gpuflow.readers.kubernetes.demand import Object
from gpuflow.readers.kubernetes.jobs import cron_job, job, job_set, pod, pod_template
from gpuflow.readers.kubernetes.katib import experiment
from gpuflow.readers.kubernetes.ray import ray_cluster, ray_job, ray_service
from gpuflow.readers.kubernetes.serving import daemon_set, deployment, leader_worker_set, replicas, stateful_set
from gpuflow.readers.kubernetes.training import mpi_job, train_job, training_job
from gpuflow.readers.kubernetes.volcano import volcano_job

KINDS: dict[tuple[str, str], Callable[[Object], Demand | PassiveObject]] = {
    ("Pod", ""): pod,
    ("PodTemplate", ""): pod_template,
    ("ReplicationController", ""): replicas,
    ("ReplicaSet", "apps"): replicas,
    ("Deployment", "apps"): deployment,
    ("StatefulSet", "apps"): stateful_set,
    ("DaemonSet", "apps"): daemon_set,
    ("Job", "batch"): job,
    ("CronJob", "batch"): cron_job,
    ("JobSet", "jobset.x-k8s.io"): job_set,
    ("LeaderWorkerSet", "leaderworkerset.x-k8s.io"): leader_worker_set,
    ("PyTorchJob", "kubeflow.org"): training_job,
    ("TFJob", "kubeflow.org"): training_job,
    ("XGBoostJob", "kubeflow.org"): training_job,
    ("PaddleJob", "kubeflow.org"): training_job,
    ("JAXJob", "kubeflow.org"): training_job,
    ("MPIJob", "kubeflow.org"): mpi_job,
    ("Experiment", "kubeflow.org"): experiment,
    ("TrainJob", "trainer.kubeflow.org"): train_job,
    ("Job", "batch.volcano.sh"): volcano_job,
    ("RayCluster", "ray.io"): ray_cluster,
    ("RayJob", "ray.io"): ray_job,
    ("RayService", "ray.io"): ray_service,
}


def demand_of(document: Document, library: Library, options: Options) -> Demand | PassiveObject:
    """What an object asks of a cluster. A field that cannot be read is an error with its place."""
    found = KINDS[(document.kind, document.group)](Object(document, library, options))
    return replace(found, by_itself=True, kind=document.kind) if isinstance(found, Demand) else found
