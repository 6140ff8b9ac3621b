"""What the pods of a pod set ask for: container resources, LimitRange defaults, overhead, transformations.

Mirrors sigs.k8s.io/kueue/pkg/workload.AdjustResources, totalRequestsFromPodSets and ValidateLimitRange, Kueue v0.19.2.

What stops a workload before its quota is looked at.

Mirrors sigs.k8s.io/kueue/pkg/workload.ValidateAdmissibility and pkg/cache/scheduler.clusterQueue.inactiveReason,
Kueue v0.19.2.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from fractions import Fraction
from typing import NamedTuple

from msgspec.structs import replace

from gpuflow.checker.kueue.flavors import Flavor
from gpuflow.checker.kueue.reasons import InadmissibleReason, Refusal, exact_amount, in_visiting_order, request_amount
from gpuflow.checker.kueue.workloads import ClusterQueue, LocalQueue, Workload, read_choice
from gpuflow.kubernetes.admission.classes import RuntimeClass
from gpuflow.kubernetes.admission.limit_range import LimitRange
from gpuflow.kubernetes.admission.pod import Body, read_object, read_text
from gpuflow.kubernetes.objects import Amounts, Container, PodTemplate, Resources
from gpuflow.kubernetes.resources import BadField, ResourceList, read_map, read_maps, read_resource_list, read_texts
from gpuflow.quantity import NANO, Quantity

IGNORE_UNDECLARED = "IgnoreUndeclared"
STRATEGIES = ("BlockUndeclared", IGNORE_UNDECLARED)
INPUT_STRATEGIES = ("Retain", "Replace")
EXPECTED_GATES = {
    "AdmissionGatedBy": True,
    "ConcurrentAdmission": False,
    "FlavorFungibility": True,
    "FlavorFungibilityPreserveScanProgress": True,
    "KueueDRAIntegration": True,
    "MultiKueueOrchestratedPreemption": False,
    "PartialAdmission": True,
    "PriorityBoost": False,
    "PrioritySortingWithinCohort": True,
    "QuotaCheckStrategy": True,
    "ReclaimablePods": True,
    "SchedulerTimestampPreemptionBuffer": False,
    "TopologyAwareScheduling": True,
    "VectorizedResourceRequests": True,
    "WorkloadPriorityClassDefaulting": False,
}
"""Feature gates that change the answer, as Kueue 0.19 sets them and as they are followed here."""

TOPOLOGY_GATES = {
    "ElasticJobsViaWorkloadSlicesWithTAS": False,
    "SchedulerLibraryIntegration": False,
    "TASBalancedPlacement": False,
    "TASHandleOverlappingFlavors": True,
    "TASProfileMixed": True,
    "TASRespectNodeAffinityPreferred": False,
}
"""The same, of what only pods that are placed by topology meet."""


class Transformation(NamedTuple):
    """One resource counted as others: so much of each output for every unit of the input."""

    keeps_input: bool
    multiplied_by: str
    outputs: ResourceList


class Configuration(NamedTuple):
    excluded: tuple[str, ...] = ()
    transformations: Mapping[str, Transformation] = {}
    ignores_undeclared: bool = False
    orders_by_eviction: bool = True
    fair_sharing: bool = False
    unmodeled: tuple[str, ...] = ()
    """What is set and not followed here."""
    unmodeled_places: tuple[str, ...] = ()
    """The same, of topology-aware scheduling."""


def read_configuration(manifest: object) -> Configuration:
    """Kueue's `Configuration`, of v1beta1 or v1beta2; `None` for its defaults."""
    if manifest is None:
        return Configuration()
    manifest = read_object(manifest, "Configuration")
    resources = read_map(manifest.get("resources"), "Configuration: resources")
    ready = read_map(manifest.get("waitForPodsReady"), "Configuration: waitForPodsReady")
    requeuing = read_map(ready.get("requeuingStrategy"), "Configuration: waitForPodsReady.requeuingStrategy")
    return Configuration(
        tuple(read_texts(resources.get("excludeResourcePrefixes"), "Configuration: resources.excludeResourcePrefixes")),
        _read_transformations(resources.get("transformations"), "Configuration: resources.transformations"),
        read_choice(resources, "quotaCheckStrategy", "Configuration: resources", STRATEGIES) == IGNORE_UNDECLARED,
        read_text(requeuing, "timestamp", "Configuration: waitForPodsReady.requeuingStrategy") != "Creation",
        _is_on(manifest, "fairSharing"),
        tuple(_unmodeled_notes(manifest)),
        tuple(_other_gates(manifest, TOPOLOGY_GATES)),
    )


def _read_transformations(value: object, where: str) -> dict[str, Transformation]:
    found: dict[str, Transformation] = {}
    for index, item in enumerate(read_maps(value, where)):
        at = f"{where}[{index}]"
        name = read_text(item, "input", at) or ""
        if name in found:
            raise BadField(at, f"a second transformation of {name}")
        found[name] = Transformation(
            read_choice(item, "strategy", at, INPUT_STRATEGIES) != "Replace",
            read_text(item, "multiplyBy", at) or "",
            read_resource_list(item.get("outputs"), f"{at}.outputs"),
        )
    return found


def _unmodeled_notes(manifest: Body) -> list[str]:
    notes = []
    if _is_on(manifest, "admissionFairSharing"):
        notes.append("admissionFairSharing orders queues and victims by past usage")
    ready = read_map(manifest.get("waitForPodsReady"), "Configuration: waitForPodsReady")
    # v1beta1 blocks unless told otherwise; v1beta2 does not.
    blocks = ready.get("blockAdmission", ready.get("enable", False))
    if ready.get("enable", True) is True and blocks is True:
        notes.append("waitForPodsReady.blockAdmission holds a workload back until the pods of others are ready")
    return [*notes, *_other_gates(manifest, EXPECTED_GATES)]


def _other_gates(manifest: Body, followed: Mapping[str, bool]) -> list[str]:
    """The feature gates that are not set as they are followed here."""
    gates = read_map(manifest.get("featureGates"), "Configuration: featureGates")
    return [
        f"feature gate {name} is {str(gates[name]).lower()}"
        for name, expected in followed.items()
        if gates.get(name, expected) is not expected
    ]


def _is_on(manifest: Body, section: str) -> bool:
    """Whether a section is there; v1beta1 can also write it out and switch it off."""
    if manifest.get(section) is None:
        return False
    return read_map(manifest[section], f"Configuration: {section}").get("enable", True) is not False


ABOVE_LIMITS = "requests must not exceed its limits"
ABOVE_MAXIMUM = "requests must not be above the limitRange max"
BELOW_MINIMUM = "requests must not be below the limitRange min"


class LimitBounds(NamedTuple):
    minimum: dict[str, Quantity]
    maximum: dict[str, Quantity]


class LimitSummary(NamedTuple):
    """All LimitRanges of a namespace: the narrowest bounds, and of defaults the first."""

    default_requests: dict[str, Quantity]
    default_limits: dict[str, Quantity]
    bounds: dict[str, LimitBounds]


def summarize(limit_ranges: Iterable[LimitRange]) -> LimitSummary:
    summary = LimitSummary({}, {}, {})
    for each in limit_ranges:
        for name, quantity in each.default_requests.items():
            summary.default_requests.setdefault(name, quantity)
        for name, quantity in each.default_limits.items():
            summary.default_limits.setdefault(name, quantity)
        for item in each.bounds:
            bounds = summary.bounds.setdefault(item.kind, LimitBounds({}, {}))
            for name, quantity in item.minimum.items():
                bounds.minimum[name] = max(quantity, bounds.minimum.get(name, quantity))
            for name, quantity in item.maximum.items():
                bounds.maximum[name] = min(quantity, bounds.maximum.get(name, quantity))
    return summary


def adjust_resources(
    template: PodTemplate, limits: LimitSummary, runtime_classes: Mapping[str, RuntimeClass]
) -> PodTemplate:
    """The template as Kueue charges it: with overhead, LimitRange defaults, and limits for missing requests."""
    overhead = template.overhead
    runtime = runtime_classes.get(template.runtime_class_name)
    if runtime and not overhead:
        overhead = Amounts(runtime.overhead)

    def fill_defaults(container: Container) -> Container:
        given = {**limits.default_limits, **container.resources.limits}
        requests = {**given, **limits.default_requests, **container.resources.requests}
        return replace(container, resources=Resources(Amounts(requests), Amounts(given)))

    level = template.resources
    return replace(
        template,
        containers=tuple(map(fill_defaults, template.containers)),
        init_containers=tuple(map(fill_defaults, template.init_containers)),
        resources=level and Resources(Amounts({**level.limits, **level.requests}), level.limits),
        overhead=overhead,
    )


def pod_amounts(template: PodTemplate, configuration: Configuration) -> dict[str, int]:
    """What one pod is charged, in the order in which Kueue visits resources."""
    requests = {
        name: quantity for name, quantity in template.requests().items() if not name.startswith(configuration.excluded)
    }
    if configuration.transformations.keys().isdisjoint(requests):
        amounts = {name: request_amount(name, quantity) for name, quantity in requests.items()}
    else:
        amounts = {
            name: exact_amount(name, nano)
            for name, nano in _apply_resource_transformations(requests, configuration).items()
        }
    return in_visiting_order({name: max(0, amount) for name, amount in amounts.items()})


def _apply_resource_transformations(requests: ResourceList, configuration: Configuration) -> dict[str, Fraction]:
    retained: dict[str, Fraction] = {}
    generated: dict[str, Fraction] = {}
    for name, quantity in requests.items():
        rule = configuration.transformations.get(name)
        if rule is None or rule.keeps_input:
            retained[name] = Fraction(quantity.nano)
        if rule is None:
            continue
        amount = Fraction(quantity.nano)
        if rule.multiplied_by in requests:
            amount *= Fraction(requests[rule.multiplied_by].nano, NANO)
        for output, factor in rule.outputs.items():
            generated[output] = generated.get(output, Fraction(0)) + amount * Fraction(factor.nano, NANO)
    for name, nano in generated.items():
        retained[name] = retained.get(name, Fraction(0)) + max(nano, Fraction(0))
    return retained


def request_faults(template: PodTemplate, where: str) -> Iterator[str]:
    """Requests above limits, in Kueue's words."""
    named = [
        *((f"{where}.initContainers[{index}]", each.resources) for index, each in enumerate(template.init_containers)),
        *((f"{where}.containers[{index}]", each.resources) for index, each in enumerate(template.containers)),
        *([(f"{where}.resources", template.resources)] if template.resources else []),
    ]
    for field, resources in named:
        yield from _fault(field, _greater_keys(resources.requests, resources.limits), ABOVE_LIMITS)


def limit_range_faults(template: PodTemplate, limits: LimitSummary, where: str) -> Iterator[str]:
    """Bounds of LimitRanges that the template does not keep, in Kueue's words."""
    bounds = limits.bounds.get("Container")
    if bounds:
        for field, containers in (("initContainers", template.init_containers), ("containers", template.containers)):
            for index, each in enumerate(containers):
                at = f"{where}.{field}[{index}]"
                most, least = (_merge_resource_list(each.resources, choose) for choose in (max, min))
                yield from _fault(at, _greater_keys(most, bounds.maximum), ABOVE_MAXIMUM)
                yield from _fault(at, _greater_keys(bounds.minimum, least), BELOW_MINIMUM)
    bounds = limits.bounds.get("Pod")
    if bounds:
        total = template.requests()
        yield from _fault(where, _greater_keys(total, bounds.maximum), ABOVE_MAXIMUM)
        yield from _fault(where, _greater_keys(bounds.minimum, total), BELOW_MINIMUM)


def _merge_resource_list(resources: Resources, choose: Callable[[Quantity, Quantity], Quantity]) -> dict[str, Quantity]:
    merged = dict(resources.requests)
    for name, quantity in resources.limits.items():
        merged[name] = choose(merged.get(name, quantity), quantity)
    return merged


def _greater_keys(left: ResourceList, right: ResourceList) -> list[str]:
    return sorted(
        name
        for name, quantity in left.items()
        if name in right and request_amount(name, quantity) > request_amount(name, right[name])
    )


def _fault(field: str, names: list[str], detail: str) -> Iterator[str]:
    if names:
        listed = ",".join(f'"{name}"' for name in names)
        yield f"{field}: Invalid value: [{listed}]: {detail}"


GATE = "kueue.x-k8s.io/admission-gated-by"
CLAIMS_REFUSED = "KueueDRAIntegration feature does not support use of resource claims"
NAMESPACE_MISMATCH = "workload namespace doesn't match ClusterQueue selector"


class ClusterFacts(NamedTuple):
    """What is known of the cluster around the queues; `None` where nothing is."""

    flavors: Mapping[str, Flavor]
    cyclic: Collection[str]
    admission_checks: Mapping[str, bool] | None
    """The AdmissionChecks, and whether each is active."""
    topologies: Collection[str] | None


def workload_refusal(workload: Workload) -> Refusal | None:
    """Why the workload is not queued at all, by what it says itself."""
    if any("resourceClaimName" in pod_set.claims for pod_set in workload.pod_sets):
        return Refusal(InadmissibleReason.CLAIMS, CLAIMS_REFUSED)
    if not workload.is_active:
        return Refusal(InadmissibleReason.DEACTIVATED, "The workload is deactivated")
    gate = workload.annotations.get(GATE)
    return Refusal(InadmissibleReason.GATED, f"Admission is gated by: {gate}") if gate else None


def queue_refusal(name: str, queue: LocalQueue | None, cluster_queue: ClusterQueue | None) -> Refusal | None:
    """Why its LocalQueue has no usable ClusterQueue."""
    if queue is None:
        return Refusal(InadmissibleReason.NO_LOCAL_QUEUE, f"LocalQueue {name} doesn't exist")
    if queue.is_stopped:
        return Refusal(InadmissibleReason.LOCAL_QUEUE_STOPPED, f"LocalQueue {name} is inactive")
    if cluster_queue is None:
        return Refusal(InadmissibleReason.NO_CLUSTER_QUEUE, f"ClusterQueue {queue.cluster_queue} doesn't exist")
    return None


def inactive_reason(queue: ClusterQueue, known: ClusterFacts) -> str | None:
    """Why a ClusterQueue admits nothing, in the words of its Active condition, and `None` when it does."""
    if queue.is_terminating:
        return "Can't admit new workloads; clusterQueue is terminating"
    reasons = ["is stopped"] if queue.is_stopped else []
    missing = [name for name in queue.flavors if name not in known.flavors]
    if missing:
        reasons.append(f"references missing ResourceFlavor(s): {','.join(missing)}")
    if known.admission_checks is not None:
        names = sorted({check.name for check in queue.checks})
        unknown = [name for name in names if name not in known.admission_checks]
        resting = [name for name in names if not known.admission_checks.get(name, True)]
        if unknown:
            reasons.append(f"references missing AdmissionCheck(s): {','.join(unknown)}")
        if resting:
            reasons.append(f"references inactive AdmissionCheck(s): {','.join(resting)}")
    if known.topologies is not None:
        for name in queue.flavors:
            topology = known.flavors[name].topology if name in known.flavors else None
            if topology is not None and topology not in known.topologies:
                reasons.append(f'there is no Topology "{topology}" for TAS flavor "{name}"')
    if reasons:
        return f"Can't admit new workloads: {', '.join(reasons)}."
    if queue.cohort in known.cyclic:
        return f"Cohort {queue.cohort} is, or lies below, a cycle of cohorts."
    return None


def admissibility_refusal(
    workload: Workload,
    queue: ClusterQueue,
    labels: Mapping[str, str],
    templates: tuple[PodTemplate, ...],
    limits: LimitSummary,
) -> Refusal | None:
    """Why the scheduler refuses it before it looks for flavors."""
    if workload.check_states & {"Retry", "Rejected"}:
        return Refusal(InadmissibleReason.FAILED_CHECKS, "The workload has failed admission checks")
    if queue.selector is None or not queue.selector.matches(labels):
        return Refusal(InadmissibleReason.NAMESPACE, NAMESPACE_MISMATCH)
    places = [(template, f"spec.podSets[{index}].template.spec") for index, template in enumerate(templates)]
    faults = [fault for template, where in places for fault in request_faults(template, where)]
    if faults:
        return Refusal(InadmissibleReason.RESOURCES, f"resources validation failed: {_aggregate(faults)}")
    faults = [fault for template, where in places for fault in limit_range_faults(template, limits, where)]
    if faults:
        text = f"resources didn't satisfy LimitRange constraints: {_aggregate(faults)}"
        return Refusal(InadmissibleReason.LIMIT_RANGE, text)
    return None


def _aggregate(faults: list[str]) -> str:
    return faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]"
