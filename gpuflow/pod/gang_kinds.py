"""The kinds of objects that a gang can be, as they are compiled: the site names one (`gangs.kind`, `gangs.scheduler`).

What the runtime must know of each is in `gpuflow.runtime.gang_kinds`. A kind is here when it is whole: made, accepted,
followed, judged, counted by the check and deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from gpuflow.pod import gang_jobset, gang_mpijob, gang_podgroup, gang_pytorchjob, gang_trainjob, gang_volcano
from gpuflow.runtime.gang_kinds import JOBSET, JOBSET_BY_VOLCANO, MPIJOB, PYTORCHJOB, TRAINJOB, VOLCANO, GangKind
from gpuflow.spec.step import Step

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
    MPIJOB.name: (gang_mpijob.ONLY_WITH_LEADER, gang_mpijob.WITH_LEADER),
    PYTORCHJOB.name: (f"a PyTorchJob has no leader: {gang_pytorchjob.NO_LEADER}", gang_pytorchjob.WITHOUT_LEADER),
}


def refusals_of(step: Step, kind: str) -> Iterator[Refusal]:
    """What a gang of this kind cannot have."""
    of = SPELLINGS[kind]
    wrong = None if step.gang is None else shape_problem(of.kind, leads=step.gang.leader is not None)
    if wrong is not None:
        yield ("gang", "leader"), *wrong
    yield from of.refusals(step)


def _no_queue_priority(step: Step) -> Iterator[Refusal]:
    if step.priority is not None and step.priority.queue is not None:
        yield ("priority", "queue"), gang_volcano.NO_QUEUE_PRIORITY, gang_volcano.WITHOUT_QUEUE_PRIORITY


DEFAULT = "jobset"
SPELLINGS: dict[str, SpelledKind] = {
    DEFAULT: SpelledKind(
        JOBSET,
        gang_jobset.jobset_of,
        gang_jobset.RANK,
        lambda first: _field(gang_jobset.COORDINATOR),
        "JobSet 0.12",
        "",
    ),
    "pytorchjob": SpelledKind(
        PYTORCHJOB,
        gang_pytorchjob.pytorchjob_of,
        gang_pytorchjob.RANK,
        lambda first: {"value": gang_pytorchjob.LEADER},
        "Kubeflow's training operator 1.9",
        "whose controller sets PET_NNODES and PET_NPROC_PER_NODE itself, and makes a lost pod anew until the attempt "
        "is deleted",
    ),
    "trainjob": SpelledKind(
        TRAINJOB,
        gang_trainjob.trainjob_of,
        gang_jobset.RANK,
        lambda first: _field(gang_jobset.COORDINATOR),
        "Kubeflow Trainer 2.3 and JobSet 0.12",
        "with a TrainingRuntime of its own, and nothing removes one that has ended but who deletes it, or what owns it",
    ),
    "mpijob": SpelledKind(
        MPIJOB,
        gang_mpijob.mpijob_of,
        gang_mpijob.RANK,
        lambda first: {"value": gang_mpijob.LEADER},
        "Kubeflow's MPI operator 0.8",
        "whose operator makes a lost worker anew until the attempt is deleted, and adds keys, a host file and "
        "variables for mpirun that gpuflow does not use. Nothing removes one that has ended but who deletes it, or "
        "what owns it",
    ),
    "volcano": SpelledKind(
        VOLCANO,
        gang_volcano.vcjob_of,
        gang_volcano.RANK,
        lambda first: {"value": gang_volcano.host_of(first)},
        "Volcano 1.14",
        "which waits in a queue of Volcano's and not of Kueue's. A preemption there is an interruption, and Volcano "
        "gives a gang up of which a quota refuses a pod",
        _no_queue_priority,
        as_made=gang_volcano.as_scheduled,
    ),
    JOBSET_BY_VOLCANO.word: SpelledKind(
        JOBSET_BY_VOLCANO,
        gang_podgroup.jobset_of,
        gang_jobset.RANK,
        lambda first: _field(gang_jobset.COORDINATOR),
        "JobSet 0.12 and Volcano 1.14",
        "whose pods Volcano's scheduler places all together or not at all, by a PodGroup, in a queue of Volcano's and "
        "not of Kueue's. A preemption there is an interruption",
        _no_queue_priority,
        as_made=gang_volcano.as_scheduled,
    ),
}
"""By the words of the site: `gangs.kind`, and `gangs.scheduler` where it says one."""
