"""The pod on its way through the API server.

Only what admission changes or judges is taken out of the manifest; the rest stays there untouched and is
shared, not copied, with the pod that comes out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from gpuflow.quantity import MICRO, Quantity
from gpuflow.resources import (
    ResourceList,
    aggregate,
    combine_limits,
    combine_requests,
    is_hugepages,
    is_pod_level,
    read_map,
    read_maps,
    read_resource_list,
)

Manifest = Mapping[str, Any]

EMPTY: Mapping[str, Quantity] = {}


class Container(NamedTuple):
    name: str
    requests: ResourceList
    limits: ResourceList
    is_sidecar: bool
    manifest: Manifest


class PodLevel(NamedTuple):
    """`spec.resources`: cpu, memory and huge pages of the pod as a whole."""

    requests: ResourceList
    limits: ResourceList


class Pod(NamedTuple):
    """A pod after decoding and defaulting. `None` where the manifest says nothing, as far as that matters."""

    manifest: Manifest
    metadata: Manifest
    spec: Manifest
    containers: tuple[Container, ...]
    init_containers: tuple[Container, ...]
    level: PodLevel | None
    overhead: ResourceList | None
    priority_class: str
    priority: int | None
    preemption_policy: str | None
    runtime_class: str | None
    active_deadline: int | None
    node_selector: Mapping[str, str] | None = None
    tolerations: tuple[Manifest, ...] | None = None
    limit_ranger_note: str | None = None

    @property
    def name(self) -> str:
        """What refusals call the pod: the server has not yet made a name out of `generateName`."""
        return self.metadata.get("name") or self.metadata.get("generateName") or ""

    @property
    def every_container(self) -> tuple[Container, ...]:
        return self.containers + self.init_containers

    def container_requests(self) -> dict[str, Quantity]:
        return aggregate(
            (each.requests for each in self.containers),
            ((each.requests, each.is_sidecar) for each in self.init_containers),
        )

    def container_limits(self) -> dict[str, Quantity]:
        return aggregate(
            (each.limits for each in self.containers),
            ((each.limits, each.is_sidecar) for each in self.init_containers),
        )

    def requests(self) -> dict[str, Quantity]:
        level = self.level.requests if self.level else EMPTY
        return combine_requests(self.container_requests(), level, self.overhead or EMPTY)

    def limits(self) -> dict[str, Quantity]:
        level = self.level.limits if self.level else EMPTY
        return combine_limits(self.container_limits(), level, self.overhead or EMPTY)


def read_pod(manifest: object) -> Pod:
    """Decode a pod and fill in what the API server fills in before admission.

    `ValueError` when it is not a pod at all: the API server would answer 400 and store nothing.
    """
    manifest = read_object(manifest, "Pod")
    metadata = read_map(manifest.get("metadata"), "metadata")
    spec = read_map(manifest.get("spec"), "spec")
    for field in ("name", "generateName", "namespace"):
        read_text(metadata, field, "metadata")
    for field in ("labels", "annotations"):
        read_map(metadata.get(field), f"metadata.{field}")
    containers = _read_containers(spec, "containers")
    init_containers = _read_containers(spec, "initContainers")
    overhead = spec.get("overhead")
    return Pod(
        manifest=manifest,
        metadata=metadata,
        spec=spec,
        containers=tuple(map(_rounded_container, containers)),
        init_containers=tuple(map(_rounded_container, init_containers)),
        level=_rounded_level(default_level(containers, init_containers, _read_level(spec))),
        overhead=None if overhead is None else rounded(read_resource_list(overhead, "spec.overhead")),
        priority_class=read_text(spec, "priorityClassName", "spec") or "",
        priority=read_integer(spec, "priority", "spec"),
        preemption_policy=read_text(spec, "preemptionPolicy", "spec"),
        runtime_class=read_text(spec, "runtimeClassName", "spec"),
        active_deadline=read_integer(spec, "activeDeadlineSeconds", "spec"),
    )


def read_object(manifest: object, kind: str) -> Manifest:
    """A manifest of the given kind; one that does not name its kind is taken for it."""
    if type(manifest) is not dict and not isinstance(manifest, Mapping):
        raise ValueError(f"a {kind} must be a map, not {manifest!r}")
    if manifest.get("kind") not in (None, kind):
        raise ValueError(f"a {kind} is needed, not a {manifest['kind']}")
    return manifest


def read_text(holder: Manifest, field: str, where: str) -> str | None:
    value = holder.get(field)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{where}.{field}: must be a string, not {value!r}")
    return value


def read_integer(holder: Manifest, field: str, where: str) -> int | None:
    value = holder.get(field)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise ValueError(f"{where}.{field}: must be a whole number, not {value!r}")
    return value


def _read_containers(spec: Manifest, field: str) -> tuple[Container, ...]:
    return tuple(
        _read_container(container, f"spec.{field}[{index}]")
        for index, container in enumerate(read_maps(spec.get(field), f"spec.{field}"))
    )


def _read_container(manifest: Manifest, where: str) -> Container:
    resources = read_map(manifest.get("resources"), f"{where}.resources")
    limits = read_resource_list(resources.get("limits"), f"{where}.resources.limits")
    requests = read_resource_list(resources.get("requests"), f"{where}.resources.requests")
    for name, quantity in limits.items():
        requests.setdefault(name, quantity)
    is_sidecar = read_text(manifest, "restartPolicy", where) == "Always"
    return Container(read_text(manifest, "name", where) or "", requests, limits, is_sidecar, manifest)


def _read_level(spec: Manifest) -> PodLevel | None:
    if spec.get("resources") is None:
        return None
    resources = read_map(spec["resources"], "spec.resources")
    return PodLevel(
        read_resource_list(resources.get("requests"), "spec.resources.requests"),
        read_resource_list(resources.get("limits"), "spec.resources.limits"),
    )


def default_level(
    containers: Iterable[Container], init_containers: Iterable[Container], level: PodLevel | None
) -> PodLevel | None:
    """Fill the gaps of pod-level resources from the containers, and of its requests from its limits."""
    if level is None or not (level.requests or level.limits):
        return level
    limits = dict(level.limits)
    requests = dict(level.requests)
    container_limits = aggregate(
        (each.limits for each in containers), ((each.limits, each.is_sidecar) for each in init_containers)
    )
    for name, quantity in container_limits.items():
        if is_hugepages(name) and name not in requests:
            limits.setdefault(name, quantity)
    if limits:
        container_requests = aggregate(
            (each.requests for each in containers),
            ((each.requests, each.is_sidecar) for each in init_containers),
        )
        for name in ("cpu", "memory"):
            if name in container_requests:
                requests.setdefault(name, container_requests[name])
        for name, quantity in limits.items():
            if is_pod_level(name):
                requests.setdefault(name, quantity)
    return PodLevel(requests, limits)


def rounded(resources: ResourceList) -> ResourceList:
    """Nothing finer than a thousandth is stored."""
    for quantity in resources.values():
        if quantity.nano % MICRO:
            return {name: each.rounded_to_milli() for name, each in resources.items()}
    return resources


def _rounded_level(level: PodLevel | None) -> PodLevel | None:
    return level and PodLevel(rounded(level.requests), rounded(level.limits))


def _rounded_container(container: Container) -> Container:
    requests, limits = rounded(container.requests), rounded(container.limits)
    if requests is container.requests and limits is container.limits:
        return container
    return container._replace(requests=requests, limits=limits)
