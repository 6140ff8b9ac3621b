"""The kinds of objects that a gang can be, as they are compiled: the site names one (`gangs.kind`).

What the runtime must know of each is in `gpuflow.runtime.gang_kinds`. A kind is here when it is whole: made, accepted,
followed, judged, counted by the check and deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from gpuflow.pod import gang_jobset, gang_pytorchjob
from gpuflow.runtime.gang_kinds import JOBSET, PYTORCHJOB, GangKind


class SpelledKind(NamedTuple):
    """One kind: what it is made of, and how its ranks learn who they are."""

    kind: GangKind
    build: Callable[[Mapping[str, Any], int, Mapping[str, Any] | None], dict[str, Any]]
    """From the pod of each worker, how many there are, and the pod of the leader, if there is one."""
    rank: str
    """The field of a pod that has its number."""
    leader: dict[str, Any]
    """The host of rank 0, as a variable of a container says it."""
    needs: str
    """What the cluster must have."""

    @property
    def plural(self) -> str:
        return f"{self.kind.name}s"

    @property
    def rules(self) -> list[dict[str, Any]]:
        """What whoever looks after it must be allowed, beside looking at pods.

        patch: how an attempt ended is noted on it, so that a launcher that comes back need not judge again.
        """
        verbs = ["create", "get", "list", "patch", "delete"]
        own = {"apiGroups": [self.kind.group], "resources": [self.kind.plural], "verbs": verbs}
        jobs = {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "list"]}
        return [own, jobs] if self.kind.has_jobs else [own]


DEFAULT = "jobset"
SPELLINGS: dict[str, SpelledKind] = {
    DEFAULT: SpelledKind(
        JOBSET,
        gang_jobset.jobset_of,
        gang_jobset.RANK,
        {"valueFrom": {"fieldRef": {"fieldPath": gang_jobset.COORDINATOR}}},
        "JobSet 0.12",
    ),
    "pytorchjob": SpelledKind(
        PYTORCHJOB,
        gang_pytorchjob.pytorchjob_of,
        gang_pytorchjob.RANK,
        {"value": gang_pytorchjob.LEADER},
        "Kubeflow's training operator 1.9",
    ),
}
"""By the word of the site."""
