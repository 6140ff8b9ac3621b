"""The pod on its way through the API server.

Only what admission changes or checks is taken out of the manifest; the rest stays there untouched and is
shared, not copied, with the pod that comes out.

Mirrors k8s.io/kubernetes/pkg/apis/core/v1.SetDefaults_Pod, Kubernetes v1.36.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from gpuflow.kubernetes.admission.recall import EMPTY, read_stored, recalled, rounded
from gpuflow.resources import (
    BadField,
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

Body = Mapping[str, Any]


class Container(NamedTuple):
    name: str
    requests: ResourceList
    limits: ResourceList
    is_sidecar: bool
    manifest: Body


class Requirements(NamedTuple):
    """The `resources` of a container; or of a pod as a whole, which names cpu, memory and huge pages only."""

    requests: ResourceList
    limits: ResourceList


NOTHING = Requirements(EMPTY, EMPTY)


class PodFields(NamedTuple):
    """A pod after decoding and defaulting. `None` where the manifest says nothing, as far as that matters."""

    manifest: Body
    metadata: Body
    spec: Body
    containers: tuple[Container, ...]
    init_containers: tuple[Container, ...]
    level: Requirements | None
    overhead: ResourceList | None
    priority_class: str
    priority: int | None
    preemption_policy: str | None
    runtime_class: str | None
    active_deadline: int | None
    node_selector: Mapping[str, str] | None = None
    tolerations: tuple[Body, ...] | None = None
    limit_ranger_note: str | None = None


class Pod(PodFields):
    """The fields and what follows from them, worked out when it is first asked for."""

    @property
    def name(self) -> str:
        """What refusals call the pod: the server has not yet made a name out of `generateName`."""
        return self.metadata.get("name") or self.metadata.get("generateName") or ""

    @property
    def every_container(self) -> tuple[Container, ...]:
        return self.containers + self.init_containers

    @cached_property
    def container_requests(self) -> ResourceList:
        if not self.init_containers and len(self.containers) == 1:
            return self.containers[0].requests
        return aggregate(
            [each.requests for each in self.containers],
            [(each.requests, each.is_sidecar) for each in self.init_containers],
        )

    @cached_property
    def container_limits(self) -> ResourceList:
        if not self.init_containers and len(self.containers) == 1:
            return self.containers[0].limits
        return aggregate(
            [each.limits for each in self.containers],
            [(each.limits, each.is_sidecar) for each in self.init_containers],
        )

    def requests(self) -> ResourceList:
        if self.level is None and not self.overhead:
            return self.container_requests
        level = self.level.requests if self.level else EMPTY
        return combine_requests(dict(self.container_requests), level, self.overhead or EMPTY)

    def limits(self) -> ResourceList:
        if self.level is None and not self.overhead:
            return self.container_limits
        level = self.level.limits if self.level else EMPTY
        return combine_limits(dict(self.container_limits), level, self.overhead or EMPTY)


def read_pod(manifest: object) -> Pod:
    """Decode a pod and fill in what the API server fills in before admission.

    `ValueError` when it is not a pod at all: the API server would answer 400 and store nothing.
    """
    manifest = read_object(manifest, "Pod")
    metadata = read_map(manifest.get("metadata"), "metadata")
    spec = read_map(manifest.get("spec"), "spec")
    for field in ("name", "generateName", "namespace"):
        read_text(metadata, field, "metadata")
    read_map(metadata.get("labels"), "metadata.labels")
    read_map(metadata.get("annotations"), "metadata.annotations")
    level = None
    if spec.get("resources") is None:
        containers = _read_containers(spec, "containers", _read_stored)
        init_containers = _read_containers(spec, "initContainers", _read_stored)
    else:
        # Pod-level resources are filled in from what the containers say, before anything is rounded.
        containers = _read_containers(spec, "containers", _read_requirements)
        init_containers = _read_containers(spec, "initContainers", _read_requirements)
        level = _rounded(default_level(containers, init_containers, _read_level(spec)))
        containers = tuple(map(_rounded_container, containers))
        init_containers = tuple(map(_rounded_container, init_containers))
    overhead = spec.get("overhead")
    return Pod(
        manifest=manifest,
        metadata=metadata,
        spec=spec,
        containers=containers,
        init_containers=init_containers,
        level=level,
        overhead=None if overhead is None else read_stored(overhead, "spec.overhead"),
        priority_class=read_text(spec, "priorityClassName", "spec") or "",
        priority=read_integer(spec, "priority", "spec"),
        preemption_policy=read_text(spec, "preemptionPolicy", "spec"),
        runtime_class=read_text(spec, "runtimeClassName", "spec"),
        active_deadline=read_integer(spec, "activeDeadlineSeconds", "spec"),
    )


def read_object(manifest: object, kind: str) -> Body:
    """A manifest of the given kind; one that does not name its kind is taken for it."""
    if type(manifest) is not dict and not isinstance(manifest, Mapping):
        raise ValueError(f"a {kind} must be a map, not {manifest!r}")
    if manifest.get("kind") not in (None, kind):
        raise ValueError(f"a {kind} is needed, not a {manifest['kind']}")
    return manifest


def read_text(holder: Body, field: str, where: str) -> str | None:
    value = holder.get(field)
    if value is not None and not isinstance(value, str):
        raise BadField(f"{where}.{field}", f"must be a string, not {value!r}")
    return value


def read_integer(holder: Body, field: str, where: str) -> int | None:
    value = holder.get(field)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise BadField(f"{where}.{field}", f"must be a whole number, not {value!r}")
    return value


Reader = Callable[[object, str], Requirements]


def _read_containers(spec: Body, field: str, read: Reader) -> tuple[Container, ...]:
    listed = spec.get(field)
    if listed is None:
        return ()
    return tuple(
        [
            _read_container(container, f"spec.{field}[{index}]", read)
            for index, container in enumerate(read_maps(listed, f"spec.{field}"))
        ]
    )


def _read_container(manifest: Body, where: str, read: Reader) -> Container:
    requests, limits = read(manifest.get("resources"), where)
    is_sidecar = read_text(manifest, "restartPolicy", where) == "Always"
    return Container(read_text(manifest, "name", where) or "", requests, limits, is_sidecar, manifest)


def _read_stored(resources: object, where: str) -> Requirements:
    """Requests and limits as the server stores them: many containers say the same."""
    if resources is None:
        return NOTHING
    try:
        return recalled(_stored, resources)
    except ValueError:
        return _read_requirements(resources, where)  # again, for the words that say where it stands


def _stored(resources: object) -> Requirements:
    return _rounded(_read_requirements(resources, ""))


def _read_requirements(resources: object, where: str) -> Requirements:
    """Requests and limits as written; what only the limits name is asked for too."""
    named = read_map(resources, f"{where}.resources")
    limits = read_resource_list(named.get("limits"), f"{where}.resources.limits")
    requests = read_resource_list(named.get("requests"), f"{where}.resources.requests")
    return Requirements({**requests, **limits, **requests}, limits)


def _read_level(spec: Body) -> Requirements:
    resources = read_map(spec["resources"], "spec.resources")
    return Requirements(
        read_resource_list(resources.get("requests"), "spec.resources.requests"),
        read_resource_list(resources.get("limits"), "spec.resources.limits"),
    )


def default_level(
    containers: Iterable[Container], init_containers: Iterable[Container], level: Requirements
) -> Requirements:
    """Fill in pod-level resources from the containers, and of its requests from its limits."""
    if not (level.requests or level.limits):
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
    return Requirements(requests, limits)


def _rounded(written: Requirements) -> Requirements:
    return Requirements(rounded(written.requests), rounded(written.limits))


def _rounded_container(container: Container) -> Container:
    requests, limits = rounded(container.requests), rounded(container.limits)
    if requests is container.requests and limits is container.limits:
        return container
    return container._replace(requests=requests, limits=limits)
