"""Validation of requests and limits: the 422 of a pod whose resources do not make sense.

Mirrors the part of k8s.io/kubernetes/pkg/apis/core/validation.ValidatePodCreate that checks resources, Kubernetes
v1.36.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from gpuflow.kubernetes.admission.clauses import (
    INVALID,
    REQUIRED,
    FieldError,
    LimitRequired,
    RequestAboveLimit,
    forbidden,
    invalid,
    quoted,
    unsupported,
)
from gpuflow.kubernetes.admission.names import (
    allows_overcommit,
    container_resource_faults,
    is_counted,
    resource_faults,
)
from gpuflow.kubernetes.admission.pod import Pod
from gpuflow.quantity import NANO, Quantity
from gpuflow.resources import HUGEPAGES, ResourceList, is_hugepages, is_pod_level


class Rule(NamedTuple):
    """What holds for one resource name, wherever it stands."""

    faults: tuple[str, ...]
    supported: bool
    counted: bool
    overcommit: bool
    hugepages: bool
    page: int | None
    plain: bool
    """Whether every whole amount of it is good."""


NO_OVERCOMMIT: Final = "Limit must be set for non overcommitable resources"
BASIC: Final = frozenset({"cpu", "memory"})
"""Allowed everywhere, in any amount that is not negative."""


@lru_cache(maxsize=4096)
def container_rule(name: str) -> Rule:
    return _rule(name, container_resource_faults(name), True)


@lru_cache(maxsize=4096)
def pod_level_rule(name: str) -> Rule:
    faults = resource_faults(name)
    return _rule(name, faults, bool(faults) or is_pod_level(name))


def _rule(name: str, faults: tuple[str, ...], supported: bool) -> Rule:
    hugepages = is_hugepages(name)
    page = _page_size(name) if hugepages else None
    plain = not faults and supported and not hugepages
    return Rule(faults, supported, is_counted(name), allows_overcommit(name), hugepages, page, plain)


def _page_size(name: str) -> int | None:
    try:
        page = Quantity(name.removeprefix(HUGEPAGES))
    except ValueError:
        return None
    return page.value if page.nano > 0 and page.milli % 1000 == 0 else None


def requirement_faults(
    requests: ResourceList, limits: ResourceList, field: str, rule_of: Callable[[str], Rule] = container_rule
) -> Iterator[FieldError]:
    """The faults of one pair of requests and limits at `field`."""
    hugepages = False
    for name, quantity in limits.items():
        if name in BASIC and quantity.nano >= 0:
            continue
        rule = rule_of(name)
        hugepages = hugepages or rule.hugepages
        if not rule.plain or quantity.nano < 0 or quantity.nano % NANO:
            yield from _entry_faults(name, quantity, rule, f"{field}.limits[{name}]")
    for name, quantity in requests.items():
        limit = limits.get(name)
        if name in BASIC and quantity.nano >= 0 and (limit is None or quantity.nano <= limit.nano):
            continue
        rule = rule_of(name)
        hugepages = hugepages or rule.hugepages
        if not rule.plain or quantity.nano < 0 or quantity.nano % NANO:
            yield from _entry_faults(name, quantity, rule, f"{field}.requests[{name}]")
        if limit is None:
            if not rule.overcommit:
                yield LimitRequired(REQUIRED, f"{field}.limits", None, NO_OVERCOMMIT)
        elif not rule.overcommit:
            if quantity != limit:
                detail = f"must be equal to {name} limit of {limit.text}"
                yield invalid(f"{field}.requests", quantity.text, detail)
        elif quantity > limit:
            detail = f"must be less than or equal to {name} limit of {limit.text}"
            yield RequestAboveLimit(INVALID, f"{field}.requests", quoted(quantity.text), detail, name)
    if hugepages and BASIC.isdisjoint(limits) and BASIC.isdisjoint(requests):
        yield forbidden(field, "HugePages require cpu or memory")


def _entry_faults(name: str, quantity: Quantity, rule: Rule, field: str) -> Iterator[FieldError]:
    for fault in rule.faults:
        yield invalid(field, name, fault)
    if not rule.supported:
        yield unsupported(field, name, ("cpu", HUGEPAGES, "memory"))
    if quantity.nano < 0:
        yield invalid(field, quantity.text, "must be greater than or equal to 0")
    if rule.counted and quantity.nano % NANO:
        yield invalid(field, quantity.text, "must be an integer")
    if rule.hugepages and (rule.page is None or quantity.value % rule.page):
        yield invalid(field, quantity.text, f"{quantity.text} is not positive integer multiple of {name}")


def pod_level_faults(pod: Pod) -> Iterator[FieldError]:
    """Pod-level resources must make sense by themselves and leave room for the containers."""
    if pod.level is None:
        return
    requests, limits = pod.level
    yield from requirement_faults(requests, limits, "spec.resources", pod_level_rule)
    for name, total in pod.container_requests.items():
        if name in requests and total > requests[name]:
            detail = f"must be greater than or equal to aggregate container requests of {total.text}"
            yield invalid(f"spec.resources.requests[{name}]", requests[name].text, detail)
    for name, total in pod.container_limits.items():
        if is_hugepages(name) and name in limits and total > limits[name]:
            detail = f"must be greater than or equal to aggregate container limits of {total.text}"
            yield invalid(f"spec.resources.limits[{name}]", limits[name].text, detail)
    for index, container in enumerate(pod.containers):
        for name, limit in container.limits.items():
            if name in limits and limit > limits[name]:
                field = f"spec.resources.containers[{index}][{name}].limits"
                yield invalid(field, limit.text, f"must be less than or equal to pod limits of {limits[name].text}")
