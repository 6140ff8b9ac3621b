"""Kinds of operators: jobs of Kubeflow's training operator and MPIJobs, TrainJobs of Kubeflow Trainer, clusters of Ray
and what runs on them, and Experiments of Katib.

A TrainJob names a runtime, which is a JobSet, and changes some of it. This mirrors the plugins of
github.com/kubeflow/trainer v2.2 (newRuntimeInfo, EnforceMLPolicy, the builder of JobSets).

Of Ray it mirrors KubeRay v1.6 (GetWorkerGroupDesiredReplicas, BuildAutoscalerContainer) and what Kueue v0.19 counts.

An Experiment has trials side by side, each an object of its own: in Katib v0.19 three at once where
`parallelTrialCount` is not given. The pod of the suggestion service and the sidecar that collects metrics are Katib's
own, described in its configuration, and not counted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from gpuflow.cluster.model import with_entry
from gpuflow.core import yaml_tree
from gpuflow.core.errors import Finding, GpuflowError, Where
from gpuflow.demands.model import Demand, StepDemand, UnseenPart
from gpuflow.formats.documents import READERS, Document, kind_of
from gpuflow.graph import Dag, Loop, Unknown
from gpuflow.kubernetes.pod_fields import BadPatch, strategic_merge_map_patch
from gpuflow.readers.interface import ForeignObject, PassiveObject
from gpuflow.readers.kubernetes.demand import Object, Run, suspended_reason
from gpuflow.readers.kubernetes.jobs import ReplicatedJob, demand_of_jobs, replicated_jobs
from gpuflow.readers.kubernetes.pods import MAX_INT32, Part, Pod, plain_any, pod_of, shared_claims

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


def mpi_job(thing: Object) -> Demand | PassiveObject:
    """A launcher and its workers. A launcher that waits for the workers still runs beside them."""
    thing.spec.flag("runLauncherAsWorker")
    thing.spec.text("launcherCreationPolicy", "AtStartup", ("AtStartup", "WaitForWorkersReady"))
    thing.spec.count("slotsPerWorker", 1)
    launcher = thing.spec.need("mpiReplicaSpecs", "Launcher")
    if launcher.count("replicas", 1) != 1:
        raise launcher.need("replicas").fault("must be 1: an MPIJob has one launcher")
    found = training_job(thing, workers=0)
    other = thing.library.find("Service", thing.name)
    if other is None or isinstance(found, PassiveObject):
        return found
    because = f"Service {thing.name} of the files has the name of the Service that the MPI operator makes of it"
    clash = UnseenPart(thing.name, because, other.where(), hint="rename one of them")
    return replace(found, unseen=(*found.unseen, clash))


def training_job(thing: Object, workers: int = 1) -> Demand | PassiveObject:
    """Every kind of replica lives with all others. An elastic job may grow beyond what it starts with. `workers`: how
    many there are where it does not say."""
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
        counts[role] = part.count("replicas", workers if role == "Worker" else 1)
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
    only, found = suspended_reason(thing.spec, thing.owner.is_queued), runtime_of(thing)
    if found is None:
        name, kind = ref.text("name"), ref.text("kind", "ClusterTrainingRuntime") or ""
        text = f"which pods it has is written in {kind} {name}, which was not given"
        hint = f"name its file too: kubectl get {kind.lower()} {name} -o yaml"
        return thing.unseen_demand(text, ref.where, hint, only)
    runtime = Part(found, (), found.tree).need("spec")
    jobset = runtime.need("template", "spec")
    jobs = [_apply_train_job(job, thing, runtime) for job in replicated_jobs(jobset, thing.owner)]
    demand = demand_of_jobs(thing, jobs, only, shared_claims(jobset.at("volumeClaimPolicies"), thing.name))
    if isinstance(demand, PassiveObject) or found.file != thing.document.file or found.index <= thing.document.index:
        return demand
    text = f"TrainJob {thing.name} stands before {found.kind} {found.name}: the first kubectl apply is refused"
    late = Finding("GF800", text, found.where(), "move it behind, or apply the file twice", "warning")
    return replace(demand, unsettled=(*demand.unsettled, late))


def runtime_of(thing: Object) -> Document | None:
    """The runtime that a TrainJob names; None where it was not given."""
    ref = thing.spec.need("runtimeRef")
    name, kind = ref.text("name") or "", ref.text("kind", "ClusterTrainingRuntime") or ""
    beside = _launcher_runtime(thing.document)
    if not name and beside is None:
        ref.need("name")
    return beside or thing.library.find(kind, name)


def trains(job: Part) -> bool:
    """Whether a replicatedJob of a runtime trains: Trainer makes one Job of it."""
    metadata = job.need("template").at("metadata")
    return metadata is not None and metadata.labels().get(ANCESTOR) == "trainer"


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
    trained = trains(job.part)
    also = mpi is not None and mpi.flag("runLauncherAsNode")
    count = job.part.need("template", "spec").count("parallelism", 1)
    if trained and policy is not None:
        count = policy.count("numNodes", 1)
    if trainer is not None and trainer.at("numNodes") is not None:
        nodes = trainer.count("numNodes", 1)
        if mpi is None and trained:
            count = nodes
        elif mpi is not None and job.name == NODE:
            count = max(nodes - 1, 1) if also else nodes
    pod = _apply_patches(job, thing)
    resources = None if trainer is None else trainer.at("resourcesPerNode")
    if resources is not None and (trained or (also and job.name == NODE)):
        pod = _with_resources(pod, resources)
    replicas = 1 if trained else job.part.count("replicas", 1)
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


AUTOSCALER: Final = {"cpu": "500m", "memory": "512Mi"}
SUBMITTER: Final = {"requests": {"cpu": "500m", "memory": "200Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
"""What KubeRay gives the containers that it adds, where the object says nothing else."""
SUBMISSION_MODES: Final = ("K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode")


def ray_cluster(thing: Object) -> Demand | PassiveObject:
    """The head, and the workers of each group; an autoscaler may start more, up to maxReplicas."""
    return _demand_of_cluster(thing, thing.spec)


def ray_job(thing: Object) -> Demand | PassiveObject:
    """The same, with the pod that submits the job."""
    spec = thing.spec
    mode = spec.text("submissionMode", "K8sJobMode", SUBMISSION_MODES)
    only = suspended_reason(spec, thing.owner.is_queued)
    cluster = spec.at("rayClusterSpec")
    if cluster is None:
        selector = spec.need("clusterSelector", what="and no rayClusterSpec, so that no cluster is named")
        because = "it runs on a RayCluster that is there already (clusterSelector)"
        return thing.unseen_demand(because, selector.where, only=only)
    beside: list[tuple[str, int, Pod]] = []
    sidecars: list[dict[str, Any]] = []
    if mode == "K8sJobMode":
        own = spec.at("submitterPodTemplate")
        beside.append(("submitter", 1, _submitter(cluster) if own is None else pod_of(own, thing.owner)))
    elif mode == "SidecarMode":
        sidecars.append({"name": "ray-job-submitter", "resources": SUBMITTER})
    return _demand_of_cluster(thing, cluster, beside, sidecars)


def ray_service(thing: Object) -> Demand | PassiveObject:
    """The cluster that serves; an update runs a second one beside it, which a finding says."""
    return _demand_of_cluster(thing, thing.spec.need("rayClusterConfig"))


def _submitter(cluster: Part) -> Pod:
    head = pod_of(cluster.need("headGroupSpec", "template"))
    image = head["spec"]["containers"][0].get("image", "ray")
    container = {"name": "ray-job-submitter", "image": image, "resources": SUBMITTER}
    return {"metadata": {}, "spec": {"restartPolicy": "Never", "containers": [container]}}


def _demand_of_cluster(
    thing: Object, spec: Part, beside: Sequence[tuple[str, int, Pod]] = (), sidecars: Sequence[dict[str, Any]] = ()
) -> Demand | PassiveObject:
    run = Run()
    template = spec.need("headGroupSpec").need("template")
    scales = spec.flag("enableInTreeAutoscaling")
    added = [*sidecars, *([_autoscaler(spec)] if scales else [])]
    sets: list[tuple[str, int, Pod]] = [("head", 1, _with_containers(pod_of(template, thing.owner), added))]
    grown: list[tuple[str, Pod, int, int | None, Part]] = []
    for group in spec.items_at("workerGroupSpecs"):
        name = group.text("groupName") or ""
        if not name or any(name == each for each, _, _ in sets):
            raise group.fault("has no groupName" if not name else f'is the second group called "{name}"')
        pod = pod_of(group.need("template"), thing.owner)
        hosts = max(group.count("numOfHosts", 1), 1)
        least, most = group.count("minReplicas", 0), group.count("maxReplicas", MAX_INT32)
        now = 0 if group.flag("suspend") else min(max(group.count("replicas", 0), least), max(most, least))
        sets.append((name, now * hosts, pod))
        if scales and most > now and not group.flag("suspend"):
            known = None if group.at("maxReplicas") is None else most - now
            grown.append((name, pod, hosts, known, group))
    sets += [(name, count, thing.owner.with_queue(pod)) for name, count, pod in beside]
    run.add_gang(thing.name, sets, template.key_where)
    for name, pod, hosts, more, group in grown:
        said = "maxReplicas is not set" if more is None else f"maxReplicas is {group.count('maxReplicas', 0)}"
        why = f"the autoscaler decides how many workers group {name} has ({said})"
        run.add_copies(f"{thing.name}-{name}-autoscaled", pod, Unknown(why, more), group.where, pods=hosts)
    return run.demand(thing, only_at_most=suspended_reason(thing.spec, thing.owner.is_queued))


def _autoscaler(spec: Part) -> dict[str, Any]:
    options = spec.at("autoscalerOptions")
    given = None if options is None else options.at("resources")
    if given is None:
        return {"name": "autoscaler", "resources": {"requests": AUTOSCALER, "limits": AUTOSCALER}}
    resources: dict[str, Any] = {}
    for side in ("requests", "limits"):
        amounts = given.at(side)
        if amounts is not None:
            resources[side] = {key: str(amounts.need(key).quantity()) for key in amounts.mapping}
    return {"name": "autoscaler", "resources": resources}


def _with_containers(pod: Pod, containers: list[dict[str, Any]]) -> Pod:
    if not containers:
        return pod
    image = pod["spec"]["containers"][0].get("image", "ray")
    made = [{"image": image, **container} for container in containers]
    return {**pod, "spec": {**pod["spec"], "containers": [*pod["spec"]["containers"], *made]}}


TRIALS_AT_ONCE: Final = 3
TRIAL_PARAMETER: Final = re.compile(r"\$\{trialParameters\.([^}]*)\}")
RESOURCE_SIDES: Final = ("requests", "limits")


def experiment(thing: Object) -> Demand | PassiveObject:
    """So many trials, at most `parallelTrialCount` of them at once."""
    spec = thing.spec
    parallel = spec.count("parallelTrialCount", TRIALS_AT_ONCE, least=1)
    template = spec.need("trialTemplate")
    trial = template.at("trialSpec")
    if trial is None:
        source = template.need("configMap", what="and no trialSpec")
        return thing.unseen_demand("the template of its trials is in a ConfigMap, which is not read", source.where)
    values = _TrialValues(_known_values(spec, template))
    tree = values.fill(trial.value, trial)
    kind, group = kind_of(tree)
    if (kind, group) not in READERS:
        what = f"a {kind}" if kind else "an object without kind"
        return thing.unseen_demand(f"its trials are {what}, which gpuflow does not read", trial.where)
    if not isinstance(tree.get("metadata"), Mapping) or not tree["metadata"].get("name"):
        tree = with_entry(tree, "metadata", {**(tree.get("metadata") or {}), "name": "trial"})
    document = Document(tree, thing.document.file, kind, group, thing.document.index, thing.document.silenced)
    try:
        one = ForeignObject(document, thing.library).demand(replace(thing.options, engine="none"))
    except GpuflowError:
        if not values.open:
            raise
        names = ", ".join(sorted(values.open))
        return thing.unseen_demand(f"its trials depend on values that each trial gets anew: {names}", trial.where)
    if isinstance(one, PassiveObject):
        return thing.passive(f"its trials start nothing: {one.because}")
    return _demand_of_trials(thing, one, spec, parallel, values)


def _demand_of_trials(thing: Object, one: Demand, spec: Part, parallel: int, values: _TrialValues) -> Demand:
    # Without a bound trials follow each other until the goal is reached, never more at once than the first ones.
    most = None if spec.at("maxTrialCount") is None else spec.count("maxTrialCount", 1, least=1)

    def for_all_trials(step: StepDemand) -> StepDemand:
        total = None if most is None or step.copies is None else step.copies * most
        return replace(step, copies=total, is_sure=False)

    unseen = (
        *one.unseen,
        *(UnseenPart(thing.name, why, where, resource) for resource, (why, where) in values.resources.items()),
    )
    return replace(
        one,
        name=thing.name,
        steps=tuple(map(for_all_trials, one.steps)),
        graph=Dag({"trials": Loop("trials", one.graph, parallel if most is None else most, parallel)}),
        unseen=unseen,
        source=None,
    )


def _known_values(spec: Part, template: Part) -> dict[str, str]:
    """The trial parameters that have one value only, by their names."""
    fixed: dict[str, str] = {}
    for each in spec.items_at("parameters"):
        name, space = each.text("name"), each.at("feasibleSpace")
        if name and space is not None:
            listed = space.at("list")
            bounds = (space.text("min"), space.text("max"))
            if listed is not None and isinstance(listed.value, list) and len(listed.value) == 1:
                fixed[name] = str(listed.value[0])
            elif bounds[0] is not None and bounds[0] == bounds[1]:
                fixed[name] = bounds[0]
    found: dict[str, str] = {}
    for each in template.items_at("trialParameters"):
        name, reference = each.text("name"), each.text("reference")
        if name and reference in fixed:
            found[name] = fixed[reference]
    return found


@dataclass
class _TrialValues:
    """Puts known values into a trial. Amounts that each trial gets anew are taken out and remembered."""

    known: Mapping[str, str]
    open: set[str] = field(default_factory=set)
    resources: dict[str, tuple[str, Where]] = field(default_factory=dict)

    def fill(self, value: Any, part: Part) -> Any:
        if isinstance(value, yaml_tree.Map):
            made = yaml_tree.Map(value.spot)
            made.file, made.file_at = value.file, value.file_at
            made.key_at, made.value_at = value.key_at, value.value_at
            for key, item in value.items():
                if part.path[-2:-1] == ("resources",) and part.path[-1] in RESOURCE_SIDES and self._is_open(item):
                    where = part.below(key, item).where
                    self.resources[key] = (f"{key} is {item}, which each trial gets anew", where)
                    continue
                made[key] = self.fill(item, part.below(key, item))
            return made
        if isinstance(value, yaml_tree.Seq):
            listed = yaml_tree.Seq(value.spot)
            listed.item_at = value.item_at
            listed.extend(self.fill(item, part.below(index, item)) for index, item in enumerate(value))
            return listed
        if isinstance(value, Mapping):
            return {key: self.fill(item, part.below(key, item)) for key, item in value.items()}
        if isinstance(value, list):
            return [self.fill(item, part.below(index, item)) for index, item in enumerate(value)]
        return self._text(value) if isinstance(value, str) and "${trialParameters." in value else value

    def _is_open(self, value: object) -> bool:
        return isinstance(value, str) and any(name not in self.known for name in TRIAL_PARAMETER.findall(value))

    def _text(self, text: str) -> Any:
        """A text with the values in it. One that is nothing but a number becomes one, as Katib's own does."""
        self.open |= {name for name in TRIAL_PARAMETER.findall(text) if name not in self.known}
        made = TRIAL_PARAMETER.sub(lambda found: self.known.get(found[1], found[0]), text)
        return yaml_tree.parse_plain(made) if TRIAL_PARAMETER.fullmatch(text) and made != text else made
