"""Resources in the scheduler's units: thousandths of a cpu, whole numbers of everything else.

Mirrors k8s.io/component-helpers/resource.PodRequests, Kubernetes v1.36.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from gpuflow.kubernetes import objects
from gpuflow.kubernetes.admission.field_errors import is_extended
from gpuflow.kubernetes.admission.pod import (
    EMPTY,
    Container,
    Requirements,
    default_level,
    read_text,
    round_container,
    round_to_milli,
)
from gpuflow.kubernetes.objects import BoundPod
from gpuflow.kubernetes.resources import (
    ResourceList,
    aggregate,
    combine_requests,
    is_hugepages,
    is_pod_level,
    read_map,
    read_maps,
    read_resource_list,
)
from gpuflow.quantity import Format, Quantity

Amounts = dict[str, int]


@lru_cache(maxsize=4096)
def is_scheduled(name: str) -> bool:
    """Whether the scheduler looks at a resource."""
    return (
        name in ("cpu", "memory", "ephemeral-storage")
        or is_hugepages(name)
        or "kubernetes.io/" in name
        or name.startswith("attachable-volumes-")
        or is_extended(name)
    )


def amounts(resources: ResourceList) -> Amounts:
    return {
        name: quantity.milli if name == "cpu" else quantity.value
        for name, quantity in resources.items()
        if is_scheduled(name)
    }


def positive_amounts(resources: ResourceList) -> Amounts:
    """The amounts above zero: a request of zero is never short."""
    return {name: amount for name, amount in amounts(resources).items() if amount > 0}


def sum_amounts(many: Iterable[Amounts]) -> Amounts:
    """What several ask for together."""
    total: Amounts = {}
    for each in many:
        for name, amount in each.items():
            total[name] = total.get(name, 0) + amount
    return total


def as_quantity(name: str, amount: int) -> Quantity:
    """An amount as a person writes it."""
    if name == "cpu":
        return Quantity.from_nano(amount * 10**6)
    binary = name in ("memory", "ephemeral-storage") or is_hugepages(name)
    return Quantity.from_units(amount, Format.BINARY_SI if binary else Format.DECIMAL_SI)


def held_amounts(pod: BoundPod, status: Mapping[str, Any]) -> Amounts:
    """What a bound pod takes of its node.

    A container that is being resized counts with the largest of what it wants, runs with and was allocated, and
    without what it wants once the node called that infeasible.
    """
    spec, said = pod.spec, pod.status
    is_resized = bool(said.container_statuses or said.init_container_statuses or said.resources)
    if len(spec.containers) == 1 and not (is_resized or spec.init_containers or spec.resources or spec.overhead):
        return _alone(spec.containers[0].resources.requests, spec.containers[0].resources.limits)
    containers, init_containers = (tuple(map(_container, each)) for each in (spec.containers, spec.init_containers))
    level = EMPTY
    if spec.resources is not None:
        asked = default_level(containers, init_containers, Requirements(spec.resources.requests, spec.resources.limits))
        level = round_to_milli(asked.requests)
    containers, init_containers = (tuple(map(round_container, each)) for each in (containers, init_containers))
    if is_resized:
        total, level = _effective_requests(containers, init_containers, level, status)
    else:
        total = aggregate(
            (each.requests for each in containers), ((each.requests, each.is_sidecar) for each in init_containers)
        )
    if level or spec.overhead:
        total = combine_requests(dict(total), level, round_to_milli(spec.overhead))
    return positive_amounts(total)


@lru_cache(maxsize=4096)
def _alone(requests: objects.Amounts, limits: objects.Amounts) -> Amounts:
    """What a container takes that is the only one of its pod; so many pods ask for the same that it is kept."""
    return positive_amounts(round_to_milli({**requests, **limits, **requests}))


def _container(container: objects.Container) -> Container:
    requests, limits = container.resources.requests, container.resources.limits
    wanted = {**requests, **limits, **requests}  # what only the limits name is asked for too
    return Container(container.name, wanted, limits, container.is_sidecar, EMPTY)


def _effective_requests(
    containers: tuple[Container, ...],
    init_containers: tuple[Container, ...],
    level: ResourceList,
    status: Mapping[str, Any],
) -> tuple[ResourceList, ResourceList]:
    """The sum of the containers and the amounts of the pod as a whole, with what the status says of them."""
    conditions = read_maps(status.get("conditions"), "status.conditions")
    pending = next((each for each in conditions if each.get("type") == "PodResizePending"), {})
    infeasible = pending.get("reason") == "Infeasible"
    states = {
        read_text(state, "name", f"status.{field}[{index}]"): (state, f"status.{field}[{index}]")
        for field in ("containerStatuses", "initContainerStatuses")
        for index, state in enumerate(read_maps(status.get(field), f"status.{field}"))
    }

    def largest(wanted: ResourceList, state: Mapping[str, Any], where: str) -> ResourceList:
        running = read_map(state["resources"], f"{where}.resources").get("requests")
        total = {} if infeasible else dict(wanted)
        for other in (
            read_resource_list(running, f"{where}.resources.requests"),
            read_resource_list(state.get("allocatedResources"), f"{where}.allocatedResources"),
        ):
            for name, quantity in other.items():
                total[name] = max(quantity, total.get(name, quantity))
        return total

    def requests(container: Container) -> ResourceList:
        state, where = states.get(container.name, (EMPTY, ""))
        return container.requests if state.get("resources") is None else largest(container.requests, state, where)

    total = aggregate(
        map(requests, containers),
        ((requests(each) if each.is_sidecar else each.requests, each.is_sidecar) for each in init_containers),
    )
    if status.get("resources") is not None and any(map(is_pod_level, level)):
        effective = largest(level, status, "status")
        level = {name: effective.get(name, Quantity.zero) for name in level}
    return total, level
