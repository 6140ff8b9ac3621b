"""The kinds of objects that a gang can be: one row for each, and nothing else in the runtime knows them apart.

Who looks after a gang asks the row where the ranks are, which one is rank 0, whether it waits in a queue, and what its
controller does when a pod is lost. How it ended is judged in the same way for all of them, by what the pods show.
`PodSet` says how many pods are made from which template.
"""

from __future__ import annotations

import copy
from typing import Any, Callable, Mapping, NamedTuple  # noqa: UP035 (runs on Python 3.8)

from gpuflow.runtime.supervise import object_state


class PodSet(NamedTuple):
    """Pods of a gang that are made from one template."""

    name: str
    """As the label `GangKind.role` of the pods says it."""
    size: int
    template: dict[str, Any]
    tail: str
    """What follows the object's name in the longest name of a pod."""


def pod_sets_of_jobset(manifest: Mapping[str, Any]) -> list[PodSet]:
    """One for each replicated job."""
    found = []
    for each in manifest["spec"].get("replicatedJobs") or ():
        job, replicas = each["template"]["spec"], int(each.get("replicas", 1))
        most = int(job.get("parallelism", 1))
        pods = min(most, int(job.get("completions", most)))
        tail = f"-{each['name']}-{replicas - 1}-{pods - 1}-abcde"
        found.append(PodSet(str(each["name"]), replicas * pods, job["template"], tail))
    return found


def pod_sets_of_trainjob(manifest: Mapping[str, Any]) -> list[PodSet]:
    """Those of the JobSet in its runtime, which stands beside it as long as it is ours to make."""
    runtime = manifest.get("runtime")
    return pod_sets_of_jobset(runtime["spec"]["template"]) if runtime else []


def _numbered_set(name: str, given: Mapping[str, Any]) -> PodSet:
    """Pods whose names end with that of their set and a number."""
    count = int(given.get("replicas", 1))
    return PodSet(name, count, given["template"], f"-{name}-{count - 1}")


def pod_sets_of_pytorchjob(manifest: Mapping[str, Any]) -> list[PodSet]:
    """One for each role; ours has workers only."""
    roles = manifest["spec"].get("pytorchReplicaSpecs") or {}
    return [_numbered_set(role.lower(), each) for role, each in roles.items()]


def pod_sets_of_mpijob(manifest: Mapping[str, Any]) -> list[PodSet]:
    """The Launcher, which is a Job's pod, and the workers."""
    roles = manifest["spec"].get("mpiReplicaSpecs") or {}
    found = [_numbered_set(role.lower(), roles[role]) for role in ("Launcher", "Worker") if role in roles]
    return [each._replace(tail="-launcher-abcde") if each.name == "launcher" else each for each in found]


def pod_sets_of_volcano(manifest: Mapping[str, Any]) -> list[PodSet]:
    """One for each task."""
    return [_numbered_set(str(each["name"]), each) for each in manifest["spec"].get("tasks") or ()]


class Prerequisite(NamedTuple):
    """An object that must exist before the object of an attempt, has the same name, and is deleted with it."""

    key: str
    """Where it stands beside the object, as long as both are ours to make."""
    api_version: str
    plural: str
    tie: Callable[[dict[str, Any], str], None]
    """Lets the object refer to it by this name."""

    @property
    def group(self) -> str:
        return self.api_version.partition("/")[0]

    @property
    def version(self) -> str:
        return self.api_version.partition("/")[2]

    def folder(self, namespace: str) -> str:
        """The address of all of them in a namespace."""
        return object_state.path_of(self.api_version, namespace, self.plural)


class GangKind(NamedTuple):
    """What must be known of a kind to make, find, follow and delete a gang of it."""

    name: str
    """What it is called in sentences; no two have the same, but for who schedules them."""
    word: str
    """What a site calls it, and an operator of Airflow; with its scheduler, where they name one."""
    kind: str
    """As manifests name it: two groups may have the same."""
    api_version: str
    plural: str
    role: str
    """The label that says which set a pod belongs to."""
    rank: str
    """The label with the number of a pod in its set."""
    integration: str | None
    """What Kueue's configuration calls it; None: Kueue does not know the kind."""
    pod_sets: Callable[[Mapping[str, Any]], list[PodSet]]
    suspend: str | None = "spec.suspend"
    """The field by which Kueue holds it back; None: Kueue does not know the kind."""
    container: str = "main"
    """What the controller wants the program's container to be called."""
    has_jobs: bool = True
    """Whether its pods are those of Jobs, which write down why they failed. Otherwise it says so itself."""
    replaces_pods: bool = False
    """Whether its controller makes a lost pod anew. Restarts cannot be turned off then: a lost rank ends the attempt
    all the same, and the object is deleted."""
    refusals: tuple[tuple[str, str], ...] = (("Job", "FailedCreate"),)
    """Kind and reason of the events that say why a pod, or what makes it, could not be made."""
    service_for_each: bool = False
    """Whether every pod has a Service of its own; otherwise there is one for all."""
    as_job: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict
    """The object with its end in conditions like those of a Job, where it does not say it so."""
    removed_by_it: str | None = None
    """The annotation that its controller puts on pods before it deletes them."""
    queue: str | None = None
    """The field with the name of a queue that is not Kueue's: while it waits there, it has no pods."""
    beside: tuple[str, ...] = ()
    """Quota keys of what else its controller makes, once for each object."""
    sets: tuple[int, ...] = (1, 2)
    """Of how many sets of pods it can be made: two are a leader and its workers."""
    before: Prerequisite | None = None
    """What must be there first."""
    leading_job: str | None = None
    """What follows its name in that of the Job that makes its first pod, where it makes the others itself."""
    roles: tuple[str, str] = ("leader", "worker")
    """What the sets of pods are called: that of a leader, and that of workers."""
    label_is_rank: bool = False
    """Whether the label `rank` counts through both sets, and not in each from 0."""
    through: bool = False
    """Whether it makes a JobSet of its own name, which makes the pods."""
    deletion: str = "Foreground"
    """How it is deleted; `Foreground`: its pods go first."""
    leaves_all: bool = True
    """Whether what its controller makes stays until the object is deleted, and not only until it has ended."""
    scheduler: str | None = None
    """Who queues its pods and places all of them or none, where the site says so. Its queues are not Kueue's."""

    @property
    def group(self) -> str:
        return self.api_version.partition("/")[0]

    @property
    def version(self) -> str:
        return self.api_version.partition("/")[2]

    @property
    def pods(self) -> str:
        """The label by which its pods are found; the value is the object's name."""
        return object_state.PODS[self.name]

    @property
    def in_kueue(self) -> bool:
        """Whether the queue that a step names is one of Kueue's."""
        return self.integration is not None and self.scheduler is None

    @property
    def served_by(self) -> tuple[str, ...]:
        """The versions of the APIs that must be served for it to be made."""
        return (self.api_version, *([] if self.before is None else [self.before.api_version]))

    def templates(self, manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The pod templates, each with a container that has a name."""
        found = [each.template for each in self.pod_sets(manifest)]
        for each in found:
            each["spec"]["containers"][0]["name"]
        return found

    def split(self, manifest: Mapping[str, Any]) -> tuple[dict[str, Any] | None, dict[str, Any]]:
        """What must be there first, if anything, and the object itself, as the API server takes them."""
        made = dict(manifest)
        first = None if self.before is None else made.pop(self.before.key, None)
        if self.before is None or first is None:
            return None, made
        made = copy.deepcopy(made)
        metadata = made["metadata"]
        self.before.tie(made, metadata["name"])
        same = ("name", "namespace", "annotations", "ownerReferences")
        kept = {key: metadata[key] for key in same if key in metadata}
        # A queue is for the object alone.
        labels = {key: value for key, value in (metadata.get("labels") or {}).items() if not key.startswith("kueue.")}
        return {**first, "metadata": copy.deepcopy({**kept, "labels": labels})}, made

    def jobset_spec(self, manifest: Mapping[str, Any]) -> Mapping[str, Any]:
        """Where the fields of a JobSet are, if it has any."""
        inside = (manifest.get("runtime") or {}) if self.through else None
        found: Mapping[str, Any] = manifest["spec"] if inside is None else inside["spec"]["template"]["spec"]
        return found

    def first_ranks(self, manifest: Mapping[str, Any]) -> dict[str, int]:
        """What is added to the label of a pod to have its rank: 0 for the leader, and 1 for its workers, mostly."""
        found, rank = {}, 0
        for each in self.pod_sets(manifest):
            found[each.name] = 0 if self.label_is_rank else rank
            rank += each.size
        return found

    def is_suspended(self, document: Mapping[str, Any]) -> bool:
        return self.suspend is not None and object_state.value_at(document, self.suspend) is True


_ENDING = ("Restarting", "Aborting", "Aborted", "Terminating", "Terminated", "Failed")
"""Phases of a Volcano Job in which it does no more work, or not with these pods."""


def _volcano_as_job(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Volcano notes each phase with its time, and says nothing of the cause: only pods do."""
    status = document.get("status") or {}
    state = status.get("state") or {}
    if state.get("phase") not in _ENDING:
        return document
    rows = [row for row in status.get("conditions") or () if row.get("status") in _ENDING]
    failed = {
        "type": "Failed",
        "status": "True",
        "reason": f"Volcano{state['phase']}",
        "message": state.get("message") or "",
        "lastTransitionTime": (rows or [state])[0].get("lastTransitionTime") or "",
    }
    return {**document, "status": {"conditions": [failed]}}


GROUP = "scheduling.k8s.io/group-name"
"""The annotation of a pod by which Volcano's scheduler knows its PodGroup."""


def _join_group(made: dict[str, Any], name: str) -> None:
    for each in pod_sets_of_jobset(made):
        metadata = each.template.setdefault("metadata", {})
        metadata["annotations"] = {**(metadata.get("annotations") or {}), GROUP: name}


RUNTIME = Prerequisite(
    *("runtime", "trainer.kubeflow.org/v1alpha1", "trainingruntimes"),
    lambda made, name: made["spec"]["runtimeRef"].update(name=name),
)
POD_GROUP = Prerequisite("podGroup", "scheduling.volcano.sh/v1beta1", "podgroups", _join_group)

JOBSET = GangKind(
    *("JobSet", "jobset", "JobSet", "jobset.x-k8s.io/v1alpha2", "jobsets"),
    role="jobset.sigs.k8s.io/replicatedjob-name",
    rank="batch.kubernetes.io/job-completion-index",
    integration="jobset.x-k8s.io/jobset",
    pod_sets=pod_sets_of_jobset,
)
_BESIDE = ("count/podgroups.scheduling.volcano.sh",)
JOBSET_BY_VOLCANO = JOBSET._replace(word="jobset+volcano", scheduler="volcano", before=POD_GROUP, beside=_BESIDE)
"""A JobSet whose pods Volcano places, all of them or none: they are of one PodGroup, which is made before it."""
PYTORCHJOB = GangKind(
    *("PyTorchJob", "pytorchjob", "PyTorchJob", "kubeflow.org/v1", "pytorchjobs"),
    role="training.kubeflow.org/replica-type",
    rank="training.kubeflow.org/replica-index",
    integration="kubeflow.org/pytorchjob",
    pod_sets=pod_sets_of_pytorchjob,
    suspend="spec.runPolicy.suspend",
    container="pytorch",
    has_jobs=False,
    replaces_pods=True,
    refusals=(("PyTorchJob", "FailedCreatePod"),),
    service_for_each=True,
    sets=(1,),
)
TRAINJOB = GangKind(
    *("TrainJob", "trainjob", "TrainJob", "trainer.kubeflow.org/v1alpha1", "trainjobs"),
    role=JOBSET.role,
    rank=JOBSET.rank,
    integration="trainer.kubeflow.org/trainjob",
    pod_sets=pod_sets_of_trainjob,
    container="node",
    refusals=(("Job", "FailedCreate"), ("TrainJob", "TrainJobResourcesCreationFailed")),
    beside=(
        *("count/trainingruntimes.trainer.kubeflow.org", "count/jobsets.jobset.x-k8s.io"),
        *("configmaps", "count/configmaps"),
    ),
    before=RUNTIME,
    through=True,
    # Trainer refuses every change of a TrainJob whose runtime is gone, also the last one of a deletion that waits for
    # what the TrainJob owns: it would never end.
    deletion="Background",
)
VOLCANO = GangKind(
    *("Volcano Job", "volcano", "Job", "batch.volcano.sh/v1alpha1", "jobs"),
    role="volcano.sh/task-spec",
    rank="volcano.sh/task-index",
    integration=None,
    pod_sets=pod_sets_of_volcano,
    suspend=None,
    has_jobs=False,
    as_job=_volcano_as_job,
    removed_by_it="volcano.sh/controller-out-of-sync",
    queue="spec.queue",
    beside=("configmaps", "count/configmaps", *_BESIDE),
    leaves_all=False,
)
MPIJOB = GangKind(
    *("MPIJob", "mpijob", "MPIJob", "kubeflow.org/v2beta1", "mpijobs"),
    role="training.kubeflow.org/job-role",
    rank=PYTORCHJOB.rank,
    integration="kubeflow.org/mpijob",
    pod_sets=pod_sets_of_mpijob,
    suspend="spec.runPolicy.suspend",
    replaces_pods=True,
    refusals=(("MPIJob", "MPIJobFailed"), ("MPIJob", "ValidationError"), ("Job", "FailedCreate")),
    beside=("configmaps", "count/configmaps", "secrets", "count/secrets"),
    sets=(2,),
    leading_job="-launcher",
    roles=("launcher", "worker"),
    label_is_rank=True,
)
KINDS = {each.name: each for each in (JOBSET, TRAINJOB, PYTORCHJOB, MPIJOB, VOLCANO)}
"""By what each is called."""
WORDS = {each.word: each for each in (*KINDS.values(), JOBSET_BY_VOLCANO)}
"""By the words that a site says it with, as does an operator of Airflow."""


def word_of(kind: str, scheduler: str | None) -> str:
    """The word for a kind and who schedules it."""
    return kind if scheduler is None else f"{kind}+{scheduler}"


def kind_of(manifest: Mapping[str, Any]) -> GangKind | None:
    """The kind of an object, by its kind and its group, and by what stands beside it; None where it can be no gang."""
    group = str(manifest.get("apiVersion") or "").partition("/")[0]
    rows = [each for each in WORDS.values() if (each.kind, each.group) == (manifest.get("kind"), group)]
    whole = [each for each in rows if each.before is not None and each.before.key in manifest]
    return next(iter((*whole, *rows)), None)


def kind_of_integration(integration: str | None) -> GangKind:
    """The kind of a Kueue integration; JobSet when it is not given."""
    found = (each for each in KINDS.values() if integration is not None and each.integration == integration)
    return next(found, JOBSET)
