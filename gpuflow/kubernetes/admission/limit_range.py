"""LimitRange: defaults for containers that say nothing, and bounds that every container and pod must keep.

Mirrors k8s.io/kubernetes/plugin/pkg/admission/limitranger.PodMutateLimitFunc and PodValidateLimitFunc, Kubernetes
v1.36.3.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from gpuflow.kubernetes.admission.field_errors import sort_reasons
from gpuflow.kubernetes.admission.pod import Body, Container, Pod, read_object, read_once, read_text, round_to_milli
from gpuflow.kubernetes.objects import LimitRangeSpec, decode
from gpuflow.kubernetes.resources import ResourceList, read_map, read_resource_list
from gpuflow.quantity import MAX_INT64, Quantity

MAX_COMPARED_IN_MILLI = MAX_INT64 // 1000


class Bounds(NamedTuple):
    kind: str
    minimum: ResourceList
    maximum: ResourceList
    ratio: ResourceList


class LimitRange(NamedTuple):
    name: str
    namespace: str | None
    default_requests: ResourceList
    default_limits: ResourceList
    bounds: tuple[Bounds, ...]


class BoundViolation(NamedTuple):
    """What breaks one bound of a LimitRange."""

    bound: Literal["minimum", "maximum", "ratio"]
    resource: str
    kind: str
    """What the bound is for: Container, Pod or PersistentVolumeClaim."""
    amount: Quantity
    side: Literal["request", "limit"] | None
    """Which of the two breaks it; `None` where both do, by their ratio."""
    given: str | None = None
    """What it says, or the ratio; `None` where it says nothing."""

    def sentence(self) -> str:
        if self.bound == "ratio":
            fault = (
                f"no {self.side} is specified or {self.side} is 0" if self.side else f"provided ratio is {self.given}"
            )
            return f"{self.resource} max limit to request ratio per {self.kind} is {self.amount.text}, but {fault}"
        fault = f".  No {self.side} is specified" if self.given is None else f", but {self.side} is {self.given}"
        return f"{self.bound} {self.resource} usage per {self.kind} is {self.amount.text}{fault}"


def read_limit_range(manifest: Body | LimitRange) -> LimitRange:
    """A LimitRange as the server stores it: for containers `max` gives a default limit, and that or `min` a
    default request."""
    return manifest if isinstance(manifest, LimitRange) else read_once(_read_limit_range, manifest)


def _read_limit_range(manifest: Body) -> LimitRange:
    metadata = read_map(read_object(manifest, "LimitRange").get("metadata"), "LimitRange metadata")
    name = read_text(metadata, "name", "LimitRange metadata") or ""
    default_requests: dict[str, Quantity] = {}
    default_limits: dict[str, Quantity] = {}
    bounds = []
    for item in decode(LimitRangeSpec, manifest.get("spec"), f"LimitRange {name}: spec").limits:
        listed = item.min, item.max, item.max_limit_request_ratio, item.default, item.default_request
        minimum, maximum, ratio, limit, request = map(round_to_milli, listed)
        if item.type == "Container":
            limit = {**maximum, **limit}
            default_requests.update({**minimum, **limit, **request})
            default_limits.update(limit)
        bounds.append(Bounds(item.type, minimum, maximum, ratio))
    return LimitRange(
        name, read_text(metadata, "namespace", "LimitRange metadata"), default_requests, default_limits, tuple(bounds)
    )


def with_defaults(pod: Pod, limit_range: LimitRange) -> Pod:
    """The pod with the default requests and limits given to every container that lacks them."""
    default_requests, default_limits = limit_range.default_requests.keys(), limit_range.default_limits.keys()
    for each in pod.every_container:
        if not (default_requests <= each.requests.keys() and default_limits <= each.limits.keys()):
            break
    else:
        return pod
    notes: list[str] = []
    containers = tuple(_fill(each, "container", limit_range, notes) for each in pod.containers)
    init_containers = tuple(_fill(each, "init container", limit_range, notes) for each in pod.init_containers)
    note = f"LimitRanger plugin set: {'; '.join(notes)}"
    return pod._replace(containers=containers, init_containers=init_containers, limit_ranger_note=note)


def _fill(container: Container, kind: str, limit_range: LimitRange, notes: list[str]) -> Container:
    requests = limit_range.default_requests.keys() - container.requests.keys()
    limits = limit_range.default_limits.keys() - container.limits.keys()
    if not requests and not limits:
        return container
    if requests:
        notes.append(f"{', '.join(sorted(requests))} request for {kind} {container.name}")
    if limits:
        notes.append(f"{', '.join(sorted(limits))} limit for {kind} {container.name}")
    return container._replace(
        requests={**limit_range.default_requests, **container.requests},
        limits={**limit_range.default_limits, **container.limits},
    )


def broken_bounds(pod: Pod, limit_range: LimitRange) -> tuple[BoundViolation, ...]:
    """What the pod breaks of one LimitRange."""
    broken: list[BoundViolation] = []
    for bounds in limit_range.bounds:
        if bounds.kind == "Container":
            for container in pod.every_container:
                broken += _violations(bounds, container.requests, container.limits)
        elif bounds.kind == "Pod":
            broken += _violations(bounds, _pod_total(pod, "requests"), _pod_total(pod, "limits"))
    return sort_reasons(broken) if broken else ()


def containers_that_break(pod: Pod, violation: BoundViolation) -> tuple[str, ...]:
    """The containers that a violation of a bound on containers is about."""
    bounds: dict[str, ResourceList] = {violation.bound: {violation.resource: violation.amount}}
    alone = Bounds("Container", bounds.get("minimum", {}), bounds.get("maximum", {}), bounds.get("ratio", {}))
    return tuple(
        each.name for each in pod.every_container if violation in _violations(alone, each.requests, each.limits)
    )


def broken_claim_bounds(claim: Body, limit_range: LimitRange) -> tuple[BoundViolation, ...]:
    """What a PersistentVolumeClaim breaks of one LimitRange: only its requests are looked at."""
    resources = read_map(read_map(claim.get("spec"), "spec").get("resources"), "spec.resources")
    requests = read_resource_list(resources.get("requests"), "spec.resources.requests")
    broken: list[BoundViolation] = []
    for kind, minimum, maximum, _ in limit_range.bounds:
        if kind != "PersistentVolumeClaim":
            continue
        broken += _violations(Bounds(kind, minimum, {}, {}), requests, {})
        for name, bound in maximum.items():
            request = requests.get(name)
            if request is None:
                broken.append(BoundViolation("maximum", name, kind, bound, "request"))
            elif _is_less(bound, request):
                broken.append(BoundViolation("maximum", name, kind, bound, "request", request.text))
    return sort_reasons(broken)


def _pod_total(pod: Pod, side: str) -> ResourceList:
    """The pod as a LimitRange sees it: without overhead, and only cpu and memory from the pod level."""
    total = pod.container_requests if side == "requests" else pod.container_limits
    if pod.level is None:
        return total
    level: ResourceList = getattr(pod.level, side)
    return {**total, **{name: level[name] for name in ("cpu", "memory") if name in level}}


def _violations(bounds: Bounds, requests: ResourceList, limits: ResourceList) -> list[BoundViolation]:
    broken: list[BoundViolation] = []
    for name, bound in bounds.minimum.items():
        request, limit = requests.get(name), limits.get(name)
        if request is None:
            broken.append(BoundViolation("minimum", name, bounds.kind, bound, "request"))
        elif request.nano < bound.nano and _is_less(request, bound, limit):
            broken.append(BoundViolation("minimum", name, bounds.kind, bound, "request", request.text))
        elif limit is not None and limit.nano < bound.nano and _is_less(limit, bound, request):
            broken.append(BoundViolation("minimum", name, bounds.kind, bound, "limit", limit.text))
    for name, bound in bounds.maximum.items():
        request, limit = requests.get(name), limits.get(name)
        if limit is None:
            broken.append(BoundViolation("maximum", name, bounds.kind, bound, "limit"))
        elif bound.nano < limit.nano and _is_less(bound, limit, request):
            broken.append(BoundViolation("maximum", name, bounds.kind, bound, "limit", limit.text))
        elif request is not None and bound.nano < request.nano and _is_less(bound, request, limit):
            broken.append(BoundViolation("maximum", name, bounds.kind, bound, "request", request.text))
    for name, bound in bounds.ratio.items():
        violation = _ratio_violation(name, bounds.kind, bound, requests.get(name), limits.get(name))
        if violation:
            broken.append(violation)
    return broken


def _ratio_violation(
    name: str, kind: str, bound: Quantity, request: Quantity | None, limit: Quantity | None
) -> BoundViolation | None:
    if not request:
        return BoundViolation("ratio", name, kind, bound, "request")
    if not limit:
        return BoundViolation("ratio", name, kind, bound, "limit")
    if _fits_milli(request, limit, bound):
        ratio = float(limit.milli) / float(request.milli)
    else:
        ratio = float(limit.value) / float(request.value)
    exceeded = ratio * 1000 > float(bound.milli) if _fits_milli(bound) else ratio > float(bound.value)
    return BoundViolation("ratio", name, kind, bound, None, f"{ratio:f}") if exceeded else None


def _is_less(left: Quantity, right: Quantity, third: Quantity | None = None) -> bool:
    """Compared in thousandths, or in whole units where one of the three is too large for that."""
    return left < right and (_fits_milli(left, right, third) or left.value < right.value)


def _fits_milli(*quantities: Quantity | None) -> bool:
    return all(each is None or each.value <= MAX_COMPARED_IN_MILLI for each in quantities)
