"""Which objects a document and its controllers store beside pods, kind by kind.

Mirrors Kubernetes v1.36.3 (cleanupFinishedJobs of CronJobs, cleanupDeployment, the revisions of StatefulSets and
DaemonSets), JobSet v0.12 (createHeadlessSvcIfNecessary), Kubeflow Trainer v2.3 (the plugins' Build), training-operator
v1.9.3 (ReconcileServices), MPI operator v0.8.2, Volcano v1.14.1 (the plugins' OnJobAdd), KubeRay v1.6.2 (rayCluster-
Reconcile and reconcileServices), LeaderWorkerSet v0.9 and Katib v0.19.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from gpuflow.demands.model import Demand
from gpuflow.demands.stored import StoredObject, resource_of
from gpuflow.kubernetes.resources import read_map
from gpuflow.readers.kubernetes.demand import Object
from gpuflow.readers.kubernetes.fields import Part
from gpuflow.readers.kubernetes.jobs import history_of
from gpuflow.readers.kubernetes.operators import REPLICA_SPECS, runtime_of, trains_with
from gpuflow.runtime.gangs.kinds import JOBSET, POD_GROUP

APPS, BATCH, RAY, KUBEFLOW, AUTOSCALED = "apps", "batch", "ray.io", "kubeflow.org", "rbac.authorization.k8s.io"
REVISIONS: Final = 10
"""How many old ReplicaSets or ControllerRevisions are kept."""
Made = Iterable[StoredObject]


def stored_of(thing: Object, found: Demand) -> tuple[StoredObject, ...]:
    """The object itself, then what its controllers make. What is suspended may have none of that."""
    document = thing.document
    metadata, owner = thing.root.at("metadata"), f"{document.kind} {document.name}"
    own = StoredObject(
        resource_of(document.kind),
        document.group,
        by_controller=False,
        per_run=document.kind != "CronJob",
        labels={} if metadata is None else metadata.labels(),
    )
    made = [each for each in MADE.get((document.kind, document.group), _nothing)(thing, found) if each.at_most != 0]
    if found.only_at_most is not None:
        made = [replace(each, at_least=0, because=each.because or found.only_at_most) for each in made]
    # Pods are counted on their own.
    rows = made if document.kind == "Pod" else [own, *made]
    return tuple(replace(each, owner=each.owner or owner, where=document.where()) for each in rows)


def _nothing(thing: Object, found: Demand) -> Made:
    return ()


def _exactly(resource: str, group: str, count: int) -> StoredObject:
    return StoredObject(resource, group, count, count)


def _perhaps(resource: str, group: str, because: str, most: int | None = 1) -> StoredObject:
    return StoredObject(resource, group, 0, most, because)


def _cron_job(thing: Object, found: Demand) -> Made:
    yield StoredObject("jobs", BATCH, kept=history_of(thing.spec))


def _revisions(resource: str) -> Callable[[Object, Demand], Made]:
    def made(thing: Object, found: Demand) -> Made:
        yield StoredObject(resource, APPS, by_updates=1 + thing.spec.count("revisionHistoryLimit", REVISIONS))

    return made


def _job_set(thing: Object, found: Demand) -> Made:
    return _of_job_set(thing.spec, {})


def _of_job_set(spec: Part, replicas: dict[str, int]) -> Made:
    """Its Jobs, finished ones too, and the Service by which pods find each other. `replicas`: those set otherwise."""
    jobs = list(spec.items_at("replicatedJobs"))
    counts = [replicas.get(each.text("name") or "", each.count("replicas", 1)) for each in jobs]
    yield _exactly("jobs", BATCH, sum(counts))
    network = spec.at("network")
    if network is None or network.flag("enableDNSHostnames", True):
        yield StoredObject("services")


def _train_job(thing: Object, found: Demand) -> Made:
    document = runtime_of(thing)
    if document is None:
        why = "what it makes is written in its runtime, which was not given"
        for resource, group in ((JOBSET.plural, JOBSET.group), ("jobs", BATCH), *_CORE):
            yield _perhaps(resource, group, why, None)
        return
    runtime = Part(document, (), document.tree).need("spec")
    job_set, policy = runtime.need("template", "spec"), runtime.at("mlPolicy")
    yield StoredObject(JOBSET.plural, JOBSET.group)
    yield from _of_job_set(job_set, {each.text("name") or "": 1 for each in trains_with(job_set)})
    if policy is not None and (policy.at("mpi") is not None or policy.at("flux") is not None):
        yield StoredObject("configmaps", at_most=2, because="Trainer may also report how far it is")
        yield StoredObject("secrets")
    else:
        yield _perhaps("configmaps", "", "Trainer may report how far it is, where that feature is on")
    gang = runtime.at("podGroupPolicy")
    if gang is not None:
        volcano = gang.at("volcano") is not None
        yield StoredObject("podgroups", POD_GROUP.group if volcano else "scheduling.x-k8s.io")


_CORE: Final = (("services", ""), ("configmaps", ""), ("secrets", ""))


def _training_job(thing: Object, found: Demand) -> Made:
    """A Service for each replica, made after its pods."""
    pods = found.steps[0].pods if found.steps else 0
    grows = len(found.steps) > 1
    why = "it is elastic" if grows else ""
    yield StoredObject("services", "", pods, None if grows else pods, why)
    if thing.spec.at("elasticPolicy") is not None:
        yield _perhaps("horizontalpodautoscalers", "autoscaling", why or "it is elastic")
    yield from _gang_groups()


def _gang_groups() -> Made:
    for group in (POD_GROUP.group, "scheduling.x-k8s.io"):
        yield _perhaps("podgroups", group, "its operator makes a PodGroup where it was set up so")


def _mpi_job(thing: Object, found: Demand) -> Made:
    yield StoredObject("configmaps")
    if str(thing.document.tree.get("apiVersion")).endswith("/v2beta1"):
        yield StoredObject("services")
        yield StoredObject("secrets")
        yield StoredObject("jobs", BATCH)
    else:
        yield StoredObject("serviceaccounts")
        yield from (StoredObject(each, AUTOSCALED) for each in ("roles", "rolebindings"))
    yield from _gang_groups()


def _of_ray_cluster(spec: Part, clusters: int) -> Made:
    """What each cluster has; `clusters`: the most that there are at once."""
    several = "another cluster may take its place" if clusters > 1 else ""
    hosts = any(each.count("numOfHosts", 1) > 1 for each in spec.items_at("workerGroupSpecs"))
    services, head = 1 + hosts, spec.need("headGroupSpec")
    yield StoredObject("services", "", services, services * clusters, several)
    kind = head.text("serviceType")
    if kind in ("NodePort", "LoadBalancer"):
        yield StoredObject("services.nodeports", "", 1, None, "how many ports its head has is not counted")
    if kind == "LoadBalancer":
        yield StoredObject("services.loadbalancers", "", 1, clusters, several)
    if head.flag("enableIngress"):
        yield _perhaps("ingresses", "networking.k8s.io", "OpenShift makes a Route of it", clusters)
    if spec.flag("enableInTreeAutoscaling"):
        why = "the autoscaler gets an account and a role, unless the head names an account"
        yield _perhaps("serviceaccounts", "", why, clusters)
        yield from (_perhaps(each, AUTOSCALED, why, clusters) for each in ("roles", "rolebindings"))
    if spec.at("authOptions") is not None:
        yield _perhaps("secrets", "", "authOptions may ask for a token", clusters)
    if spec.at("gcsFaultToleranceOptions") is not None:
        yield _perhaps("jobs", BATCH, "a Job cleans up in Redis when a cluster is deleted", clusters)


def _ray_cluster(thing: Object, found: Demand) -> Made:
    yield from _of_ray_cluster(thing.spec, 1)
    annotations = read_map(read_map(thing.document.tree.get("metadata"), "metadata").get("annotations"), "annotations")
    if annotations.get("ray.io/enable-serve-service") == "true":
        yield StoredObject("services")


def _ray_job(thing: Object, found: Demand) -> Made:
    spec = thing.spec
    again = spec.count("backoffLimit", 0) > 0
    most, why = (2, "a retry makes another one") if again else (1, "")
    if spec.text("submissionMode", "K8sJobMode") == "K8sJobMode":
        yield StoredObject("jobs", BATCH, 1, most, why)
    cluster = spec.at("rayClusterSpec")
    if cluster is not None:
        yield StoredObject("rayclusters", RAY, 1, most, why)
        yield from _of_ray_cluster(cluster, most)
        yield StoredObject("services")  # of its own, which leads to the head


def _ray_service(thing: Object, found: Demand) -> Made:
    yield StoredObject("rayclusters", RAY, 1, 2, "an update runs a second cluster")
    yield from _of_ray_cluster(thing.spec.need("rayClusterConfig"), 2)
    yield StoredObject("services", "", 2, 2)  # to the head, and to what serves


def _leader_worker_set(thing: Object, found: Demand) -> Made:
    """A StatefulSet of all leaders, and one of the workers of each group, each with a revision."""
    groups, spec = thing.spec.count("replicas", 1), thing.spec.need("leaderWorkerTemplate")
    sets = 1 + (groups if spec.count("size", 1, least=1) > 1 else 0)
    network = thing.spec.at("networkConfig")
    each = network is not None and network.text("subdomainPolicy", "Shared") == "UniquePerReplica"
    yield _exactly("statefulsets", APPS, sets)
    yield StoredObject("controllerrevisions", APPS, 1 + sets, 1 + sets, by_updates=1 + sets)
    yield _exactly("services", "", groups if each else 1)
    yield _perhaps(
        "podgroups", POD_GROUP.group, "LeaderWorkerSet makes one for each group where it was set up so", groups
    )


def _volcano_job(thing: Object, found: Demand) -> Made:
    plugins = thing.spec.at("plugins")
    named = set() if plugins is None else {str(name) for name in plugins.mapping}
    yield StoredObject("podgroups", POD_GROUP.group)
    if named & {"svc", "mpi", "pytorch", "tensorflow", "ray"}:
        yield StoredObject("configmaps")
        yield StoredObject("services", at_most=1 + ("ray" in named), because="the plug-in ray makes one more")
        yield _perhaps("networkpolicies", "networking.k8s.io", "the plug-in svc makes one, unless it is told not to")
    if named & {"ssh", "mpi"}:
        yield StoredObject("secrets")


def _experiment(thing: Object, found: Demand) -> Made:
    """The suggestion service, the trials, and what these make. Finished trials stay, perhaps without their Jobs."""
    most = None if thing.spec.at("maxTrialCount") is None else thing.spec.count("maxTrialCount", 1, least=1)
    why = "how many trials there are is decided while it runs"
    yield StoredObject("suggestions", KUBEFLOW)
    yield StoredObject("deployments", APPS)
    yield StoredObject("replicasets", APPS)
    yield StoredObject("services")
    yield StoredObject("trials", KUBEFLOW, 1, most, why)
    for each in found.stored:  # of one trial
        count = None if most is None or each.at_most is None else most * each.at_most
        yield replace(each, at_least=0, at_most=count, because=why, by_controller=True, labels=None, owner="")


MADE: Final[dict[tuple[str, str], Callable[[Object, Demand], Made]]] = {
    ("CronJob", BATCH): _cron_job,
    ("Deployment", APPS): _revisions("replicasets"),
    ("StatefulSet", APPS): _revisions("controllerrevisions"),
    ("DaemonSet", APPS): _revisions("controllerrevisions"),
    ("JobSet", JOBSET.group): _job_set,
    ("LeaderWorkerSet", "leaderworkerset.x-k8s.io"): _leader_worker_set,
    **{(kind, KUBEFLOW): _training_job for kind in REPLICA_SPECS},
    ("MPIJob", KUBEFLOW): _mpi_job,
    ("Experiment", KUBEFLOW): _experiment,
    ("TrainJob", "trainer.kubeflow.org"): _train_job,
    ("Job", "batch.volcano.sh"): _volcano_job,
    ("RayCluster", RAY): _ray_cluster,
    ("RayJob", RAY): _ray_job,
    ("RayService", RAY): _ray_service,
}
