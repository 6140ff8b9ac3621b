"""Queues of Kueue, v1beta1 and v1beta2, as their manifests have them."""

from __future__ import annotations

from typing import Annotated, Literal

from gpuflow.kubernetes.objects import At, Closed, Loose, NotNegative, Object, Tree
from gpuflow.quantity import Quantity

Amount = Annotated[Quantity, NotNegative("quota is zero or more")]
Search = Literal["MayStopSearch", "TryNextFlavor", "Borrow", "Preempt"]
"""Whether the search for a flavor goes on; the last two are v1beta1's names for that it may stop."""
Stop = Literal["None", "Hold", "HoldAndDrain"]


class ResourceQuota(Closed, frozen=True):
    name: Annotated[str, At("{list}.name")] = ""
    nominal_quota: Amount = Quantity.zero
    borrowing_limit: Amount | None = None
    lending_limit: Amount | None = None

    def __post_init__(self) -> None:
        amounts = (self.nominal_quota, self.borrowing_limit, self.lending_limit)
        if any(each is not None and each.nano < 0 for each in amounts):
            raise ValueError  # the reader says which


class FlavorQuotas(Closed, frozen=True):
    name: Annotated[str, At("{list}[{index}].name")] = ""
    resources: Annotated[tuple[ResourceQuota, ...], At(item="[{name}]")] = ()


class ResourceGroup(Closed, frozen=True):
    covered_resources: tuple[str, ...] = ()
    flavors: Annotated[tuple[FlavorQuotas, ...], At(item="[{name}]")] = ()


class FlavorFungibility(Closed, frozen=True):
    """When the search goes on to the next flavor, and which it prefers of those it saw."""

    when_can_borrow: Search = "MayStopSearch"
    when_can_preempt: Search = "TryNextFlavor"
    preference: Literal["BorrowingOverPreemption", "PreemptionOverBorrowing", ""] = ""


class BorrowWithinCohort(Closed, frozen=True):
    policy: Literal["Never", "LowerPriority"] = "Never"
    max_priority_threshold: int | None = None


class Preemption(Closed, frozen=True):
    reclaim_within_cohort: Literal["Never", "LowerPriority", "Any"] = "Never"
    borrow_within_cohort: BorrowWithinCohort = BorrowWithinCohort()
    within_cluster_queue: Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"] = "Never"


class AdmissionCheckRule(Object, frozen=True):
    """An AdmissionCheck that a ClusterQueue names, for all flavors when it names none."""

    name: Annotated[str, At("{owner}.name")] = ""
    on_flavors: Annotated[frozenset[str], At("{owner}.onFlavors")] = frozenset()


class AdmissionChecksStrategy(Object, frozen=True):
    admission_checks: tuple[AdmissionCheckRule, ...] = ()


class FairSharing(Object, frozen=True):
    weight: Loose = None


class AdmissionScope(Object, frozen=True):
    admission_mode: Loose = None


class SelectorRequirement(Object, frozen=True):
    key: Loose = None
    operator: Loose = None
    values: Annotated[Loose, "texts"] = None


class LabelSelector(Closed, frozen=True):
    match_labels: Annotated[Loose, "map"] = None
    match_expressions: Annotated[Loose, tuple[SelectorRequirement, ...]] = None


class ClusterQueueSpec(Closed, frozen=True):
    resource_groups: tuple[ResourceGroup, ...] = ()
    cohort: str = ""
    cohort_name: str = ""
    queueing_strategy: Literal["BestEffortFIFO", "StrictFIFO"] = "BestEffortFIFO"
    namespace_selector: Annotated[Loose, LabelSelector] = None
    flavor_fungibility: FlavorFungibility = FlavorFungibility()
    preemption: Preemption = Preemption()
    admission_checks: tuple[str, ...] = ()
    admission_checks_strategy: AdmissionChecksStrategy = AdmissionChecksStrategy()
    stop_policy: Stop = "None"
    fair_sharing: Annotated[Loose, FairSharing] = None
    admission_scope: Annotated[Loose, AdmissionScope] = None
    concurrent_admission_policy: Tree = None


class CohortSpec(Closed, frozen=True):
    parent: str = ""
    parent_name: str = ""
    resource_groups: tuple[ResourceGroup, ...] = ()
    fair_sharing: Annotated[Loose, FairSharing] = None


class LocalQueueSpec(Closed, frozen=True):
    cluster_queue: str = ""
    stop_policy: Stop = "None"
    fair_sharing: Annotated[Loose, FairSharing] = None
