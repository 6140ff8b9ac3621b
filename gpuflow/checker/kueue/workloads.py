"""Workloads: the one that asks, and those that already hold quota, with the places that their status lists.

Mirrors sigs.k8s.io/kueue/pkg/workload.Ordering.GetQueueOrderTimestamp and PodSetResources.ScaledTo, and
sigs.k8s.io/kueue/pkg/util/tas.InternalSeqFrom, Kueue v0.19.2.

ClusterQueue, Cohort and LocalQueue, read from manifests of v1beta1 and v1beta2.

`read_reservations` is what the status of a ClusterQueue says that it has reserved, by flavor and resource.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

from gpuflow.checker.kueue.flavors import FlavorConstraints, read_constraints, read_named, read_time
from gpuflow.checker.kueue.reasons import FlavorResource, amounts_of, clamp, plus, quota_amount, request_amount
from gpuflow.cluster.kueue_objects import (
    AdmissionCheckRule,
    ClusterQueueSpec,
    CohortSpec,
    FlavorFungibility,
    LocalQueueSpec,
    Preemption,
)
from gpuflow.kubernetes.admission.pod import Body, read_integer, read_text
from gpuflow.kubernetes.labels import Selector, read_labels, read_selector
from gpuflow.kubernetes.objects import PodTemplate, decode
from gpuflow.kubernetes.resources import BadField, read_map, read_maps, read_quantity, read_resource_list, read_texts


def read_topology_assignment(value: object, where: str) -> Iterator[tuple[tuple[str, ...], int]]:
    """The values that name each domain, and its pods: of v1beta1, or packed as in v1beta2."""
    assignment = read_map(value, where)
    for domain in read_maps(assignment.get("domains"), f"{where}.domains"):
        yield tuple(read_texts(domain.get("values"), where)), read_integer(domain, "count", where) or 0
    for packed in read_maps(assignment.get("slices"), f"{where}.slices"):
        yield from _unpack(packed, f"{where}.slices")


def _unpack(packed: Mapping[str, Any], where: str) -> Iterator[tuple[tuple[str, ...], int]]:
    levels = read_maps(packed.get("valuesPerLevel"), f"{where}.valuesPerLevel")
    counts = read_map(packed.get("podCounts"), f"{where}.podCounts")
    for index in range(read_integer(packed, "domainCount", where) or 0):
        try:
            yield tuple(_value(level, index, where) for level in levels), _count(counts, index, where)
        except IndexError:
            raise BadField(where, f"domain {index + 1} has no value or no count") from None


def _value(level: Mapping[str, Any], index: int, where: str) -> str:
    universal = read_text(level, "universal", where)
    if universal is not None:
        return universal
    parts = read_map(level.get("individual"), f"{where}.individual")
    root = read_texts(parts.get("roots"), f"{where}.individual.roots")[index]
    return (read_text(parts, "prefix", where) or "") + root + (read_text(parts, "suffix", where) or "")


def _count(counts: Mapping[str, Any], index: int, where: str) -> int:
    universal = read_integer(counts, "universal", where)
    if universal is not None:
        return universal
    individual = counts.get("individual")
    if not isinstance(individual, list) or not all(isinstance(each, int) for each in individual):
        raise BadField(f"{where}.individual", f"must be a list of whole numbers, not {individual!r}")
    return int(individual[index])


MOST_PODS = 2**31 - 1
EVICTION_THAT_REORDERS = "AdmissionCheck"
TIMEOUT_EVICTION = "PodsReadyTimeout"
LONG_AGO = datetime.min.replace(tzinfo=UTC)
NOT_YET = datetime.max.replace(tzinfo=UTC)
EXPLICIT_TOPOLOGY = (
    "required",
    "preferred",
    "unconstrained",
    "podSetSliceRequiredTopology",
    "podSetSliceSize",
    "podsetSliceRequiredTopologyConstraints",
)
SLICES = EXPLICIT_TOPOLOGY[3:]


class TopologyRequest(NamedTuple):
    """Where the pods of a pod set want to be, relative to each other."""

    required: str | None = None
    """All in one domain of this level."""
    preferred: str | None = None
    """In as few domains of this level as will do."""
    unconstrained: bool | None = None
    """Anywhere, but on nodes that have room for all of them."""
    group: str | None = None
    """Pod sets of one group go to the same domain."""
    has_slices: bool = False

    @property
    def is_explicit(self) -> bool:
        return self.has_slices or self.level is not None or self.unconstrained is not None

    @property
    def level(self) -> str | None:
        return self.preferred if self.required is None else self.required


class WorkloadCondition(NamedTuple):
    is_true: bool
    reason: str
    since: datetime | None


class PodSet(NamedTuple):
    name: str
    pods: int
    fewest: int
    """How many pods it can do with."""
    template: PodTemplate
    constraints: FlavorConstraints
    topology: TopologyRequest
    claims: frozenset[str]
    """The kinds of resource claims its pods use."""


class Workload(NamedTuple):
    namespace: str
    name: str
    uid: str
    queue: str
    priority: int
    created: datetime | None
    is_active: bool
    pod_sets: tuple[PodSet, ...]
    conditions: Mapping[str, WorkloadCondition]
    reclaimable: Mapping[str, int]
    annotations: Mapping[str, str]
    check_states: frozenset[str]

    def count_after_reclaim(self, pod_set: str, count: int) -> int:
        """How many pods still count: those that finished early have given their quota back."""
        return count - min(self.reclaimable.get(pod_set, 0), count)

    def queued_at(self, *, by_eviction: bool) -> datetime | None:
        """The time by which it stands in the queue."""
        evicted = self.conditions.get("Evicted")
        if evicted and evicted.is_true:
            reasons = (TIMEOUT_EVICTION, EVICTION_THAT_REORDERS) if by_eviction else (EVICTION_THAT_REORDERS,)
            if evicted.reason in reasons:
                return evicted.since
        return self.created


class Holder(NamedTuple):
    """A workload that holds quota in a ClusterQueue."""

    key: tuple[str, str]
    uid: str
    cluster_queue: str
    priority: int
    queued_at: datetime
    reserved_at: datetime
    is_evicted: bool
    usage: Mapping[FlavorResource, int]
    uses: frozenset[FlavorResource]
    places: tuple[Place, ...] = ()
    pod_sets: tuple[AdmittedPodSet, ...] = ()
    """Those that still have pods."""


class Place(NamedTuple):
    """Pods of a workload in one domain of a topology."""

    flavor: str
    domain: str
    amounts: Mapping[str, int]
    """What all of them take there."""


class AdmittedPodSet(NamedTuple):
    """Pods of a workload that holds quota, with the flavors they got and what each is charged."""

    pods: int
    flavors: Mapping[str, str]
    each: Mapping[str, int]
    spec: Mapping[str, Any]


def read_workload(manifest: object) -> Workload:
    body, workload = _read_head(manifest)
    spec = read_map(body.get("spec"), "spec")
    return workload._replace(pod_sets=_read_pod_sets(spec.get("podSets"), f"Workload {workload.name}"))


def _read_head(manifest: object) -> tuple[Body, Workload]:
    """The manifest, and everything in it but the pod sets."""
    body, name = read_named(manifest, "Workload")
    where = f"Workload {name}"
    metadata = read_map(body.get("metadata"), f"{where}: metadata")
    spec = read_map(body.get("spec"), f"{where}: spec")
    status = read_map(body.get("status"), f"{where}: status")
    reclaimable = {
        read_text(item, "name", where) or "": read_integer(item, "count", f"{where}: status.reclaimablePods") or 0
        for item in read_maps(status.get("reclaimablePods"), f"{where}: status.reclaimablePods")
    }
    checks = read_maps(status.get("admissionChecks"), f"{where}: status.admissionChecks")
    return body, Workload(
        read_text(metadata, "namespace", f"{where}: metadata") or "default",
        name,
        read_text(metadata, "uid", f"{where}: metadata") or "",
        read_text(spec, "queueName", f"{where}: spec") or "",
        read_integer(spec, "priority", f"{where}: spec") or 0,
        read_time(metadata.get("creationTimestamp"), f"{where}: metadata.creationTimestamp"),
        _is_active(spec, f"{where}: spec"),
        (),
        _read_conditions(status.get("conditions"), f"{where}: status.conditions"),
        reclaimable,
        read_labels(metadata.get("annotations"), f"{where}: metadata.annotations"),
        frozenset(read_text(check, "state", f"{where}: status.admissionChecks") or "" for check in checks),
    )


def read_holder(manifest: object, *, by_eviction: bool) -> Holder | None:
    """What a workload holds; `None` when it holds nothing: still pending, finished or deactivated."""
    body, workload = _read_head(manifest)
    reserved = workload.conditions.get("QuotaReserved")
    finished = workload.conditions.get("Finished")
    if reserved is None or not reserved.is_true or (finished and finished.is_true) or not workload.is_active:
        return None
    where = f"Workload {workload.name}: status.admission"
    admission = read_map(read_map(body.get("status"), "status").get("admission"), where)
    cluster_queue = read_text(admission, "clusterQueue", where)
    if not cluster_queue:
        raise BadField(where, "quota is reserved, but no ClusterQueue is named")
    counts, specs = _read_planned(body, f"Workload {workload.name}: spec")
    usage: dict[FlavorResource, int] = {}
    uses: set[FlavorResource] = set()
    places: list[Place] = []
    pod_sets: list[AdmittedPodSet] = []
    at = f"{where}.podSetAssignments"
    for item in read_maps(admission.get("podSetAssignments"), at):
        flavors = read_labels(item.get("flavors"), f"{at}.flavors")
        uses.update((flavor, resource) for resource, flavor in flavors.items())
        amounts, pods = _read_held(item, workload, counts, at)
        for resource, amount in amounts.items():
            key = flavors.get(resource, ""), resource
            usage[key] = plus(usage.get(key, 0), amount)
        name = read_text(item, "name", at) or ""
        if item.get("topologyAssignment") is not None:
            places += _read_places(item, specs.get(name or "main", {}), set(flavors.values()), at)
        if pods > 0:
            each = {resource: amount // pods for resource, amount in amounts.items()}
            pod_sets.append(AdmittedPodSet(pods, flavors, each, specs.get(name, {})))
    evicted = workload.conditions.get("Evicted")
    return Holder(
        (workload.namespace, workload.name),
        workload.uid,
        cluster_queue,
        workload.priority,
        workload.queued_at(by_eviction=by_eviction) or LONG_AGO,
        reserved.since or LONG_AGO,
        evicted is not None and evicted.is_true,
        usage,
        frozenset(uses),
        tuple(places),
        tuple(pod_sets),
    )


def _read_places(item: Body, spec: Mapping[str, Any], flavors: Iterable[str], where: str) -> Iterator[Place]:
    """The domains in which the pods of a pod set are, with what they take: what their template asks for."""
    each = amounts_of(decode(PodTemplate, spec, where).requests())
    for values, pods in read_topology_assignment(item.get("topologyAssignment"), f"{where}.topologyAssignment"):
        amounts = {resource: amount * pods for resource, amount in each.items()}
        for flavor in sorted(flavors):
            yield Place(flavor, ",".join(values), {**amounts, "pods": pods})


def _read_held(item: Body, workload: Workload, counts: Mapping[str, int], where: str) -> tuple[dict[str, int], int]:
    """What one pod set holds, less what its early finishers have given back, and how many pods are left of it."""
    name = read_text(item, "name", where) or ""
    planned = counts.get(name, 0)
    count = read_integer(item, "count", where)
    count = planned if count is None else count
    usage = read_resource_list(item.get("resourceUsage"), f"{where}.resourceUsage")
    amounts = {resource: request_amount(resource, quantity) for resource, quantity in usage.items()}
    left = workload.count_after_reclaim(name, planned)
    return (scale_amounts(amounts, count, left) if left < count else amounts), min(left, count)


def _read_planned(body: Body, where: str) -> tuple[dict[str, int], dict[str, Mapping[str, Any]]]:
    """How many pods each pod set was made with, and what they are like."""
    counts, specs = {}, {}
    for item in read_maps(read_map(body.get("spec"), where).get("podSets"), f"{where}.podSets"):
        count = read_integer(item, "count", f"{where}.podSets")
        name = read_text(item, "name", f"{where}.podSets") or "main"
        counts[name] = 1 if count is None else count
        specs[name] = read_map(read_map(item.get("template"), f"{where}.podSets").get("spec"), f"{where}.podSets")
    return counts, specs


def scale_amounts(amounts: Mapping[str, int], count: int, wanted: int) -> dict[str, int]:
    """What `wanted` pods need when `count` need so much: Kueue divides, then multiplies."""
    return {resource: clamp(amount // count * wanted) for resource, amount in amounts.items()}


def _read_pod_sets(value: object, where: str) -> tuple[PodSet, ...]:
    pod_sets: dict[str, PodSet] = {}
    for index, item in enumerate(read_maps(value, f"{where}: spec.podSets")):
        pod_set = _read_pod_set(item, f"{where}: spec.podSets[{index}]")
        if pod_set.name in pod_sets:
            raise BadField(where, f"two pod sets are called {pod_set.name}")
        pod_sets[pod_set.name] = pod_set
    if not pod_sets:
        raise BadField(f"{where}: spec.podSets", "one pod set at least is needed")
    return tuple(pod_sets.values())


def _read_pod_set(item: Body, where: str) -> PodSet:
    template = read_map(item.get("template"), f"{where}.template")
    spec = read_map(template.get("spec"), f"{where}.template.spec")
    pods, fewest = read_integer(item, "count", where), read_integer(item, "minCount", where)
    pods = 1 if pods is None else pods
    fewest = pods if fewest is None else fewest
    if not 0 <= fewest <= pods <= MOST_PODS:
        raise BadField(where, f"count {pods} and minCount {fewest}, not 0 <= minCount <= count <= {MOST_PODS}")
    return PodSet(
        read_text(item, "name", where) or "main",
        pods,
        fewest,
        decode(PodTemplate, spec, f"{where}.template.spec"),
        read_constraints(spec, f"{where}.template.spec"),
        _read_topology(item.get("topologyRequest"), f"{where}.topologyRequest"),
        _claims(spec, where),
    )


def _read_topology(value: object, where: str) -> TopologyRequest:
    topology = read_map(value, where)
    unconstrained = topology.get("unconstrained")
    if unconstrained is not None and not isinstance(unconstrained, bool):
        raise BadField(f"{where}.unconstrained", f"must be true or false, not {unconstrained!r}")
    return TopologyRequest(
        read_text(topology, "required", where),
        read_text(topology, "preferred", where),
        unconstrained,
        read_text(topology, "podSetGroupName", where),
        any(topology.get(field) is not None for field in SLICES),
    )


def _claims(spec: Mapping[str, Any], where: str) -> frozenset[str]:
    claims = read_maps(spec.get("resourceClaims"), f"{where}.template.spec.resourceClaims")
    kinds = ("resourceClaimName", "resourceClaimTemplateName")
    return frozenset(kind for claim in claims for kind in kinds if claim.get(kind) is not None)


def _is_active(spec: Body, where: str) -> bool:
    active = spec.get("active")
    if active is not None and not isinstance(active, bool):
        raise BadField(f"{where}.active", f"must be true or false, not {active!r}")
    return active is not False


def _read_conditions(value: object, where: str) -> dict[str, WorkloadCondition]:
    return {
        read_text(item, "type", f"{where}[{index}]") or "": WorkloadCondition(
            item.get("status") == "True",
            read_text(item, "reason", f"{where}[{index}]") or "",
            read_time(item.get("lastTransitionTime"), f"{where}[{index}].lastTransitionTime"),
        )
        for index, item in enumerate(read_maps(value, where))
    }


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
