"""The pod on its way through the API server: read with defaults, and written back with its quality of service.

Only what admission changes or checks is taken out of the manifest; the rest stays there untouched and is
shared, not copied, with the pod that comes out.

The same few quotas, LimitRanges and resource lists come with every question, so `read_once` keeps what was read. It is
found again by what the manifest says and never by which object says it, since a manifest may be changed between two
questions. It is shared, so nobody changes it.

Mirrors k8s.io/kubernetes/pkg/apis/core/v1.SetDefaults_Pod and
k8s.io/kubernetes/pkg/apis/core/v1/helper/qos.ComputePodQOS, Kubernetes v1.36.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple, TypeVar

from gpuflow.core.caching import content_of, data_of
from gpuflow.kubernetes.resources import (
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
from gpuflow.quantity import MICRO

EMPTY: Final[ResourceList] = {}

Read = TypeVar("Read")


def read_once(read: Callable[[Any], Read], manifest: Any) -> Read:
    """What `read` makes of a manifest, which must be a value that keeps nothing of the manifest itself."""
    content = content_of(manifest)
    if content is None:
        return read(manifest)
    return _read_once(read, content)  # type: ignore[return-value]  # what `read` gives


@lru_cache(maxsize=4096)
def _read_once(read: Callable[[Any], object], content: bytes) -> object:
    return read(data_of(content))


def read_stored_list(raw: object, where: str) -> ResourceList:
    """A resource list with nothing finer than a thousandth; an absent one is empty."""
    return EMPTY if raw is None else round_to_milli(read_resource_list(raw, where))


def round_to_milli(resources: ResourceList) -> ResourceList:
    """Nothing finer than a thousandth is stored."""
    for quantity in resources.values():
        if quantity.nano % MICRO:
            return {name: each.rounded_to_milli() for name, each in resources.items()}
    return resources


def read_flag(holder: Mapping[str, Any], field: str, where: str) -> bool | None:
    """A flag; `None` when the manifest does not say. The text "false" is none: the API server refuses it."""
    value = holder.get(field)
    if value is not None and not isinstance(value, bool):
        raise BadField(f"{where}.{field}", f"must be true or false, not {value!r}")
    return value


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


NO_REQUIREMENTS = Requirements(EMPTY, EMPTY)


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
            [each.limits for each in self.containers], [(each.limits, each.is_sidecar) for each in self.init_containers]
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
        containers = _read_containers(spec, "containers", _read_stored_requirements)
        init_containers = _read_containers(spec, "initContainers", _read_stored_requirements)
    else:
        # Pod-level resources are filled in from what the containers say, before anything is rounded.
        containers = _read_containers(spec, "containers", _read_requirements)
        init_containers = _read_containers(spec, "initContainers", _read_requirements)
        level = _round_requirements(default_level(containers, init_containers, _read_level(spec)))
        containers = tuple(map(round_container, containers))
        init_containers = tuple(map(round_container, init_containers))
    overhead = spec.get("overhead")
    return Pod(
        manifest=manifest,
        metadata=metadata,
        spec=spec,
        containers=containers,
        init_containers=init_containers,
        level=level,
        overhead=None if overhead is None else read_stored_list(overhead, "spec.overhead"),
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


def _read_stored_requirements(resources: object, where: str) -> Requirements:
    """Requests and limits as the server stores them: many containers say the same."""
    if resources is None:
        return NO_REQUIREMENTS
    try:
        return read_once(_parse_stored_requirements, resources)
    except ValueError:
        return _read_requirements(resources, where)  # again, for the words that say where it stands


def _parse_stored_requirements(resources: object) -> Requirements:
    return _round_requirements(_read_requirements(resources, ""))


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
            (each.requests for each in containers), ((each.requests, each.is_sidecar) for each in init_containers)
        )
        for name in ("cpu", "memory"):
            if name in container_requests:
                requests.setdefault(name, container_requests[name])
        for name, quantity in limits.items():
            if is_pod_level(name):
                requests.setdefault(name, quantity)
    return Requirements(requests, limits)


def _round_requirements(written: Requirements) -> Requirements:
    return Requirements(round_to_milli(written.requests), round_to_milli(written.limits))


def round_container(container: Container) -> Container:
    requests, limits = round_to_milli(container.requests), round_to_milli(container.limits)
    if requests is container.requests and limits is container.limits:
        return container
    return container._replace(requests=requests, limits=limits)


LIMIT_RANGER_ANNOTATION = "kubernetes.io/limit-ranger"


def quality_of_service(pod: Pod) -> str:
    """`BestEffort`, `Burstable` or `Guaranteed`, from cpu and memory alone.

    A `status.qosClass` in the posted manifest is believed, as the API server believes it.
    """
    status = pod.manifest.get("status")
    if isinstance(status, dict) and status.get("qosClass"):
        return str(status["qosClass"])
    if pod.level is None:
        parts = [(each.requests, each.limits) for each in pod.every_container]
    elif pod.level.limits:
        parts = [pod.level]
    else:
        return "Burstable" if any(_qos_amounts(pod.level.requests)) else "BestEffort"
    cpu_requests = memory_requests = cpu_limits = memory_limits = 0
    guaranteed = True
    for requests, limits in parts:
        cpu, memory = _qos_amounts(requests)
        cpu_requests += cpu
        memory_requests += memory
        cpu, memory = _qos_amounts(limits)
        cpu_limits += cpu
        memory_limits += memory
        guaranteed = guaranteed and cpu > 0 and memory > 0
    if not (cpu_requests or memory_requests or cpu_limits or memory_limits):
        return "BestEffort"
    same = cpu_requests == cpu_limits and memory_requests == memory_limits
    return "Guaranteed" if guaranteed and same else "Burstable"


def _qos_amounts(resources: ResourceList) -> tuple[int, int]:
    """Cpu and memory in nano-units; what is negative does not count."""
    cpu, memory = resources.get("cpu"), resources.get("memory")
    return max(cpu.nano, 0) if cpu is not None else 0, max(memory.nano, 0) if memory is not None else 0


def read_back(pod: Pod) -> Pod:
    """Default once more, as happens when the stored pod is read.

    Pod-level requests may then show what the LimitRanges gave to the containers, which neither validation nor
    quota saw.
    """
    if pod.level is None:
        return pod
    level = default_level(pod.containers, pod.init_containers, pod.level)
    return pod if level == pod.level else pod._replace(level=level)


def render(pod: Pod, *, created: bool, prepared: bool) -> dict[str, Any]:
    """The manifest with resources, overhead, priority and scheduling as admission left them.

    `prepared` once the server has given it the status of a new pod, `created` once it is stored.
    """
    service = quality_of_service(pod)
    if created:
        pod = read_back(pod)
    spec: dict[str, Any] = dict(pod.spec)
    if pod.containers:
        spec["containers"] = [_render_container(each) for each in pod.containers]
    if pod.init_containers:
        spec["initContainers"] = [_render_container(each) for each in pod.init_containers]
    if pod.level is not None:
        spec["resources"] = _render_resources(spec["resources"], pod.level.requests, pod.level.limits)
    for field, value in (
        ("overhead", render_list(pod.overhead) if pod.overhead else None),
        ("priorityClassName", pod.priority_class or None),
        ("priority", pod.priority),
        ("preemptionPolicy", pod.preemption_policy),
        ("nodeSelector", pod.node_selector),
        ("tolerations", pod.tolerations),
    ):
        if value is not None:
            spec[field] = value
        elif not spec.get(field, True):
            del spec[field]  # an empty value is not stored
    rendered = {**pod.manifest, "spec": spec}
    if pod.limit_ranger_note is not None:
        annotations = {**(pod.metadata.get("annotations") or {}), LIMIT_RANGER_ANNOTATION: pod.limit_ranger_note}
        rendered["metadata"] = {**pod.metadata, "annotations": annotations}
    if prepared:
        rendered["status"] = {"phase": "Pending", "qosClass": service}
    return rendered


def _render_container(container: Container) -> dict[str, Any]:
    rendered = dict(container.manifest)
    if container.requests or container.limits or rendered.get("resources"):
        rendered["resources"] = _render_resources(rendered.get("resources") or {}, container.requests, container.limits)
    return rendered


def _render_resources(manifest: Body, requests: ResourceList, limits: ResourceList) -> dict[str, Any]:
    rendered = {field: value for field, value in manifest.items() if field not in ("requests", "limits")}
    if limits:
        rendered["limits"] = render_list(limits)
    if requests:
        rendered["requests"] = render_list(requests)
    return rendered


def render_list(resources: ResourceList) -> dict[str, str]:
    return {name: quantity.text for name, quantity in resources.items()}
