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
from typing import Any, Final, TypeVar

from gpuflow.checker.dra.allocator import Allocator
from gpuflow.checker.dra.eligibility import read_terms
from gpuflow.checker.dra.objects import EXACT_COUNT, Claim, DeviceClass, Request, Slice, read_claim, read_device_class
from gpuflow.checker.dra.pools import AllocatedState, read_allocated_state
from gpuflow.checker.nodes.node_selection import NodeSelectorTerm
from gpuflow.cluster import Cluster, Manifest
from gpuflow.core.errors import Finding, GpuflowError
from gpuflow.kubernetes.admission.names import is_extended
from gpuflow.kubernetes.admission.pod import Container, Pod, read_pod, read_text
from gpuflow.kubernetes.labels import Labels, read_labels
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


class Inventory:
    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster, self.namespace = cluster, namespace

    @cached_property
    def classes(self) -> dict[str, DeviceClass]:
        return {
            item.name: _read_object(item, partial(read_device_class, item.body))
            for item in self._read_objects("DeviceClass")
        }

    @cached_property
    def by_resource(self) -> dict[str, DeviceClass]:
        """The class behind each extended resource."""
        return classes_by_resource(self.classes.values())

    @cached_property
    def slices(self) -> list[Slice]:
        return [_read_object(item, partial(Slice, item.body)) for item in self._read_objects("ResourceSlice")]

    @cached_property
    def current_allocator(self) -> Allocator:
        """With what claims hold."""
        held = AllocatedState()
        for item in self._read_objects("ResourceClaim"):
            held.merge(_read_object(item, partial(read_allocated_state, [item.body])))
        return Allocator(self.slices, self.classes, held)

    @cached_property
    def empty_allocator(self) -> Allocator:
        """As if no claim held anything."""
        return Allocator(self.slices, self.classes)

    @cached_property
    def namespace_labels(self) -> Labels | None:
        """The labels of the namespace; `None` when it is not shown."""
        for item in self.cluster.of("Namespace"):
            if item.name == self.namespace:
                return read_labels(read_map(item.body.get("metadata"), "metadata").get("labels"), "metadata.labels")
        return None

    def template(self, name: str) -> Manifest | None:
        return self._find_object("ResourceClaimTemplate", name)

    def claim(self, name: str) -> Manifest | None:
        return self._find_object("ResourceClaim", name)

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

    def _read_objects(self, kind: str) -> Sequence[Manifest]:
        return [item for item in self.cluster.of(kind) if item.body.get("apiVersion") != UNREAD_VERSION]

    def _find_object(self, kind: str, name: str) -> Manifest | None:
        found = (item for item in self.cluster.of(kind, self.namespace) if item.name == name)
        return next(found, None)


Read = TypeVar("Read")


def _read_object(item: Manifest, read: Callable[[], Read]) -> Read:
    try:
        return read()
    except ValueError as refusal:
        raise GpuflowError(Finding("GF403", str(refusal), item.at_fault(refusal), "fix the manifest")) from None


@dataclass(frozen=True, eq=False)
class DeviceNeeds:
    """What one pod of a group needs."""

    pod: Pod
    made: tuple[Claim, ...] = ()
    """To be allocated for the pod, as its spec names them."""
    held: tuple[tuple[NodeSelectorTerm, ...] | None, ...] = ()
    """Claims that are allocated already: the nodes where they can be used, `None` for all."""
    shared: tuple[str, ...] = ()
    """The claims that other pods may use too, by name."""
    extended: Mapping[str, DeviceClass] = field(default_factory=dict)
    """The extended resources that a class stands for; a node that has them from a device plug-in needs no device."""
    open: tuple[str, ...] = ()
    """The extended resources that no node has and that a class may stand for: classes are not shown."""
    never: str | None = None
    """Why no node will ever take the pod."""
    unknown: tuple[str, ...] = ()

    @cached_property
    def claims(self) -> tuple[Claim, ...]:
        """To be allocated where no device plug-in helps."""
        return self.claims_on(())

    def claims_on(self, plugged: Collection[str]) -> tuple[Claim, ...]:
        """To be allocated on a node that has these resources from a device plug-in."""
        missing = {name: each for name, each in self.extended.items() if name not in plugged}
        return (*self.made, extended_claim(self.pod, missing)) if missing else self.made


class _NeedsReader:
    def __init__(self, inventory: Inventory) -> None:
        self.inventory = inventory
        self.claims: list[Claim] = []
        self.held: list[tuple[NodeSelectorTerm, ...] | None] = []
        self.shared: list[str] = []
        self.never: str | None = None
        self.unknown: list[str] = []

    def read(self, pod: Pod, offered: Collection[str]) -> DeviceNeeds:
        for index, each in enumerate(read_maps(pod.spec.get("resourceClaims"), "spec.resourceClaims")):
            where = f"spec.resourceClaims[{index}]"
            name, template = (
                read_text(each, field, where) for field in ("resourceClaimName", "resourceClaimTemplateName")
            )
            if name is not None:
                self._add_named_claim(name)
            elif template is not None:
                self._add_template_claim(template)
        extended = {
            resource: self.inventory.by_resource[resource]
            for resource, amount in pod.requests().items()
            if amount and resource in self.inventory.by_resource
        }
        for resource in sorted(contested_resources(self.inventory.classes.values()).intersection(extended)):
            self.unknown.append(f"whether the scheduler knows {resource}: another class has its extendedResourceName")
        for request in (each for claim in self.claims for some in claim.requests for each in some):
            if request.device_class not in self.inventory.classes and self.inventory.is_known("DeviceClass"):
                self.never = f"request {request.full_name}: device class {request.device_class} does not exist"
        self._check_admin_access()
        opened: tuple[str, ...] = ()
        if not self.inventory.is_known("DeviceClass"):
            asked = [name for name, amount in pod.requests().items() if amount and is_extended(name)]
            # Where a device plug-in gives resources of the same vendor, it gives this one too, or nobody does.
            vendors = {name.partition("/")[0] for name in offered if is_extended(name)}
            opened = tuple(name for name in asked if name.partition("/")[0] not in vendors)
        if opened:
            self.unknown.append(f"no node has {', '.join(opened)}, and the snapshot does not show whether a class does")
        return DeviceNeeds(
            pod,
            tuple(self.claims),
            tuple(self.held),
            tuple(self.shared),
            extended,
            opened,
            self.never,
            tuple(self.unknown),
        )

    def _add_template_claim(self, name: str) -> None:
        """A claim that is made for the pod from a template."""
        item = self.inventory.template(name)
        if item is not None:
            spec = _read_object(item, partial(read_map, item.body.get("spec"), "spec")).get("spec")
            self.claims.append(_read_object(item, partial(read_claim, name, spec, "spec.spec")))
        elif self.inventory.is_known("ResourceClaimTemplate"):
            self.never = f'there is no ResourceClaimTemplate "{name}": the claim of the pod is never made'
        else:
            self.unknown.append(f"the snapshot shows no ResourceClaimTemplate: what {name} asks for is not known")

    def _add_named_claim(self, name: str) -> None:
        item = self.inventory.claim(name)
        self.shared.append(name)
        if item is not None:
            _read_object(item, partial(self._add_existing_claim, name, item.body))
        elif self.inventory.is_known("ResourceClaim"):
            self.never = f'there is no ResourceClaim "{name}"'
        else:
            self.unknown.append(f"the snapshot shows no ResourceClaim: what {name} asks for is not known")

    def _add_existing_claim(self, name: str, body: Mapping[str, Any]) -> None:
        allocation = read_map(body.get("status"), "status").get("allocation")
        if allocation is None:
            self.claims.append(read_claim(name, body.get("spec"), "spec"))
            return
        selector = read_map(allocation, "status.allocation").get("nodeSelector")
        self.held.append(None if selector is None else read_terms(selector, "status.allocation.nodeSelector"))

    def _check_admin_access(self) -> None:
        """The API server takes claims with adminAccess, and those made from such a template, in namespaces with a
        label.

        Mirrors k8s.io/kubernetes/pkg/registry/resource.AuthorizedForAdmin, Kubernetes v1.36.3.
        """
        if not any(claim.admin_requests for claim in self.claims):
            return
        labels = self.inventory.namespace_labels
        if labels is None:
            self.unknown.append(
                f"the snapshot does not show namespace {self.inventory.namespace}: a claim with adminAccess needs its "
                f'label {ADMIN_ACCESS}: "true"'
            )
        elif labels.get(ADMIN_ACCESS) != "true":
            self.never = (
                f"Forbidden: admin access to devices requires the `{ADMIN_ACCESS}: true` label on the containing "
                "namespace"
            )


def read_device_needs(pod: Mapping[str, Any], inventory: Inventory, offered: Collection[str]) -> DeviceNeeds | None:
    """What a pod asks of devices; `None` when nothing. `offered`: the resources that some node has."""
    ask = _NeedsReader(inventory).read(read_pod(pod), offered)
    asks = ask.claims or ask.held or ask.shared or ask.never or ask.unknown
    return ask if asks else None
