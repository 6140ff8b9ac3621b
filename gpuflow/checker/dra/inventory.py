"""The devices of a snapshot (classes, slices, claims, templates), and what the pods of a pipeline ask of them.

Pods ask through claims from templates, claims by name, and extended resources that a class of devices stands for: a
pod that asks for such a resource gets a claim of its own.

Mirrors k8s.io/dynamic-resource-allocation/deviceclass/extendedresourcecache.ExtendedResourceCache and
k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources.createRequestsAndMappings, Kubernetes v1.36.3.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Final, TypeVar

from gpuflow.checker.dra.allocator import AllocatedState, Allocator
from gpuflow.checker.dra.objects import (
    EXACT_COUNT,
    Claim,
    DeviceClass,
    Request,
    read_claim,
    read_device_class,
    read_slice,
)
from gpuflow.cluster import Cluster, Manifest
from gpuflow.core.errors import Finding, GpuflowError
from gpuflow.kubernetes.admission.field_errors import is_extended
from gpuflow.kubernetes.admission.pod import Body, Container, Pod, read_pod, read_text
from gpuflow.kubernetes.objects import NodeSelector, read_as
from gpuflow.kubernetes.resources import read_map, read_maps
from gpuflow.quantity import Quantity

EXTENDED_CLAIM: Final = "<extended-resources>"


def classes_by_resource(classes: Iterable[DeviceClass]) -> dict[str, DeviceClass]:
    """The class behind each extended resource: of several the newest, then the one whose name comes first."""
    found: dict[str, DeviceClass] = {}
    for each in sorted(classes, key=lambda each: each.name):
        found[each.implicit_resource] = each
        resource = each.extended_resource
        if resource is not None and (resource not in found or each.created > found[resource].created):
            found[resource] = each
    return found


def contested_resources(classes: Iterable[DeviceClass]) -> frozenset[str]:
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
        asked = [each.requests.get(resource, Quantity.zero).value for each, _ in containers]
        name = resources[resource].name
        most: Request | None = None
        for index, (_, is_short_lived) in enumerate(containers):
            if not asked[index]:
                continue
            if not is_short_lived:
                requests.append(_extended_request(index, containers[index][0], resource, name, asked[index]))
                continue
            # What runs before the others may use their devices first.
            reusable = sum(asked[at] for at in range(index, len(containers)) if not containers[at][1])
            more = asked[index] - reusable
            if more > 0 and (most is None or most.devices < more):
                most = _extended_request(index, containers[index][0], resource, name, more)
        if most is not None:
            requests.append(most)
    return Claim(EXTENDED_CLAIM, tuple((each,) for each in sorted(requests, key=lambda each: each.name)), ())


def _extended_request(index: int, container: Container, resource: str, device_class: str, count: int) -> Request:
    position = sorted(container.requests).index(resource)
    name = f"container-{index}-request-{position}"
    return Request(name, None, device_class, (), EXACT_COUNT, count, False, (), None)


UNREAD_VERSION: Final = "resource.k8s.io/v1beta1"
"""A version of these kinds with another shape."""
DECIDING_KINDS: Final = ("DeviceClass", "ResourceSlice", "ResourceClaim")
"""The kinds without which it is not known which devices there are, and which are free."""
ADMIN_ACCESS: Final = "resource.kubernetes.io/admin-access"
"""The label of namespaces in which claims may ask for adminAccess."""


Read = TypeVar("Read")


class Inventory:
    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster, self.namespace = cluster, namespace

    @cached_property
    def classes(self) -> dict[str, DeviceClass]:
        return {each.name: each for each in self._read_all("DeviceClass", read_device_class)}

    @cached_property
    def by_resource(self) -> dict[str, DeviceClass]:
        """The class behind each extended resource."""
        return classes_by_resource(self.classes.values())

    @cached_property
    def current_allocator(self) -> Allocator:
        """With what claims hold."""
        held = AllocatedState()
        self._read_all("ResourceClaim", held.add_claim)
        return self.empty_allocator.with_allocated(held)

    @cached_property
    def empty_allocator(self) -> Allocator:
        """As if no claim held anything."""
        return Allocator(self._read_all("ResourceSlice", read_slice), self.classes)

    def find(self, kind: str, name: str) -> Manifest | None:
        """An object of the namespace."""
        return next((item for item in self.cluster.of(kind, self.namespace) if item.name == name), None)

    def is_known(self, kind: str) -> bool:
        """Whether the snapshot says which objects of a kind there are."""
        space = self.namespace if kind == "ResourceClaimTemplate" else None
        return self.cluster.bodies(kind, space) is not None

    def unknown(self) -> Iterator[str]:
        """What keeps any answer about devices from being certain."""
        hidden = [kind for kind in DECIDING_KINDS if not self.is_known(kind)]
        if hidden:
            yield f"the snapshot shows no {' and no '.join(hidden)}"
        every = (item for kind in (*DECIDING_KINDS, "ResourceClaimTemplate") for item in self.cluster.of(kind))
        old = {item.kind for item in every if item.body.get("apiVersion") == UNREAD_VERSION}
        if old:
            yield f"{', '.join(sorted(old))} of {UNREAD_VERSION}, which is not read"
        if self.cluster.of("DeviceTaintRule"):
            yield "which devices a DeviceTaintRule taints"

    def _read_all(self, kind: str, read: Callable[[Body], Read]) -> list[Read]:
        objects = self.cluster.of(kind)
        return [_read_object(item, read) for item in objects if item.body.get("apiVersion") != UNREAD_VERSION]


def _read_object(item: Manifest, read: Callable[[Body], Read]) -> Read:
    try:
        return read(item.body)
    except ValueError as refusal:
        raise GpuflowError(Finding("GF403", str(refusal), item.at_fault(refusal), "fix the manifest")) from None


@dataclass(eq=False)
class DeviceNeeds:
    """What one pod of a group needs."""

    pod: Pod
    made: list[Claim] = field(default_factory=list)
    """To be allocated for the pod, as its spec names them."""
    held: list[NodeSelector | None] = field(default_factory=list)
    """Claims that are allocated already: the nodes where they can be used, `None` for all."""
    shared: list[str] = field(default_factory=list)
    """The claims that other pods may use too, by name."""
    extended: Mapping[str, DeviceClass] = field(default_factory=dict)
    """The extended resources that a class stands for; a node that has them from a device plug-in needs no device."""
    open: tuple[str, ...] = ()
    """The extended resources that no node has and that a class may stand for: classes are not shown."""
    never: str | None = None
    """Why no node will ever take the pod."""
    unknown: list[str] = field(default_factory=list)

    @cached_property
    def claims(self) -> Sequence[Claim]:
        """To be allocated where no device plug-in helps."""
        return self.claims_on({})

    @cached_property
    def requests(self) -> list[tuple[Request, ...]]:
        """The requests of these claims, each with its alternatives."""
        return [alternatives for claim in self.claims for alternatives in claim.requests]

    @cached_property
    def resources(self) -> dict[str, str]:
        """The extended resource for which a class is asked."""
        return {each.name: resource for resource, each in self.extended.items()}

    def claims_on(self, allocatable: Mapping[str, int]) -> Sequence[Claim]:
        """To be allocated on a node that has these resources, of devices those from a device plug-in."""
        missing = {name: each for name, each in self.extended.items() if allocatable.get(name, 0) <= 0}
        return [*self.made, extended_claim(self.pod, missing)] if missing else self.made


def read_device_needs(body: Body, inventory: Inventory, offered: Collection[str]) -> DeviceNeeds | None:
    """What a pod asks of devices; `None` when nothing. `offered`: the resources that some node has."""
    pod = read_pod(body)
    needs = DeviceNeeds(pod)
    for index, each in enumerate(read_maps(pod.spec.get("resourceClaims"), "spec.resourceClaims")):
        where = f"spec.resourceClaims[{index}]"
        name, template = (read_text(each, field, where) for field in ("resourceClaimName", "resourceClaimTemplateName"))
        if name is not None:
            needs.shared.append(name)
            _add_claim(needs, inventory, "ResourceClaim", name)
        elif template is not None:
            _add_claim(needs, inventory, "ResourceClaimTemplate", template)
    asked = [resource for resource, amount in pod.requests().items() if amount]
    needs.extended = {each: inventory.by_resource[each] for each in asked if each in inventory.by_resource}
    for resource in sorted(contested_resources(inventory.classes.values()).intersection(needs.extended)):
        needs.unknown.append(f"whether the scheduler knows {resource}: another class has its extendedResourceName")
    if inventory.is_known("DeviceClass"):
        for request in (each for claim in needs.made for some in claim.requests for each in some):
            if request.device_class not in inventory.classes:
                needs.never = f"request {request.full_name}: device class {request.device_class} does not exist"
    _check_admin_access(needs, inventory)
    if not inventory.is_known("DeviceClass"):
        # Where a device plug-in gives resources of the same vendor, it gives this one too, or nobody does.
        vendors = {name.partition("/")[0] for name in offered if is_extended(name)}
        needs.open = tuple(each for each in asked if is_extended(each) and each.partition("/")[0] not in vendors)
    if needs.open:
        opened = ", ".join(needs.open)
        needs.unknown.append(f"no node has {opened}, and the snapshot does not show whether a class does")
    return needs if needs.claims or needs.held or needs.shared or needs.never or needs.unknown else None


def _add_claim(needs: DeviceNeeds, inventory: Inventory, kind: str, name: str) -> None:
    """A claim by its name, or one that is made for the pod from a template."""
    item = inventory.find(kind, name)
    if item is not None:
        add = _add_existing_claim if kind == "ResourceClaim" else _add_template_claim
        _read_object(item, partial(add, needs, name))
    elif inventory.is_known(kind):
        end = "" if kind == "ResourceClaim" else ": the claim of the pod is never made"
        needs.never = f'there is no {kind} "{name}"{end}'
    else:
        needs.unknown.append(f"the snapshot shows no {kind}: what {name} asks for is not known")


def _add_template_claim(needs: DeviceNeeds, name: str, body: Body) -> None:
    needs.made.append(read_claim(name, read_map(body.get("spec"), "spec").get("spec"), "spec.spec"))


def _add_existing_claim(needs: DeviceNeeds, name: str, body: Body) -> None:
    allocation = read_map(body.get("status"), "status").get("allocation")
    if allocation is None:
        needs.made.append(read_claim(name, body.get("spec"), "spec"))
        return
    selector = read_map(allocation, "status.allocation").get("nodeSelector")
    needs.held.append(read_as(NodeSelector | None, selector, "status.allocation.nodeSelector"))


def _check_admin_access(needs: DeviceNeeds, inventory: Inventory) -> None:
    """The API server takes claims with adminAccess, and those made from such a template, in namespaces with a label.

    Mirrors k8s.io/kubernetes/pkg/registry/resource.AuthorizedForAdmin, Kubernetes v1.36.3.
    """
    if not any(claim.admin_requests for claim in needs.made):
        return
    item = next((each for each in inventory.cluster.of("Namespace") if each.name == inventory.namespace), None)
    if item is None:
        needs.unknown.append(
            f"the snapshot does not show namespace {inventory.namespace}: a claim with adminAccess needs its "
            f'label {ADMIN_ACCESS}: "true"'
        )
    elif read_map(item.body["metadata"].get("labels"), "metadata.labels").get(ADMIN_ACCESS) != "true":
        needs.never = (
            f"Forbidden: admin access to devices requires the `{ADMIN_ACCESS}: true` label on the containing namespace"
        )
