"""Extended resources that a class of devices stands for: a pod that asks for them gets a claim of its own.

Mirrors k8s.io/dynamic-resource-allocation/deviceclass/extendedresourcecache.ExtendedResourceCache and
k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources.createRequestsAndMappings, Kubernetes v1.36.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from gpuflow.checker.dra.objects import EXACT_COUNT, Claim, DeviceClass, Request
from gpuflow.kubernetes.admission.pod import Container, Pod

CLAIM: Final = "<extended-resources>"


def classes_by_resource(classes: Iterable[DeviceClass]) -> dict[str, DeviceClass]:
    """The class behind each extended resource: of several the newest, then the one whose name comes first."""
    found: dict[str, DeviceClass] = {}
    for each in sorted(classes, key=lambda each: each.name):
        found[each.implicit_resource] = each
        resource = each.extended_resource
        if resource is not None and (resource not in found or each.created > found[resource].created):
            found[resource] = each
    return found


def contested(classes: Iterable[DeviceClass]) -> frozenset[str]:
    """The resources of classes that lost theirs to another class: whether the scheduler then knows the class by its own
    name depends on which of the two it saw first."""
    known = list(classes)
    winners = classes_by_resource(known)
    return frozenset(
        each.implicit_resource
        for each in known
        if each.extended_resource is not None and winners[each.extended_resource] is not each
    )


def extended_claim(pod: Pod, resources: Mapping[str, DeviceClass]) -> Claim:
    """The claim that the scheduler makes for the extended resources of a pod which a node has only as devices."""
    containers = [(each, not each.is_sidecar) for each in pod.init_containers]
    containers += [(each, False) for each in pod.containers]
    requests: list[Request] = []
    for resource in sorted(resources):
        asked = [_amount(each, resource) for each, _ in containers]
        name = resources[resource].name
        most: Request | None = None
        for index, (_, is_short_lived) in enumerate(containers):
            if not asked[index]:
                continue
            if not is_short_lived:
                requests.append(_request(index, containers[index][0], resource, name, asked[index]))
                continue
            # What runs before the others may use their devices first.
            reusable = sum(asked[at] for at in range(index, len(containers)) if not containers[at][1])
            more = asked[index] - reusable
            if more > 0 and (most is None or most.devices < more):
                most = _request(index, containers[index][0], resource, name, more)
        if most is not None:
            requests.append(most)
    return Claim(CLAIM, tuple((each,) for each in sorted(requests, key=lambda each: each.name)), ())


def _amount(container: Container, resource: str) -> int:
    quantity = container.requests.get(resource)
    return 0 if quantity is None else quantity.value


def _request(index: int, container: Container, resource: str, device_class: str, count: int) -> Request:
    position = sorted(container.requests).index(resource)
    name = f"container-{index}-request-{position}"
    return Request(name, None, device_class, (), EXACT_COUNT, count, False, (), None)
