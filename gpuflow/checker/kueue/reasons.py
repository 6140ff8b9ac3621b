"""Why Kueue does not give a workload its quota: a value for each reason, with Kueue's sentence.

Mirrors sigs.k8s.io/kueue/pkg/scheduler/flavorassigner.FlavorAssigner.fitsResourceQuota and checkFlavorForPodSets,
Kueue v0.19.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from gpuflow.checker.kueue.amounts import amount_text


@dataclass(frozen=True, slots=True)
class UncoveredResource:
    """No resource group of the ClusterQueue covers the resource."""

    resource: str

    def sentence(self) -> str:
        return f"resource {self.resource} unavailable in ClusterQueue"


@dataclass(frozen=True, slots=True)
class AboveCapacity:
    """The flavor could not hold the request even if nothing was in use."""

    resource: str
    flavor: str
    before: int
    """What earlier pod sets of the workload take."""
    asked: int
    most: int

    @property
    def capacity(self) -> str:
        return amount_text(self.resource, self.most)

    def sentence(self) -> str:
        return (
            f"insufficient quota for {self.resource} in flavor {self.flavor}, previously considered podsets requests "
            f"({amount_text(self.resource, self.before)}) + current podset request "
            f"({amount_text(self.resource, self.asked, is_quota=False)}) > maximum capacity ({self.capacity})"
        )


@dataclass(frozen=True, slots=True)
class NoUnusedQuota:
    """The flavor could hold the request, and too much of it is in use."""

    resource: str
    flavor: str
    missing: int

    def sentence(self) -> str:
        needed = amount_text(self.resource, self.missing)
        return f"insufficient unused quota for {self.resource} in flavor {self.flavor}, {needed} more needed"


@dataclass(frozen=True, slots=True)
class FlavorNotFound:
    flavor: str

    def sentence(self) -> str:
        return f"flavor {self.flavor} not found"


@dataclass(frozen=True, slots=True)
class UntoleratedTaint:
    flavor: str
    key: str
    taint: str
    """The whole taint, as Go prints it."""

    def sentence(self) -> str:
        return f"untolerated taint {self.taint} in flavor {self.flavor}"


@dataclass(frozen=True, slots=True)
class AffinityMismatch:
    flavor: str

    def sentence(self) -> str:
        return f"flavor {self.flavor} doesn't match node affinity"


@dataclass(frozen=True, slots=True)
class TopologyMismatch:
    """The flavor is for topology-aware scheduling and the pod set is not, or the other way around."""

    flavor: str
    is_topology_aware: bool

    def sentence(self) -> str:
        fault = "supports only" if self.is_topology_aware else "does not support"
        return f'Flavor "{self.flavor}" {fault} TopologyAwareScheduling'


@dataclass(frozen=True, slots=True)
class TopologyLevelMissing:
    """The flavor's Topology has no such level."""

    flavor: str

    def sentence(self) -> str:
        return f'Flavor "{self.flavor}" does not contain the requested level'


@dataclass(frozen=True, slots=True)
class NoPlace:
    """The nodes of the flavor, as its topology groups them, have no room for the pods."""

    words: str

    def sentence(self) -> str:
        return self.words


FlavorReason = (
    UncoveredResource
    | AboveCapacity
    | NoUnusedQuota
    | FlavorNotFound
    | UntoleratedTaint
    | AffinityMismatch
    | TopologyMismatch
    | TopologyLevelMissing
    | NoPlace
)
QuotaReason = UncoveredResource | AboveCapacity | NoUnusedQuota
"""The reasons that name a resource."""


class InadmissibleReason(Enum):
    """Why a workload does not reach the search for flavors."""

    CLAIMS = "resource claims are not supported"
    DEACTIVATED = "the workload is deactivated"
    GATED = "an annotation gates its admission"
    NO_LOCAL_QUEUE = "its LocalQueue does not exist"
    LOCAL_QUEUE_STOPPED = "its LocalQueue is stopped"
    NO_CLUSTER_QUEUE = "its ClusterQueue does not exist"
    CLUSTER_QUEUE_INACTIVE = "its ClusterQueue is inactive"
    FAILED_CHECKS = "admission checks failed"
    NAMESPACE = "the ClusterQueue does not select its namespace"
    RESOURCES = "its requests are above its limits"
    LIMIT_RANGE = "a LimitRange refuses its requests"


class Refusal(NamedTuple):
    """Why a workload is blocked, and what Kueue says."""

    reason: InadmissibleReason
    message: str

    def sentence(self) -> str:
        return self.message
