"""Which function reads which kind, and which objects a document and its controllers store beside pods.

Mirrors the controllers of Kubernetes v1.36.3, JobSet v0.12, Kubeflow Trainer v2.3 (its plugins' Build),
training-operator v1.9.3 (ReconcileServices), MPI operator v0.8.2, Volcano v1.14.1 (its plugins' OnJobAdd), KubeRay
v1.6.2, LeaderWorkerSet v0.9 and Katib v0.19.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from gpuflow.demands.model import Demand, UnseenPart
from gpuflow.demands.stored import StoredObject, resource_of
from gpuflow.formats.documents import Document, Library
from gpuflow.readers.interface import Options, PassiveObject
from gpuflow.readers.kubernetes import jobs, operators
from gpuflow.readers.kubernetes.demand import Object
from gpuflow.readers.kubernetes.jobs import history_of
from gpuflow.readers.kubernetes.operators import runtime_of, trains
from gpuflow.readers.kubernetes.pods import Part
from gpuflow.runtime.gangs.kinds import JOBSET, POD_GROUP

BATCH, APPS, RAY, KUBEFLOW, RBAC = "batch", "apps", "ray.io", "kubeflow.org", "rbac.authorization.k8s.io"
REVISIONS: Final = 10
"""How many old ReplicaSets or ControllerRevisions are kept."""
Made = Iterable[StoredObject]
_GROUPS: Final = tuple(("podgroups", group) for group in (POD_GROUP.group, "scheduling.x-k8s.io"))
_ACCOUNT: Final = (("serviceaccounts", ""), ("roles", RBAC), ("rolebindings", RBAC))
PERHAPS: Final = {
    KUBEFLOW: (*_GROUPS, ("horizontalpodautoscalers", "autoscaling")),
    "trainer.kubeflow.org": (("configmaps", ""), *_GROUPS),
    "leaderworkerset.x-k8s.io": _GROUPS,
    "batch.volcano.sh": (("networkpolicies", "networking.k8s.io"),),
    RAY: (*_ACCOUNT, ("secrets", ""), ("jobs", BATCH), ("ingresses", "networking.k8s.io"), *_GROUPS),
}
"""By the group of a document, what its operator makes with some settings only, of the document's or its own."""
UNSURE: Final = "whether its operator makes one more depends on settings"


def stored_of(thing: Object, found: Demand) -> tuple[StoredObject, ...]:
    """The object itself, then what its controllers make. What is suspended may have none of that."""
    document, metadata = thing.document, thing.root.at("metadata")
    if document.kind == "Pod":
        return ()  # it is counted as a pod
    own = StoredObject(
        resource_of(document.kind), document.group, by_controller=False, per_run=document.kind != "CronJob",
        labels={} if metadata is None else metadata.labels(),
    )  # fmt: skip
    maker = KINDS[(document.kind, document.group)].stores
    made = [] if maker is None else [*maker(thing, found)]
    if maker is not None:
        most = 2 if document.kind == "RayService" else 1
        made += [StoredObject(*each, 0, most, UNSURE) for each in PERHAPS.get(document.group, ())]
    if found.only_at_most is not None:
        made = [replace(each, at_least=0, because=each.because or found.only_at_most) for each in made]
    owner, where = f"{document.kind} {document.name}", document.where()
    return tuple(replace(each, owner=owner, where=where) for each in (own, *made) if each.at_most != 0)


def _number(count: int, resource: str, group: str = "") -> StoredObject:
    return StoredObject(resource, group, count, count)


def _cron_job(thing: Object, found: Demand) -> Made:
    yield StoredObject("jobs", BATCH, kept=history_of(thing.spec))


def _revisions(resource: str) -> Callable[[Object, Demand], Made]:
    def of_object(thing: Object, found: Demand) -> Made:
        yield StoredObject(resource, APPS, by_updates=1 + thing.spec.count("revisionHistoryLimit", REVISIONS))

    return of_object


def _job_set(thing: Object, found: Demand) -> Made:
    return _of_job_set(thing.spec, [each.count("replicas", 1) for each in thing.spec.items_at("replicatedJobs")])


def _of_job_set(spec: Part, counts: Iterable[int]) -> Made:
    """Its Jobs, finished ones too, and the Service by which pods find each other."""
    yield _number(sum(counts), "jobs", BATCH)
    network = spec.at("network")
    if network is None or network.flag("enableDNSHostnames", True):
        yield StoredObject("services")


def _train_job(thing: Object, found: Demand) -> Made:
    document = runtime_of(thing)
    if document is None:
        why = "what it makes is written in its runtime, which was not given"
        for kind in ((JOBSET.plural, JOBSET.group), ("jobs", BATCH), ("services", ""), ("secrets", "")):
            yield StoredObject(*kind, 0, None, why)
        return
    runtime = Part(document, (), document.tree).need("spec")
    spec, policy = runtime.need("template", "spec"), runtime.at("mlPolicy")
    yield StoredObject(JOBSET.plural, JOBSET.group)
    jobs = spec.items_at("replicatedJobs")
    yield from _of_job_set(spec, [1 if trains(each) else each.count("replicas", 1) for each in jobs])
    if policy is not None and (policy.at("mpi") is not None or policy.at("flux") is not None):
        yield from (StoredObject("configmaps"), StoredObject("secrets"))


def _training_job(thing: Object, found: Demand) -> Made:
    """A Service for each replica; those of an elastic job are not all known."""
    pods = found.steps[0].pods if found.steps else 0
    elastic = len(found.steps) > 1
    yield StoredObject("services", "", pods, None if elastic else pods, "it is elastic" if elastic else "")


def _mpi_job(thing: Object, found: Demand) -> Made:
    newer = str(thing.document.tree.get("apiVersion")).endswith("/v2beta1")
    beside = (("services", ""), ("secrets", ""), ("jobs", BATCH)) if newer else _ACCOUNT
    yield from (StoredObject(*each) for each in (("configmaps", ""), *beside))


def _of_ray_cluster(spec: Part, most: int) -> Made:
    """What each cluster has; there are `most` at once, one in the place of another."""
    hosts = any(each.count("numOfHosts", 1) > 1 for each in spec.items_at("workerGroupSpecs"))
    services, kind = 1 + hosts, spec.need("headGroupSpec").text("serviceType")
    yield StoredObject("services", "", services, services * most, UNSURE)
    if kind == "LoadBalancer":
        yield StoredObject("services.loadbalancers", "", 1, most, UNSURE)
    if kind in ("NodePort", "LoadBalancer"):
        yield StoredObject("services.nodeports", "", 1, None, "how many ports its head has is not counted")


def _ray_cluster(thing: Object, found: Demand) -> Made:
    metadata = thing.root.at("metadata")
    if metadata is not None and metadata.labels("annotations").get("ray.io/enable-serve-service") == "true":
        yield StoredObject("services")
    yield from _of_ray_cluster(thing.spec, 1)


def _ray_job(thing: Object, found: Demand) -> Made:
    spec, cluster = thing.spec, thing.spec.at("rayClusterSpec")
    most = 2 if spec.count("backoffLimit", 0) else 1  # a retry makes another one
    if spec.text("submissionMode", "K8sJobMode") == "K8sJobMode":
        yield StoredObject("jobs", BATCH, 1, most, UNSURE)
    if cluster is not None:
        yield from (StoredObject("rayclusters", RAY, 1, most, UNSURE), StoredObject("services"))
        yield from _of_ray_cluster(cluster, most)


def _ray_service(thing: Object, found: Demand) -> Made:
    yield StoredObject("rayclusters", RAY, 1, 2, "an update runs a second cluster")
    yield _number(2, "services")  # to the head, and to what serves
    yield from _of_ray_cluster(thing.spec.need("rayClusterConfig"), 2)


def _leader_worker_set(thing: Object, found: Demand) -> Made:
    """A StatefulSet of all leaders, and one of the workers of each group, each with a revision."""
    groups, size = thing.spec.count("replicas", 1), thing.spec.need("leaderWorkerTemplate").count("size", 1)
    network, sets = thing.spec.at("networkConfig"), 1 + (groups if size > 1 else 0)
    each = network is not None and network.text("subdomainPolicy") == "UniquePerReplica"
    yield from (_number(sets, "statefulsets", APPS), _number(1 + sets, "controllerrevisions", APPS))
    yield _number(groups if each else 1, "services")


def _volcano_job(thing: Object, found: Demand) -> Made:
    plugins = thing.spec.at("plugins")
    named = set() if plugins is None else {str(name) for name in plugins.mapping}
    yield StoredObject("podgroups", POD_GROUP.group)
    if named & {"svc", "mpi", "pytorch", "tensorflow", "ray"}:
        yield from (StoredObject("configmaps"), StoredObject("services", "", 1, 1 + ("ray" in named), UNSURE))
    if named & {"ssh", "mpi"}:
        yield StoredObject("secrets")


def _experiment(thing: Object, found: Demand) -> Made:
    """The suggestion service, the trials, and what these make. Finished trials stay, perhaps without their Jobs."""
    most = None if thing.spec.at("maxTrialCount") is None else thing.spec.count("maxTrialCount", 1, least=1)
    why = "how many trials there are is decided while it runs"
    for kind in (("suggestions", KUBEFLOW), ("deployments", APPS), ("replicasets", APPS), ("services", "")):
        yield StoredObject(*kind)
    yield StoredObject("trials", KUBEFLOW, 1, most, why)
    for each in found.stored:  # of one trial
        count = None if most is None or each.at_most is None else most * each.at_most
        yield replace(each, at_least=0, at_most=count, because=why, by_controller=True, labels=None)


class Kind(NamedTuple):
    """How a kind is read, and what its controllers make beside pods; None: nothing that a quota counts."""

    read: Callable[[Object], Demand | PassiveObject]
    stores: Callable[[Object, Demand], Made] | None = None


KINDS: Final[dict[tuple[str, str], Kind]] = {
    ("Pod", ""): Kind(jobs.pod),
    ("PodTemplate", ""): Kind(jobs.pod_template),
    ("ReplicationController", ""): Kind(jobs.replicas),
    ("ReplicaSet", APPS): Kind(jobs.replicas),
    ("Deployment", APPS): Kind(jobs.deployment, _revisions("replicasets")),
    ("StatefulSet", APPS): Kind(jobs.stateful_set, _revisions("controllerrevisions")),
    ("DaemonSet", APPS): Kind(jobs.daemon_set, _revisions("controllerrevisions")),
    ("Job", BATCH): Kind(jobs.job),
    ("CronJob", BATCH): Kind(jobs.cron_job, _cron_job),
    ("JobSet", JOBSET.group): Kind(jobs.job_set, _job_set),
    ("LeaderWorkerSet", "leaderworkerset.x-k8s.io"): Kind(jobs.leader_worker_set, _leader_worker_set),
    **{(kind, KUBEFLOW): Kind(operators.training_job, _training_job) for kind in operators.REPLICA_SPECS},
    ("MPIJob", KUBEFLOW): Kind(operators.mpi_job, _mpi_job),
    ("Experiment", KUBEFLOW): Kind(operators.experiment, _experiment),
    ("TrainJob", "trainer.kubeflow.org"): Kind(operators.train_job, _train_job),
    ("Job", "batch.volcano.sh"): Kind(jobs.volcano_job, _volcano_job),
    ("RayCluster", RAY): Kind(operators.ray_cluster, _ray_cluster),
    ("RayJob", RAY): Kind(operators.ray_job, _ray_job),
    ("RayService", RAY): Kind(operators.ray_service, _ray_service),
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
    found = KINDS[(document.kind, document.group)].read(thing)
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
            return thing.unseen_demand(f"{at.name} is {other}, and only that controller makes pods of it", at.where)
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
