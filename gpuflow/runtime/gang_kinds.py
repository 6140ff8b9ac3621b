"""The kinds of objects that a gang can be: one row for each, and nothing else in the runtime knows them apart.

Who looks after a gang asks the row where the ranks are, which one is rank 0, whether it waits in a queue, and what its
controller does when a pod is lost. How it ended is judged in the same way for all of them, by what the pods show.
"""

from __future__ import annotations

from typing import Any, Callable, Mapping, NamedTuple  # noqa: UP035 (runs on Python 3.8)

from gpuflow.runtime import object_state


class PodSet(NamedTuple):
    """Pods of a gang that are made from one template."""

    name: str
    """As the label `GangKind.role` of the pods says it."""
    size: int
    template: dict[str, Any]
    tail: str
    """What follows the object's name in the longest name of a pod."""


class GangKind(NamedTuple):
    """What must be known of a kind to make, find, follow and delete a gang of it."""

    name: str
    api_version: str
    plural: str
    pods: str
    """The label by which its pods are found; the value is the object's name."""
    role: str
    """The label that says which set a pod belongs to."""
    rank: str
    """The label with the number of a pod in its set."""
    suspend: str
    """The field by which Kueue holds it back."""
    container: str
    """What the controller wants the program's container to be called."""
    has_jobs: bool
    """Whether its pods are those of Jobs, which write down why they failed. Otherwise it says so itself."""
    replaces_pods: bool
    """Whether its controller makes a lost pod anew. Restarts cannot be turned off then: a lost rank ends the attempt
    all the same, and the object is deleted."""
    refusals: tuple[str, str]
    """Kind and reason of the events that say why a pod could not be made."""
    integration: str
    """What Kueue's configuration calls it."""
    service_for_each: bool
    """Whether every pod has a Service of its own; otherwise there is one for all."""
    pod_sets: Callable[[Mapping[str, Any]], list[PodSet]]

    @property
    def group(self) -> str:
        return self.api_version.partition("/")[0]

    @property
    def version(self) -> str:
        return self.api_version.partition("/")[2]

    def templates(self, manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The pod templates, each with a container that has a name."""
        found = [each.template for each in self.pod_sets(manifest)]
        for each in found:
            each["spec"]["containers"][0]["name"]
        return found

    def first_ranks(self, manifest: Mapping[str, Any]) -> dict[str, int]:
        """The rank of the first pod of each set: the leader's is 0, and those of its workers begin at 1."""
        found, rank = {}, 0
        for each in self.pod_sets(manifest):
            found[each.name] = rank
            rank += each.size
        return found

    def is_suspended(self, document: Mapping[str, Any]) -> bool:
        return object_state.found(document, self.suspend) is True


def _of_jobset(manifest: Mapping[str, Any]) -> list[PodSet]:
    found = []
    for each in manifest["spec"].get("replicatedJobs") or ():
        job, replicas = each["template"]["spec"], int(each.get("replicas", 1))
        most = int(job.get("parallelism", 1))
        pods = min(most, int(job.get("completions", most)))
        tail = f"-{each['name']}-{replicas - 1}-{pods - 1}-abcde"
        found.append(PodSet(str(each["name"]), replicas * pods, job["template"], tail))
    return found


def _of_pytorchjob(manifest: Mapping[str, Any]) -> list[PodSet]:
    found = []
    for role, each in (manifest["spec"].get("pytorchReplicaSpecs") or {}).items():
        count = int(each.get("replicas", 1))
        found.append(PodSet(role.lower(), count, each["template"], f"-{role.lower()}-{count - 1}"))
    return found


JOBSET = GangKind(
    "JobSet",
    "jobset.x-k8s.io/v1alpha2",
    "jobsets",
    pods=object_state.PODS["JobSet"],
    role="jobset.sigs.k8s.io/replicatedjob-name",
    rank="batch.kubernetes.io/job-completion-index",
    suspend="spec.suspend",
    container="main",
    has_jobs=True,
    replaces_pods=False,
    refusals=("Job", "FailedCreate"),
    integration="jobset.x-k8s.io/jobset",
    service_for_each=False,
    pod_sets=_of_jobset,
)
PYTORCHJOB = GangKind(
    "PyTorchJob",
    "kubeflow.org/v1",
    "pytorchjobs",
    pods=object_state.PODS["PyTorchJob"],
    role="training.kubeflow.org/replica-type",
    rank="training.kubeflow.org/replica-index",
    suspend="spec.runPolicy.suspend",
    container="pytorch",
    has_jobs=False,
    replaces_pods=True,
    refusals=("PyTorchJob", "FailedCreatePod"),
    integration="kubeflow.org/pytorchjob",
    service_for_each=True,
    pod_sets=_of_pytorchjob,
)
KINDS = {each.name: each for each in (JOBSET, PYTORCHJOB)}
"""By the kind that a manifest names. One that is not here is refused."""
WORDS = {each.name.lower(): each for each in KINDS.values()}
"""By the word that a site says it with, as does an operator of Airflow."""


def queued_as(integration: str | None) -> GangKind:
    """The kind that Kueue calls so; a JobSet where nobody says."""
    return next((each for each in KINDS.values() if each.integration == integration), JOBSET)
