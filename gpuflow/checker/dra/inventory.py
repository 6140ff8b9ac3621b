"""The devices of a snapshot: classes, slices, claims and templates, and what of them is not shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import Final, TypeVar

from gpuflow.checker.dra.allocated import AllocatedState, read_allocated
from gpuflow.checker.dra.allocator import Allocator
from gpuflow.checker.dra.extended import classes_by_resource
from gpuflow.checker.dra.objects import DeviceClass, Slice, read_device_class
from gpuflow.cluster import Cluster, Manifest
from gpuflow.errors import Finding, GpuflowError
from gpuflow.kubernetes.labels import Labels, read_labels
from gpuflow.resources import read_map

UNREAD: Final = "resource.k8s.io/v1beta1"
"""A version of these kinds with another shape."""
DECIDING: Final = ("DeviceClass", "ResourceSlice", "ResourceClaim")
"""The kinds without which it is not known which devices there are, and which are free."""
ADMIN_ACCESS: Final = "resource.kubernetes.io/admin-access"
"""The label of namespaces in which claims may ask for adminAccess."""


class Inventory:
    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster, self.namespace = cluster, namespace

    @cached_property
    def classes(self) -> dict[str, DeviceClass]:
        return {item.name: _read(item, partial(read_device_class, item.body)) for item in self._of("DeviceClass")}

    @cached_property
    def by_resource(self) -> dict[str, DeviceClass]:
        """The class behind each extended resource."""
        return classes_by_resource(self.classes.values())

    @cached_property
    def slices(self) -> list[Slice]:
        return [_read(item, partial(Slice, item.body)) for item in self._of("ResourceSlice")]

    @cached_property
    def now(self) -> Allocator:
        """With what claims hold."""
        held = AllocatedState()
        for item in self._of("ResourceClaim"):
            one = _read(item, partial(read_allocated, [item.body]))
            held.merge(one)
        return Allocator(self.slices, self.classes, held)

    @cached_property
    def empty(self) -> Allocator:
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
        return self._named("ResourceClaimTemplate", name)

    def claim(self, name: str) -> Manifest | None:
        return self._named("ResourceClaim", name)

    def is_known(self, kind: str) -> bool:
        """Whether the snapshot says which objects of a kind there are."""
        space = self.namespace if kind == "ResourceClaimTemplate" else None
        return self.cluster.bodies(kind, space) is not None

    def unknown(self) -> Iterator[str]:
        """What keeps any answer about devices from being certain."""
        hidden = [kind for kind in DECIDING if not self.is_known(kind)]
        if hidden:
            yield f"the snapshot shows no {' and no '.join(hidden)}"
        old = {item.kind for item in self._every() if item.body.get("apiVersion") == UNREAD}
        if old:
            yield f"{', '.join(sorted(old))} of {UNREAD}, which is not read"
        if self.cluster.of("DeviceTaintRule"):
            yield "which devices a DeviceTaintRule taints"

    def _every(self) -> Iterator[Manifest]:
        for kind in (*DECIDING, "ResourceClaimTemplate"):
            yield from self.cluster.of(kind)

    def _of(self, kind: str) -> Sequence[Manifest]:
        return [item for item in self.cluster.of(kind) if item.body.get("apiVersion") != UNREAD]

    def _named(self, kind: str, name: str) -> Manifest | None:
        found = (item for item in self.cluster.of(kind, self.namespace) if item.name == name)
        return next(found, None)


Read = TypeVar("Read")


def _read(item: Manifest, read: Callable[[], Read]) -> Read:
    try:
        return read()
    except ValueError as refusal:
        raise GpuflowError(Finding("GF403", str(refusal), item.at_fault(refusal), "fix the manifest")) from None
