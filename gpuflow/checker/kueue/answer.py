"""Kueue's answer to a workload."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gpuflow.checker.kueue.reasons import FlavorReason, Inadmissible, QuotaReason
from gpuflow.checker.kueue.topology_placement import Places

AssignmentStatus = Literal["fit", "preempt", "wait", "never", "blocked"]


@dataclass(frozen=True)
class Assignment:
    """What Kueue would make of a workload in its next scheduling cycle.

    `fit`: quota is reserved. `preempt`: others are evicted for it. `wait`: it would fit if nothing else held quota.
    `never`: it would not fit even then. `blocked`: a queue is stopped, missing or inactive, or the workload itself is
    refused. `message` is the text of Kueue's QuotaReserved condition.

    What gpuflow does not model and Kueue would look at is listed in `unmodeled`; then the verdict is never `fit` or
    `preempt`, since quota alone does not decide.
    """

    verdict: AssignmentStatus
    message: str
    pod_sets: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """For each pod set the flavor of each resource, none where flavors could not be assigned. Pod sets after one
    that failed are not looked at, and not listed."""
    usage: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """What all pods of a pod set together are charged of those resources."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """How many pods of each pod set that is for: fewer than asked where a workload is admitted in part."""
    places: Mapping[str, Places] = field(default_factory=dict)
    """Of pod sets that are placed by topology: the domains, and how many pods go to each."""
    cluster_queue: str | None = None
    targets: tuple[str, ...] = ()
    """The workloads to be preempted, as `namespace/name`."""
    final_verdict: AssignmentStatus | None = None
    """The verdict once the scans that go on in later cycles have ended; they can differ from the first."""
    because: str | None = None
    """For `never`, what Kueue would say if nothing else held quota; for an inactive ClusterQueue, why it is."""
    unmodeled: tuple[str, ...] = ()
    reasons: tuple[FlavorReason, ...] = ()
    """What stands against the flavors, as `message` lists it; for `never`, on an empty cluster, as `because` does."""
    blocked: Inadmissible | None = None
    """For `blocked`, why."""

    def names(self, resource: str) -> bool:
        """Whether a resource is among the reasons."""
        return any(isinstance(each, QuotaReason) and each.resource == resource for each in self.reasons)

    @property
    def fits(self) -> bool:
        return self.verdict == "fit"
