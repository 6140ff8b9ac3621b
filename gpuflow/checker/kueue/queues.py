"""ClusterQueue, Cohort and LocalQueue, read from manifests of v1beta1 and v1beta2.

`read_reservations` is what the status of a ClusterQueue says that it has reserved, by flavor and resource.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from gpuflow.checker.kueue.amounts import FlavorResource, quota_amount
from gpuflow.checker.kueue.flavors import read_name
from gpuflow.kubernetes.admission.pod import Body, read_integer, read_object, read_text
from gpuflow.kubernetes.labels import Selector, read_selector
from gpuflow.kubernetes.resources import BadField, read_map, read_maps, read_quantity, read_texts

NEVER = "Never"
TRY_NEXT = "TryNextFlavor"
MAY_STOP = "MayStopSearch"
PREEMPTION_FIRST = "PreemptionOverBorrowing"
V1BETA1_NAMES = {"Borrow": MAY_STOP, "Preempt": MAY_STOP}
"""What v1beta1 called it when the search for a flavor may stop."""
SEARCH = (MAY_STOP, TRY_NEXT, *V1BETA1_NAMES)
PREFERENCES = ("BorrowingOverPreemption", PREEMPTION_FIRST)
WITHIN_QUEUE = (NEVER, "LowerPriority", "LowerOrNewerEqualPriority")
RECLAIM = (NEVER, "LowerPriority", "Any")
BORROW = (NEVER, "LowerPriority")
STOP = ("None", "Hold", "HoldAndDrain")
STRATEGIES = ("BestEffortFIFO", "StrictFIFO")


class FlavorQuota(NamedTuple):
    nominal: int
    borrowing: int | None
    lending: int | None


class ResourceGroup(NamedTuple):
    """Resources that are always taken from one flavor together."""

    covered: frozenset[str]
    flavors: tuple[str, ...]


class Fungibility(NamedTuple):
    """When the search goes on to the next flavor, and which it prefers of those it saw."""

    when_can_borrow: str
    when_can_preempt: str
    preference: str


class Preemption(NamedTuple):
    within_queue: str
    reclaim: str
    borrow: str
    borrow_threshold: int | None


class AdmissionCheckRule(NamedTuple):
    """An AdmissionCheck that a ClusterQueue names, for all flavors when it names none."""

    name: str
    flavors: frozenset[str]


class ClusterQueue(NamedTuple):
    name: str
    cohort: str
    groups: tuple[ResourceGroup, ...]
    quotas: Mapping[FlavorResource, FlavorQuota]
    fungibility: Fungibility
    preemption: Preemption
    selector: Selector | None
    is_stopped: bool
    is_terminating: bool
    is_strict: bool
    checks: tuple[AdmissionCheckRule, ...]

    def group_of(self, resource: str) -> ResourceGroup | None:
        return next((group for group in self.groups if resource in group.covered), None)

    @property
    def flavors(self) -> tuple[str, ...]:
        return tuple(flavor for group in self.groups for flavor in group.flavors)


class Cohort(NamedTuple):
    name: str
    parent: str
    quotas: Mapping[FlavorResource, FlavorQuota]


class LocalQueue(NamedTuple):
    namespace: str
    name: str
    cluster_queue: str
    is_stopped: bool


def read_cluster_queue(manifest: object) -> ClusterQueue:
    manifest = read_object(manifest, "ClusterQueue")
    name = read_name(manifest, "ClusterQueue")
    where = f"ClusterQueue {name}: spec"
    spec = read_map(manifest.get("spec"), where)
    groups, quotas = _read_groups(spec.get("resourceGroups"), f"{where}.resourceGroups")
    return ClusterQueue(
        name,
        read_text(spec, "cohortName", where) or read_text(spec, "cohort", where) or "",
        groups,
        quotas,
        _read_fungibility(read_map(spec.get("flavorFungibility"), f"{where}.flavorFungibility"), where),
        _read_preemption(read_map(spec.get("preemption"), f"{where}.preemption"), f"{where}.preemption"),
        read_selector(spec.get("namespaceSelector"), f"{where}.namespaceSelector"),
        _is_stopped(spec, where),
        read_map(manifest.get("metadata"), "metadata").get("deletionTimestamp") is not None,
        read_choice(spec, "queueingStrategy", where, STRATEGIES) == "StrictFIFO",
        _read_checks(spec, where),
    )


def read_cohort(manifest: object) -> Cohort:
    manifest = read_object(manifest, "Cohort")
    name = read_name(manifest, "Cohort")
    where = f"Cohort {name}: spec"
    spec = read_map(manifest.get("spec"), where)
    parent = read_text(spec, "parentName", where) or read_text(spec, "parent", where) or ""
    return Cohort(name, parent, _read_groups(spec.get("resourceGroups"), f"{where}.resourceGroups")[1])


def read_local_queue(manifest: object) -> LocalQueue:
    manifest = read_object(manifest, "LocalQueue")
    name = read_name(manifest, "LocalQueue")
    where = f"LocalQueue {name}: spec"
    spec = read_map(manifest.get("spec"), where)
    namespace = read_text(read_map(manifest.get("metadata"), "metadata"), "namespace", f"LocalQueue {name}: metadata")
    cluster_queue = read_text(spec, "clusterQueue", where) or ""
    return LocalQueue(namespace or "default", name, cluster_queue, _is_stopped(spec, where))


NamedObject = TypeVar("NamedObject", ClusterQueue, Cohort)


def by_name(objects: Iterable[NamedObject], kind: str) -> dict[str, NamedObject]:
    found: dict[str, NamedObject] = {}
    for each in objects:
        if each.name in found:
            raise ValueError(f"two {kind}s are called {each.name}")
        found[each.name] = each
    return found


def _read_groups(value: object, where: str) -> tuple[tuple[ResourceGroup, ...], dict[FlavorResource, FlavorQuota]]:
    groups: list[ResourceGroup] = []
    quotas: dict[FlavorResource, FlavorQuota] = {}
    for index, group in enumerate(read_maps(value, where)):
        at = f"{where}[{index}]"
        flavors = read_maps(group.get("flavors"), f"{at}.flavors")
        names = [read_text(flavor, "name", f"{at}.flavors[{n}]") or "" for n, flavor in enumerate(flavors)]
        covered = frozenset(read_texts(group.get("coveredResources"), f"{at}.coveredResources"))
        groups.append(ResourceGroup(covered, tuple(names)))
        for flavor, name in zip(flavors, names, strict=True):
            at_flavor = f"{at}.flavors[{name}].resources"
            for item in read_maps(flavor.get("resources"), at_flavor):
                resource = read_text(item, "name", at_flavor) or ""
                quotas[name, resource] = _read_quota(item, resource, f"{at_flavor}[{resource}]")
    return tuple(groups), quotas


def _read_quota(item: Body, resource: str, where: str) -> FlavorQuota:
    nominal = _read_amount(item, "nominalQuota", resource, where)
    borrowing, lending = (
        None if item.get(field) is None else _read_amount(item, field, resource, where)
        for field in ("borrowingLimit", "lendingLimit")
    )
    return FlavorQuota(nominal, borrowing, lending)


def _read_amount(item: Body, field: str, resource: str, where: str) -> int:
    try:
        quantity = read_quantity(item.get(field))
    except ValueError as error:
        raise BadField(f"{where}.{field}", f"{item.get(field)!r}: {error}") from None
    if quantity.nano < 0:
        raise BadField(f"{where}.{field}", f"{quantity} is negative; quota is zero or more")
    return quota_amount(resource, quantity)


def _read_fungibility(spec: Body, where: str) -> Fungibility:
    where = f"{where}.flavorFungibility"
    borrow = read_choice(spec, "whenCanBorrow", where, SEARCH) or MAY_STOP
    preempt = read_choice(spec, "whenCanPreempt", where, SEARCH) or TRY_NEXT
    return Fungibility(
        V1BETA1_NAMES.get(borrow, borrow),
        V1BETA1_NAMES.get(preempt, preempt),
        read_choice(spec, "preference", where, PREFERENCES),
    )


def _read_preemption(spec: Body, where: str) -> Preemption:
    borrow = read_map(spec.get("borrowWithinCohort"), f"{where}.borrowWithinCohort")
    return Preemption(
        read_choice(spec, "withinClusterQueue", where, WITHIN_QUEUE) or NEVER,
        read_choice(spec, "reclaimWithinCohort", where, RECLAIM) or NEVER,
        read_choice(borrow, "policy", f"{where}.borrowWithinCohort", BORROW) or NEVER,
        read_integer(borrow, "maxPriorityThreshold", f"{where}.borrowWithinCohort"),
    )


def _read_checks(spec: Body, where: str) -> tuple[AdmissionCheckRule, ...]:
    every = [
        AdmissionCheckRule(name, frozenset())
        for name in read_texts(spec.get("admissionChecks"), f"{where}.admissionChecks")
    ]
    where = f"{where}.admissionChecksStrategy"
    strategy = read_map(spec.get("admissionChecksStrategy"), where)
    for rule in read_maps(strategy.get("admissionChecks"), f"{where}.admissionChecks"):
        flavors = frozenset(read_texts(rule.get("onFlavors"), f"{where}.onFlavors"))
        every.append(AdmissionCheckRule(read_text(rule, "name", where) or "", flavors))
    return tuple(every)


def _is_stopped(spec: Body, where: str) -> bool:
    return (read_choice(spec, "stopPolicy", where, STOP) or "None") != "None"


def read_choice(spec: Body, field: str, where: str, choices: tuple[str, ...]) -> str:
    """One of the words that a field takes, or nothing."""
    value = read_text(spec, field, where) or ""
    if value and value not in choices:
        raise BadField(f"{where}.{field}", f"{value!r} is not one of {', '.join(choices)}")
    return value


def read_reservations(queue: Mapping[str, Any]) -> dict[FlavorResource, int]:
    """The amounts in `status.flavorsReservation` of a ClusterQueue."""
    where = f"ClusterQueue {read_name(queue, 'ClusterQueue')}: status.flavorsReservation"
    found = {}
    for flavor in read_maps(read_map(queue.get("status"), "status").get("flavorsReservation"), where):
        name = read_text(flavor, "name", where) or ""
        for item in read_maps(flavor.get("resources"), f"{where}[{name}].resources"):
            resource = read_text(item, "name", where) or ""
            try:
                found[name, resource] = quota_amount(resource, read_quantity(item.get("total") or "0"))
            except ValueError as error:
                raise BadField(f"{where}[{name}].{resource}", str(error)) from None
    return found
