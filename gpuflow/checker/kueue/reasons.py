"""Why Kueue does not give a workload its quota: a value for each reason, with Kueue's sentence.

Mirrors sigs.k8s.io/kueue/pkg/scheduler/flavorassigner.FlavorAssigner.fitsResourceQuota and checkFlavorForPodSets,
Kueue v0.19.2.

Amounts as Kueue counts them: whole numbers of 64 bits, thousandths for cpu, the largest meaning "no limit".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from typing import Final, NamedTuple

from gpuflow.kubernetes.resources import is_hugepages
from gpuflow.quantity import MAX_INT64, MICRO, NANO, Format, Quantity

UNLIMITED: Final = MAX_INT64
LEAST: Final = -MAX_INT64 - 1

FlavorResource = tuple[str, str]
"""The name of a flavor and of a resource: what quota is kept by."""

FNV_OFFSET: Final = 0xCBF29CE484222325
FNV_PRIME: Final = 0x100000001B3
WORD: Final = 2**64 - 1


def clamp(amount: int) -> int:
    return min(max(amount, LEAST), UNLIMITED)


def plus(left: int, right: int) -> int:
    """A sum that never wraps around; anything and no limit is no limit."""
    if left == UNLIMITED or right == UNLIMITED:
        return UNLIMITED
    total = left + right
    return total if LEAST < total < UNLIMITED else clamp(total)


def minus(left: int, right: int) -> int:
    """A difference; no limit less anything finite is no limit."""
    if left == UNLIMITED:
        return 0 if right == UNLIMITED else UNLIMITED
    if right == UNLIMITED:
        return LEAST
    left -= right
    return left if LEAST < left < UNLIMITED else clamp(left)


def quota_amount(resource: str, quantity: Quantity) -> int:
    """A quantity of quota; too large to be counted is no limit."""
    if resource == "cpu":
        return UNLIMITED if quantity.nano >= MAX_INT64 // 1000 * NANO else quantity.milli
    return clamp(quantity.value)


def request_amount(resource: str, quantity: Quantity) -> int:
    """A request, rounded up."""
    return clamp(quantity.milli if resource == "cpu" else quantity.value)


def amounts_of(resources: Mapping[str, Quantity]) -> dict[str, int]:
    """What a pod requests, or a node has, as whole numbers."""
    return {name: request_amount(name, quantity) for name, quantity in resources.items()}


def exact_amount(resource: str, nano: Fraction) -> int:
    """As `request_amount`, of a product that may be finer than a billionth."""
    units = abs(nano) / (MICRO if resource == "cpu" else NANO)
    rounded = -(-units.numerator // units.denominator)
    return clamp(rounded if nano >= 0 else -rounded)


def amount_text(resource: str, amount: int, *, is_quota: bool = True) -> str:
    """An amount as Kueue prints it."""
    if is_quota and amount == UNLIMITED:
        return "<unlimited>"
    if resource == "cpu":
        return str(Quantity.from_nano(amount * MICRO))
    if resource in ("memory", "ephemeral-storage") or is_hugepages(resource):
        # Kueue reads back what it printed: below 1Ki that changes the notation.
        return Quantity(str(Quantity.from_units(amount, Format.BINARY_SI))).text
    return str(Quantity.from_units(amount))


@lru_cache(maxsize=4096)
def visiting_key(resource: str) -> tuple[int, str]:
    """Kueue goes through resources in the order of the FNV-1a hash of their names."""
    value = FNV_OFFSET
    for byte in resource.encode():
        value = (value ^ byte) * FNV_PRIME & WORD
    return value, resource


def in_visiting_order(amounts: dict[str, int]) -> dict[str, int]:
    return {name: amounts[name] for name in sorted(amounts, key=visiting_key)}


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
