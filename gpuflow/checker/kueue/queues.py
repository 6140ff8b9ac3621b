"""ClusterQueue, Cohort and LocalQueue, read from manifests of v1beta1 and v1beta2.

`read_reservations` is what the status of a ClusterQueue says that it has reserved, by flavor and resource.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from gpuflow.checker.kueue.amounts import FlavorResource, quota_amount
from gpuflow.checker.kueue.flavors import read_named
from gpuflow.cluster.kueue_objects import (
    AdmissionCheckRule,
    ClusterQueueSpec,
    CohortSpec,
    FlavorFungibility,
    LocalQueueSpec,
    Preemption,
)
from gpuflow.kubernetes.admission.pod import Body, read_text
from gpuflow.kubernetes.decoding import decode
from gpuflow.kubernetes.labels import Selector, read_selector
from gpuflow.kubernetes.resources import BadField, read_map, read_maps, read_quantity

NEVER = "Never"
TRY_NEXT = "TryNextFlavor"
PREEMPTION_FIRST = "PreemptionOverBorrowing"


class FlavorQuota(NamedTuple):
    nominal: int
    borrowing: int | None
    lending: int | None


class ResourceGroup(NamedTuple):
    """Resources that are always taken from one flavor together."""

    covered: frozenset[str]
    flavors: tuple[str, ...]


class ClusterQueue(NamedTuple):
    name: str
    cohort: str
    groups: tuple[ResourceGroup, ...]
    quotas: Mapping[FlavorResource, FlavorQuota]
    fungibility: FlavorFungibility
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
    body, name = read_named(manifest, "ClusterQueue")
    where = f"ClusterQueue {name}: spec"
    spec = decode(ClusterQueueSpec, body.get("spec"), where)
    groups = (
        ResourceGroup(frozenset(group.covered_resources), tuple(flavor.name for flavor in group.flavors))
        for group in spec.resource_groups
    )
    return ClusterQueue(
        name,
        spec.cohort_name or spec.cohort,
        tuple(groups),
        _quotas(spec),
        spec.flavor_fungibility,
        spec.preemption,
        read_selector(spec.namespace_selector, f"{where}.namespaceSelector"),
        spec.stop_policy != "None",
        read_map(body.get("metadata"), "metadata").get("deletionTimestamp") is not None,
        spec.queueing_strategy == "StrictFIFO",
        (*map(AdmissionCheckRule, spec.admission_checks), *spec.admission_checks_strategy.admission_checks),
    )


def read_cohort(manifest: object) -> Cohort:
    body, name = read_named(manifest, "Cohort")
    spec = decode(CohortSpec, body.get("spec"), f"Cohort {name}: spec")
    return Cohort(name, spec.parent_name or spec.parent, _quotas(spec))


def read_local_queue(manifest: object) -> LocalQueue:
    body, name = read_named(manifest, "LocalQueue")
    spec = decode(LocalQueueSpec, body.get("spec"), f"LocalQueue {name}: spec")
    namespace = read_text(read_map(body.get("metadata"), "metadata"), "namespace", f"LocalQueue {name}: metadata")
    return LocalQueue(namespace or "default", name, spec.cluster_queue, spec.stop_policy != "None")


NamedObject = TypeVar("NamedObject", ClusterQueue, Cohort)


def by_name(objects: Iterable[NamedObject], kind: str) -> dict[str, NamedObject]:
    found: dict[str, NamedObject] = {}
    for each in objects:
        if each.name in found:
            raise ValueError(f"two {kind}s are called {each.name}")
        found[each.name] = each
    return found


def _quotas(spec: ClusterQueueSpec | CohortSpec) -> dict[FlavorResource, FlavorQuota]:
    return {
        (flavor.name, quota.name): FlavorQuota(
            quota_amount(quota.name, quota.nominal_quota),
            *(
                None if limit is None else quota_amount(quota.name, limit)
                for limit in (quota.borrowing_limit, quota.lending_limit)
            ),
        )
        for group in spec.resource_groups
        for flavor in group.flavors
        for quota in flavor.resources
    }


def read_choice(spec: Body, field: str, where: str, choices: tuple[str, ...]) -> str:
    """One of the words that a field takes, or nothing."""
    value = read_text(spec, field, where) or ""
    if value and value not in choices:
        raise BadField(f"{where}.{field}", f"{value!r} is not one of {', '.join(choices)}")
    return value


def read_reservations(queue: Mapping[str, Any]) -> dict[FlavorResource, int]:
    """The amounts in `status.flavorsReservation` of a ClusterQueue."""
    where = f"ClusterQueue {read_named(queue, 'ClusterQueue')[1]}: status.flavorsReservation"
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
