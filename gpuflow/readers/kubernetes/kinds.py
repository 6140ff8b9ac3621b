"""Which function reads which kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from gpuflow.demands.model import Demand, UnseenPart
from gpuflow.formats.documents import Document, Library
from gpuflow.graph import Dag
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


MANAGED: Final = (("spec",), ("spec", "jobTemplate", "spec"), ("spec", "runPolicy"))
"""Where objects say which controller looks after them: `managedBy`."""
OWN_CONTROLLERS: Final = (
    "kubernetes.io/job-controller", "jobset.sigs.k8s.io/jobset-controller", "kubeflow.org/training-operator",
    "kubeflow.org/mpi-operator", "trainer.kubeflow.org/trainjob-controller", "ray.io/kuberay-operator",
)  # fmt: skip
EXCLUSIVE: Final = ("alpha.jobset.sigs.k8s.io/exclusive-topology", "leaderworkerset.sigs.k8s.io/exclusive-topology")
"""Annotations by which each Job, or each group, takes a domain of the topology for itself."""


def demand_of(document: Document, library: Library, options: Options) -> Demand | PassiveObject:
    """What an object asks of a cluster. A field that cannot be read is an error with its place."""
    thing = Object(document, library, options)
    found = KINDS[(document.kind, document.group)](thing)
    if isinstance(found, PassiveObject):
        return found
    placed = replace(found, unseen=(*found.unseen, *_exclusive(thing)))
    stored = stored_of(thing, placed)
    if (elsewhere := _managed_elsewhere(thing)) is not None:
        placed, stored = elsewhere, stored[:1]  # what it makes, nobody here knows
    return replace(placed, by_itself=True, kind=document.kind, stored=stored)


def _managed_elsewhere(thing: Object) -> Demand | None:
    """The demand of an object that another controller is told to look after: nobody here knows its pods.

    Mirrors managedByExternalController of the JobSet controller (v0.12.0) and syncJob of the Job controller (v1.36.3).
    """
    jobs = thing.root.at("spec", "replicatedJobs")
    inner = (each.at("template", "spec") for each in (jobs.items() if jobs is not None else ()))
    for part in filter(None, (*(thing.root.at(*path) for path in MANAGED), *inner)):
        if (other := part.text("managedBy")) is not None and other not in OWN_CONTROLLERS:
            at = part.need("managedBy")
            because = f"{at.name} is {other}, and only that controller makes pods of it"
            return Demand(thing.name, (), Dag({}), unseen=(UnseenPart(thing.name, because, at.where),))
    return None


def _exclusive(thing: Object) -> Iterator[UnseenPart]:
    """That its pods share no domain with others of their kind: which are free, and large enough, is not modeled."""
    jobs = thing.root.at("spec", "replicatedJobs")
    holders = [thing.root, *(each.need("template") for each in (jobs.items() if jobs is not None else ()))]
    for holder in holders:
        for key, domain in holder.labels_at("metadata", "annotations").items():
            if key in EXCLUSIVE:
                because = f"{key} gives each Job or group a {domain} of its own, and which of them are free and large "
                yield UnseenPart(thing.name, f"{because}enough is not modeled", holder.where, is_placement=True)
