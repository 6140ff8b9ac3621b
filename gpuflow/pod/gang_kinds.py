"""The kinds of objects that a gang can be, how each is made from the pod of a rank, and the table of all of them.

The site names one (`gangs.kind`, `gangs.scheduler`). What the runtime must know of each is in
`gpuflow.runtime.gang_kinds`. A kind is in the table when gpuflow makes it, follows it, judges its end, counts it in a
check and deletes it. None restarts anything by itself.

- JobSet: one Job whose pods are the ranks, or one for the leader and one for its workers.
- PyTorchJob of Kubeflow's training operator (v1): all ranks are its workers, and worker 0 is rank 0. Without a Master
  the operator takes all ranks alike: it is done when all have succeeded, a rank's number is its index, and the operator
  adds no init container.
- TrainJob of Kubeflow Trainer (v2): it names a TrainingRuntime, in which the whole JobSet is written, because a
  TrainJob alone cannot say all of a pod and restarts what its runtime allows. Each attempt has a runtime of its own,
  made before it and deleted with it. The runtime has no `mlPolicy`: Trainer then leaves the number of pods and their
  variables as they are.
- MPIJob of Kubeflow's MPI operator: its Launcher is the gang's leader, its Workers are the workers. Every pod runs its
  own program under `gpuflow-run`. Nobody uses the operator's keys and host file: no sshd runs.
- Job of Volcano: one task whose pods are the ranks, or one for the leader and one for its workers. Volcano's scheduler
  starts all of its pods or none, in a queue of Volcano's own, without Kueue. `TerminateJob`, not `AbortJob`: pods that
  have ended stay in both cases, but only a terminated Job is removed after its time, and nobody can resume it.
- JobSet with a PodGroup of Volcano's: it waits in no queue of Kueue's. The pods are there from the start and wait for
  Volcano, which knows their PodGroup by an annotation, moves it from Pending to Inqueue by itself, and places no pod
  before there are `minMember` of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from gpuflow.core.errors import fail
from gpuflow.kubernetes.labels import LEADER, QUEUE_LABEL, QUEUE_PRIORITY_LABEL, WORKERS
from gpuflow.runtime.gangs.kinds import (
    JOBSET,
    JOBSET_BY_VOLCANO,
    MPIJOB,
    POD_GROUP,
    PYTORCHJOB,
    TRAINJOB,
    VOLCANO,
    GangKind,
)
from gpuflow.spec.step import Step

MAIN_CONTAINER = "main"
"""What a pod of ours calls the program's container."""
SECONDS_KEPT = 86400
"""The seconds that an ended gang is kept: a launcher that comes back reads from it how it ended."""


class Parts(NamedTuple):
    """The template of the pods, and what belongs to the object instead."""

    template: dict[str, Any]
    labels: dict[str, str]
    queued: dict[str, str]
    """The labels by which Kueue takes it in."""
    deadline: int | None


def parts_of(pod: Mapping[str, Any]) -> Parts:
    labels = dict(pod["metadata"].get("labels", {}))
    # Kueue takes an object in as a whole by the label of the object; on its pods it would take each pod for itself.
    queued = {key: labels.pop(key) for key in (QUEUE_LABEL, QUEUE_PRIORITY_LABEL) if key in labels}
    metadata = {"labels": labels, "annotations": pod["metadata"].get("annotations")}
    template = {"metadata": {key: value for key, value in metadata.items() if value}, "spec": dict(pod["spec"])}
    return Parts(template, labels, queued, template["spec"].pop("activeDeadlineSeconds", None))


def named_for(kind: GangKind, pod: Mapping[str, Any]) -> dict[str, Any]:
    """The pod with the program's container called as the kind wants it; no other has that name."""
    spec = pod["spec"]
    for each in (*spec["containers"], *spec.get("initContainers", ())):
        if each["name"] == kind.container:
            text = f'a {kind.name} calls the program\'s container "{kind.container}", and another one has that name'
            raise fail("GF408", text, hint="give the helper another name")
    renamed = [
        {**each, "name": kind.container} if each["name"] == MAIN_CONTAINER else dict(each)
        for each in spec["containers"]
    ]
    return {**pod, "spec": {**spec, "containers": renamed}}


def _object(kind: GangKind, labels: Mapping[str, str], spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"labels": dict(labels)}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}


def _run_policy(queued: Mapping[str, str], deadline: int | None, **own: Any) -> dict[str, Any]:
    """What Kubeflow's operators are told of a whole attempt."""
    policy = {**({"suspend": True} if queued else {}), **own, "cleanPodPolicy": "Running"}
    policy["ttlSecondsAfterFinished"] = SECONDS_KEPT
    return policy if deadline is None else {**policy, "activeDeadlineSeconds": deadline}


def _replicas(template: dict[str, Any], count: int) -> dict[str, Any]:
    # The kind says it for its pods, and warns about every pod that says it too.
    restarts = template["spec"].pop("restartPolicy", "Never")
    return {"replicas": count, "restartPolicy": restarts, "template": template}


JOBSET_RANK = f"metadata.annotations['{JOBSET.rank}']"
JOBSET_COORDINATOR = "metadata.annotations['jobset.sigs.k8s.io/coordinator']"
"""Where JobSet writes the host name of rank 0."""
FINAL_EXIT_CODE = 79
"""The supervisor's word for "final". As a rule it restarts nothing: the Job notes it, where it outlives the pods.

There is none for "interrupted" (75), with which ranks end that are told to stop: a Job that Kueue suspends would fail
by it, and could not come back.
"""


def jobset_of(
    pod: Mapping[str, Any], workers: int, leader: Mapping[str, Any] | None = None, container: str = JOBSET.container
) -> dict[str, Any]:
    """One attempt as a JobSet, of the pod of each worker. Beside a leader, rank 0, there are two Jobs.

    `container`: what the program's container is called.
    """
    template, labels, queued, deadline = parts_of(pod)
    jobs = [_job(WORKERS, workers, template, deadline, container)]
    if leader is not None:
        first = parts_of(leader)
        jobs.insert(0, _job(LEADER, 1, first.template, first.deadline, container))
    spec = {
        **({"suspend": True} if queued else {}),
        "coordinator": {"replicatedJob": jobs[0]["name"], "jobIndex": 0, "podIndex": 0},
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
        "successPolicy": {"operator": "All", "targetReplicatedJobs": [job["name"] for job in jobs]},
        "failurePolicy": {"maxRestarts": 0, "restartStrategy": "BlockingRecreate"},
        "ttlSecondsAfterFinished": SECONDS_KEPT,
        "replicatedJobs": jobs,
    }
    return _object(JOBSET, {**labels, **queued}, spec)


def _job(name: str, pods: int, template: Mapping[str, Any], deadline: int | None, container: str) -> dict[str, Any]:
    final = {
        "action": "FailJob",
        "onExitCodes": {"containerName": container, "operator": "In", "values": [FINAL_EXIT_CODE]},
    }
    disrupted = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    spec = {
        "parallelism": pods,
        "completions": pods,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        # Two pods of one rank never overlap.
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {"rules": [final, disrupted]},
        **({} if deadline is None else {"activeDeadlineSeconds": deadline}),
        "template": dict(template),
    }
    return {"name": name, "replicas": 1, "template": {"spec": spec}}


PYTORCHJOB_REPLICAS = "Worker"
PYTORCHJOB_RANK = f"metadata.labels['{PYTORCHJOB.rank}']"
PYTORCHJOB_LEADER_HOST = "$(GPUFLOW_GANG)-worker-0"
"""The Service of worker 0, which is named like its pod. The kubelet fills in the name of the gang."""
REMOVE_THE_LEADER = "set gangs.kind: jobset in the site, or count the leader among the workers: rank 0"
PROCESSES = "PET_NPROC_PER_NODE"


PYTORCHJOB_HAS_NO_LEADER = (
    "beside a Master the training operator puts an init container into every worker, which gives up after "
    "about 200 seconds: a gang that waits for a node would fail"
)


def pytorchjob_of(pod: Mapping[str, Any], workers: int, leader: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """One attempt as a PyTorchJob, of the pod of each rank."""
    if leader is not None:
        raise fail("GF408", f"a PyTorchJob has no leader: {PYTORCHJOB_HAS_NO_LEADER}", hint=REMOVE_THE_LEADER)
    template, labels, queued, deadline = parts_of(named_for(PYTORCHJOB, pod))
    processes = _processes(template["spec"]["containers"][0])
    spec = {
        # The operator sets the variable after ours, so that this value counts.
        **({} if processes is None else {"nprocPerNode": processes}),
        # Not `backoffLimit: 0`, which would delete the other ranks before it says that one has failed: without any, and
        # with `Never`, a failed pod is not started again.
        "runPolicy": _run_policy(queued, deadline),
        "pytorchReplicaSpecs": {PYTORCHJOB_REPLICAS: _replicas(template, workers)},
    }
    return _object(PYTORCHJOB, {**labels, **queued}, spec)


def _processes(container: Mapping[str, Any]) -> str | None:
    values = [each.get("value") for each in container.get("env", ()) if each["name"] == PROCESSES]
    return values[-1] if values else None


RUNTIME = "TrainingRuntime"
ANCESTOR = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
"""The label by which Trainer, and those who look at TrainJobs, find the Job that trains."""


def trainjob_of(pod: Mapping[str, Any], workers: int, leader: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """One attempt as a TrainJob, with its runtime beside it as `runtime`: whoever makes it takes them apart."""
    first = None if leader is None else named_for(TRAINJOB, leader)
    jobset = jobset_of(named_for(TRAINJOB, pod), workers, first, TRAINJOB.container)
    suspended = jobset["spec"].pop("suspend", False)
    for each in jobset["spec"]["replicatedJobs"]:
        if each["name"] == WORKERS:
            each["template"]["metadata"] = {"labels": dict(ANCESTOR)}
    return {
        "apiVersion": TRAINJOB.api_version,
        "kind": TRAINJOB.kind,
        "metadata": jobset["metadata"],
        "spec": {
            **({"suspend": True} if suspended else {}),
            # Whoever makes it fills in the name, which is its own.
            "runtimeRef": {"apiGroup": TRAINJOB.group, "kind": RUNTIME, "name": ""},
        },
        "runtime": {
            "apiVersion": TRAINJOB.api_version,
            "kind": RUNTIME,
            "spec": {"template": {"spec": jobset["spec"]}},
        },
    }


MPIJOB_RANK = f"metadata.labels['{MPIJOB.rank}']"
MPIJOB_LEADER_HOST = "$(GPUFLOW_GANG)-launcher.$(GPUFLOW_GANG)"
"""The host of the Launcher, in the Service of the MPIJob. The kubelet fills in the name of the gang."""
SSH_KEYS = "/etc/gpuflow-ssh"
"""Where the operator's keys are mounted: by default that would be over the keys that the image has for root."""
MPIJOB_NEEDS_LEADER = "an MPIJob has a Launcher, which is the gang's leader, and this gang has none"
ADD_A_LEADER = "write leader: true for one more pod, with one worker less, or set gangs.kind: jobset in the site"


def mpijob_of(pod: Mapping[str, Any], workers: int, leader: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """One attempt as an MPIJob, of the pod of each worker and that of the leader."""
    if leader is None:
        raise fail("GF408", MPIJOB_NEEDS_LEADER, hint=ADD_A_LEADER)
    first, labels, queued, deadline = parts_of(leader)
    spec = {
        # Without it the Launcher has no number, and the operator hides the node's GPUs from it.
        "runLauncherAsWorker": True,
        # All pods wait for each other by themselves, and are never ready before.
        "launcherCreationPolicy": "AtStartup",
        "sshAuthMountPath": SSH_KEYS,
        "runPolicy": _run_policy(queued, deadline, backoffLimit=0),
        "mpiReplicaSpecs": {"Launcher": _replicas(first, 1), "Worker": _replicas(parts_of(pod).template, workers)},
    }
    return _object(MPIJOB, {**labels, **queued}, spec)


VOLCANO_RANK = f"metadata.labels['{VOLCANO.rank}']"
SCHEDULER = "volcano"
NO_QUEUE_PRIORITY = "a queue of Volcano's has no priority of Kueue's: priority.queue would be lost"
WITHOUT_QUEUE_PRIORITY = (
    "use priority.pod, by which Volcano orders its queues, or let gangs of the site be JobSets that the cluster's own "
    "scheduler places"
)


def vcjob_of(pod: Mapping[str, Any], workers: int, leader: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """One attempt as a Job of Volcano, of the pod of each worker. Beside a leader, rank 0, there are two tasks."""
    parts = parts_of(pod)
    tasks = [_task(WORKERS, workers, pod)]
    if leader is not None:
        tasks.insert(0, _task(LEADER, 1, leader))
    spec = {
        "schedulerName": pod["spec"].get("schedulerName") or SCHEDULER,
        **queued_fields(pod),
        "minAvailable": sum(task["replicas"] for task in tasks),
        # Nothing is ever restarted; 0 would become 3.
        "maxRetry": 1,
        # One policy for both: a pod that is evicted also fails, and the order of two would decide.
        "policies": [{"events": ["PodEvicted", "PodFailed"], "action": "TerminateJob"}],
        # Ranks are never ready before they have met. A policy of the network is for whoever owns the namespace.
        "plugins": {"svc": ["--publish-not-ready-addresses=true", "--disable-network-policy=true"]},
        "ttlSecondsAfterFinished": SECONDS_KEPT,
        "tasks": tasks,
    }
    return _object(VOLCANO, parts.labels, spec)


def queued_fields(pod: Mapping[str, Any]) -> dict[str, str]:
    """Where Volcano queues a gang and before whom: fields of its Job, and of its PodGroup."""
    labels = pod["metadata"].get("labels", {})
    if QUEUE_PRIORITY_LABEL in labels:
        raise fail("GF408", NO_QUEUE_PRIORITY, hint=WITHOUT_QUEUE_PRIORITY)
    found = {"queue": labels.get(QUEUE_LABEL), "priorityClassName": pod["spec"].get("priorityClassName")}
    return {key: value for key, value in found.items() if value}


def pod_in_volcano(pod: Mapping[str, Any]) -> dict[str, Any]:
    """A rank's pod as Volcano makes it: in no queue of Kueue's."""
    metadata = pod["metadata"]
    own = metadata.get("labels", {})
    labels = {key: value for key, value in own.items() if key not in (QUEUE_LABEL, QUEUE_PRIORITY_LABEL)}
    return {**pod, "metadata": {**metadata, "labels": labels}, "spec": {"schedulerName": SCHEDULER, **pod["spec"]}}


def _task(name: str, pods: int, pod: Mapping[str, Any]) -> dict[str, Any]:
    parts = parts_of(pod)
    # Volcano has no deadline for a whole Job: each of its pods has one.
    deadline = {} if parts.deadline is None else {"activeDeadlineSeconds": parts.deadline}
    template = {**parts.template, "spec": {**parts.template["spec"], **deadline}}
    return {"name": name, "replicas": pods, "minAvailable": pods, "template": template}


POD_GROUP_KIND = "PodGroup"


def jobset_with_podgroup(
    pod: Mapping[str, Any], workers: int, leader: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """One attempt as a JobSet, with its PodGroup beside it: whoever makes them takes them apart, and names both.

    The PodGroup has no `minResources`. Volcano needs none to start a gang whole: `minMember` does that, and what the
    queue may use is kept pod by pod. It is for objects whose pods come later. Here it would do harm: the plugin
    resourcequota adds it to what the quota is charged with already for the very pods, and may then never let them
    start; and a PodGroup falls back to Inqueue when its attempt has ended, and would take its part of the queue for as
    long as the JobSet is kept. So it need not follow what later attempts ask for, either.
    """
    first = None if leader is None else pod_in_volcano(leader)
    return {
        **jobset_of(pod_in_volcano(pod), workers, first),
        POD_GROUP.key: {
            "apiVersion": POD_GROUP.api_version,
            "kind": POD_GROUP_KIND,
            "spec": {"minMember": workers + (leader is not None), **queued_fields(pod)},
        },
    }


Refusal = tuple[tuple[str, ...], str, str]
"""The field, what is wrong with it, and the way out."""


class SpelledKind(NamedTuple):
    """One kind: what it is made of, and how its ranks learn who they are."""

    kind: GangKind
    build: Callable[[Mapping[str, Any], int, Mapping[str, Any] | None], dict[str, Any]]
    """From the pod of each worker, how many there are, and the pod of the leader, if there is one."""
    rank: str
    """The field of a pod that has its number."""
    leader: Callable[[str], dict[str, Any]]
    """The host of rank 0, as a variable of a container says it, by the name of the set of pods that it is in."""
    needs: str
    """What the cluster must have."""
    notes: str
    """What a reader should know who knows JobSets."""
    refusals: Callable[[Step], Iterator[Refusal]] = lambda step: iter(())
    """What a step cannot have whose gang is of this kind, beside its shape."""
    as_made: Callable[[Mapping[str, Any]], dict[str, Any]] = dict
    """The pod of a rank as a check looks at it, where the kind makes it different from what the step says."""

    @property
    def plural(self) -> str:
        return f"{self.kind.name}s"

    @property
    def rules(self) -> list[dict[str, Any]]:
        """What whoever looks after it must be allowed, beside looking at pods.

        patch: how an attempt ended is noted on it, so that a launcher that comes back need not judge again.
        """
        verbs = ["create", "get", "list", "patch", "delete"]
        plurals = {self.kind.group: [self.kind.plural]}
        if self.kind.before is not None:
            plurals.setdefault(self.kind.before.group, []).append(self.kind.before.plural)
        own = [{"apiGroups": [group], "resources": names, "verbs": list(verbs)} for group, names in plurals.items()]
        inner = {"apiGroups": [JOBSET.group], "resources": [JOBSET.plural], "verbs": ["get"]}
        jobs = {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "list"]}
        return [*own, *([inner] if self.kind.through else []), *([jobs] if self.kind.has_jobs else [])]


def _field(path: str) -> dict[str, Any]:
    return {"valueFrom": {"fieldRef": {"fieldPath": path}}}


def shape_problem(kind: GangKind, *, leads: bool) -> tuple[str, str] | None:
    """Why a gang with or without a leader cannot be of this kind, and the way out."""
    return None if (2 if leads else 1) in kind.sets else _SHAPES[kind.name]


_SHAPES = {
    MPIJOB.name: (MPIJOB_NEEDS_LEADER, ADD_A_LEADER),
    PYTORCHJOB.name: (f"a PyTorchJob has no leader: {PYTORCHJOB_HAS_NO_LEADER}", REMOVE_THE_LEADER),
}


def claims_of_the_run(step: Step, engine: str) -> Iterator[Refusal]:
    """Claims that an engine makes for a run, and mounts in no pod but its own."""
    for path, volume in step.volumes.items():
        if volume.new_claim is not None:
            made = f'{engine} mounts "{volume.new_claim}", which it makes for the run, in its own pods'
            yield ("volumes", path), made, "use a claim that is there before the run"


def refusals_of(step: Step, kind: str) -> Iterator[Refusal]:
    """What a gang of this kind cannot have."""
    of = SPELLINGS[kind]
    wrong = None if step.gang is None else shape_problem(of.kind, leads=step.gang.leader is not None)
    if wrong is not None:
        yield ("gang", "leader"), *wrong
    yield from of.refusals(step)


def _no_queue_priority(step: Step) -> Iterator[Refusal]:
    if step.priority is not None and step.priority.queue is not None:
        yield ("priority", "queue"), NO_QUEUE_PRIORITY, WITHOUT_QUEUE_PRIORITY


DEFAULT = "jobset"
SPELLINGS: dict[str, SpelledKind] = {
    DEFAULT: SpelledKind(JOBSET, jobset_of, JOBSET_RANK, lambda first: _field(JOBSET_COORDINATOR), "JobSet 0.12", ""),
    "pytorchjob": SpelledKind(
        PYTORCHJOB,
        pytorchjob_of,
        PYTORCHJOB_RANK,
        lambda first: {"value": PYTORCHJOB_LEADER_HOST},
        "Kubeflow's training operator 1.9",
        "whose controller sets PET_NNODES and PET_NPROC_PER_NODE itself, and makes a lost pod anew until the attempt "
        "is deleted",
    ),
    "trainjob": SpelledKind(
        TRAINJOB,
        trainjob_of,
        JOBSET_RANK,
        lambda first: _field(JOBSET_COORDINATOR),
        "Kubeflow Trainer 2.3 and JobSet 0.12",
        "with a TrainingRuntime of its own, and nothing removes one that has ended but who deletes it, or what owns it",
    ),
    "mpijob": SpelledKind(
        MPIJOB,
        mpijob_of,
        MPIJOB_RANK,
        lambda first: {"value": MPIJOB_LEADER_HOST},
        "Kubeflow's MPI operator 0.8",
        "whose operator makes a lost worker anew until the attempt is deleted, and adds keys, a host file and "
        "variables for mpirun that gpuflow does not use. Nothing removes one that has ended but who deletes it, or "
        "what owns it",
    ),
    "volcano": SpelledKind(
        VOLCANO,
        vcjob_of,
        VOLCANO_RANK,
        lambda first: {"value": f"$(GPUFLOW_GANG)-{first}-0.$(GPUFLOW_GANG)"},
        "Volcano 1.14",
        "which waits in a queue of Volcano's and not of Kueue's. A preemption there is an interruption, and Volcano "
        "gives a gang up of which a quota refuses a pod",
        _no_queue_priority,
        as_made=pod_in_volcano,
    ),
    JOBSET_BY_VOLCANO.word: SpelledKind(
        JOBSET_BY_VOLCANO,
        jobset_with_podgroup,
        JOBSET_RANK,
        lambda first: _field(JOBSET_COORDINATOR),
        "JobSet 0.12 and Volcano 1.14",
        "whose pods Volcano's scheduler places all together or not at all, by a PodGroup, in a queue of Volcano's and "
        "not of Kueue's. A preemption there is an interruption",
        _no_queue_priority,
        as_made=pod_in_volcano,
    ),
}
"""By the words of the site: `gangs.kind`, and `gangs.scheduler` where it says one."""
