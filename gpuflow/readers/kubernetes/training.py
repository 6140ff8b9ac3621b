"""Jobs of Kubeflow's training operator, MPIJobs, and TrainJobs of Kubeflow Trainer.

A TrainJob names a runtime, which is a JobSet, and changes some of it. This mirrors the plugins of
github.com/kubeflow/trainer v2.2 (newRuntimeInfo, EnforceMLPolicy, the builder of JobSets).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gpuflow.demands.model import Demand, UnseenPart
from gpuflow.formats.documents import Document
from gpuflow.graph import Dag, Unknown
from gpuflow.kubernetes.strategic_merge import BadPatch, strategic_merge_map_patch
from gpuflow.readers.interface import PassiveObject
from gpuflow.readers.kubernetes.demand import Object, Run, suspended_reason
from gpuflow.readers.kubernetes.fields import Part
from gpuflow.readers.kubernetes.jobs import ReplicatedJob, demand_of_jobs, replicated_jobs
from gpuflow.readers.kubernetes.pods import Pod, plain_any, pod_of, shared_claims

REPLICA_SPECS: Final = {
    "PyTorchJob": "pytorchReplicaSpecs",
    "TFJob": "tfReplicaSpecs",
    "XGBoostJob": "xgbReplicaSpecs",
    "PaddleJob": "paddleReplicaSpecs",
    "JAXJob": "jaxReplicaSpecs",
    "MPIJob": "mpiReplicaSpecs",
}
ROLES: Final = ("Master", "Chief", "Launcher", "PS", "Worker", "Evaluator")
"""In the order in which they are named in answers."""


def training_job(thing: Object) -> Demand | PassiveObject:
    """Every kind of replica lives with all others. An elastic job may grow beyond what it starts with."""
    return _demand(thing, {})


def mpi_job(thing: Object) -> Demand | PassiveObject:
    """A launcher and its workers. A launcher that waits for the workers still runs beside them."""
    thing.spec.flag("runLauncherAsWorker")
    thing.spec.text("launcherCreationPolicy", "AtStartup", ("AtStartup", "WaitForWorkersReady"))
    thing.spec.need("mpiReplicaSpecs", "Launcher")
    return _demand(thing, {"Worker": 0})


def _demand(thing: Object, defaults: dict[str, int]) -> Demand | PassiveObject:
    spec = thing.spec
    specs = spec.need(REPLICA_SPECS[thing.document.kind])
    roles = sorted(specs.entries(), key=lambda entry: ROLES.index(entry[0]) if entry[0] in ROLES else len(ROLES))
    sets = []
    counts: dict[str, int] = {}
    for role, part in roles:
        pod = pod_of(part.need("template"), thing.owner)
        restart = part.text("restartPolicy")
        if restart is not None:
            pod = {**pod, "spec": {**pod["spec"], "restartPolicy": "Never" if restart == "ExitCode" else restart}}
        counts[role] = part.count("replicas", defaults.get(role, 1))
        sets.append((role.lower(), counts[role], pod))
    policy = spec.at("runPolicy")
    only = None if policy is None else suspended_reason(policy, thing.owner.is_queued)
    run = Run()
    where = specs.key_where if not roles else roles[0][1].key_where
    run.add_gang(thing.name, sets, where)
    elastic = spec.at("elasticPolicy")
    worker = dict(roles).get("Worker")
    if elastic is not None and worker is not None:
        _elastic_workers(run, thing, elastic, counts["Worker"], {name: pod for name, _, pod in sets}["worker"], worker)
    return run.demand(thing, only_at_most=only)


def _elastic_workers(run: Run, thing: Object, elastic: Part, now: int, pod: dict[str, object], worker: Part) -> None:
    """The workers that an elastic job may get on top of those that it starts with."""
    elastic.count("minReplicas", 0)
    most = elastic.at("maxReplicas")
    more = 0 if most is None else most.whole() - now
    if most is not None and more > 0:
        why = f"{most.name} lets it grow from {now} to {most.value} workers while it runs"
        run.add_copies(f"{thing.name}-elastic", pod, Unknown(why, more), worker.key_where)


ANCESTOR: Final = "trainer.kubeflow.org/trainjob-ancestor-step"
NODE: Final = "node"
"""What Trainer calls the container that trains, and the Jobs of an MPI runtime that run beside the launcher."""


def train_job(thing: Object) -> Demand | PassiveObject:
    """The Jobs of its runtime; without the runtime nobody knows them."""
    ref = thing.spec.need("runtimeRef")
    name, kind = ref.text("name") or "", ref.text("kind", "ClusterTrainingRuntime") or ""
    beside = _launcher_runtime(thing.document)
    if not name and beside is None:
        ref.need("name")
    only = suspended_reason(thing.spec, thing.owner.is_queued)
    found = beside or thing.library.find(kind, name)
    if found is None:
        text = f"which pods it has is written in {kind} {name}, which was not given"
        hint = f"name its file too: kubectl get {kind.lower()} {name} -o yaml"
        unseen = UnseenPart(thing.name, text, ref.where, hint=hint)
        return Demand(thing.name, (), Dag({}), unseen=(unseen,), only_at_most=only)
    runtime = Part(found, (), found.tree).need("spec")
    jobset = runtime.need("template", "spec")
    jobs = [_apply_train_job(job, thing, runtime) for job in replicated_jobs(jobset, thing.owner)]
    return demand_of_jobs(thing, jobs, only, shared_claims(jobset.at("volumeClaimPolicies"), thing.name))


def _launcher_runtime(document: Document) -> Document | None:
    """The runtime that a launcher of ours makes with its TrainJob: no object that a file of Kubernetes has."""
    runtime = document.tree.get("runtime")
    if not isinstance(runtime, Mapping):
        return None
    return Document(runtime, document.file, "TrainingRuntime", document.group, document.index)


def _apply_train_job(job: ReplicatedJob, thing: Object, runtime: Part) -> ReplicatedJob:
    """A Job of the runtime as the TrainJob makes it."""
    trainer = thing.spec.at("trainer")
    policy = runtime.at("mlPolicy")
    mpi = None if policy is None else policy.at("mpi")
    template = job.part.need("template")
    metadata = template.at("metadata")
    trains = metadata is not None and metadata.labels().get(ANCESTOR) == "trainer"
    also = mpi is not None and mpi.flag("runLauncherAsNode")
    count = template.need("spec").count("parallelism", 1)
    if trains and policy is not None:
        count = policy.count("numNodes", 1)
    if trainer is not None and trainer.at("numNodes") is not None:
        nodes = trainer.count("numNodes", 1)
        if mpi is None and trains:
            count = nodes
        elif mpi is not None and job.name == NODE:
            count = max(nodes - 1, 1) if also else nodes
    pod = _apply_patches(job, thing)
    resources = None if trainer is None else trainer.at("resourcesPerNode")
    if resources is not None and (trains or (also and job.name == NODE)):
        pod = _with_resources(pod, resources)
    replicas = 1 if trains else job.part.count("replicas", 1)
    return job._replace(pods=replicas * max(count, 1), pod=pod)


def _with_resources(pod: Pod, resources: Part) -> Pod:
    given = {
        side: {key: found.need(key).amount_text() for key in found.mapping}
        for side in ("requests", "limits")
        if (found := resources.at(side)) is not None
    }
    if not given:
        return pod
    containers = [{**each, "resources": given} if each["name"] == NODE else each for each in pod["spec"]["containers"]]
    return {**pod, "spec": {**pod["spec"], "containers": containers}}


def _apply_patches(job: ReplicatedJob, thing: Object) -> Pod:
    """The pod with what `runtimePatches`, or the older `podTemplateOverrides`, change in it."""
    pod = job.pod
    for patch in thing.spec.items_at("runtimePatches"):
        for each in patch.items_at("trainingRuntimeSpec", "template", "spec", "replicatedJobs"):
            template = each.at("template", "spec", "template")
            if each.text("name") == job.name and template is not None:
                pod = _apply_patch(pod, template)
    for override in thing.spec.items_at("podTemplateOverrides"):
        if job.name in [each.text("name") for each in override.items_at("targetJobs")]:
            pod = _apply_patch(pod, override)
    return pod


def _apply_patch(pod: Pod, patch: Part) -> Pod:
    given = {key: patch.at(key) for key in ("metadata", "spec")}
    bare = {key: plain_any(found) for key, found in given.items() if found is not None and found.mapping}
    try:
        return dict(strategic_merge_map_patch(pod, bare))
    except BadPatch as refusal:
        raise patch.fault(f"cannot be applied: {refusal}") from None
