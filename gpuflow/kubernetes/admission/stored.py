"""The pod as the server answers it: quality of service, and the manifest with what admission filled in.

Mirrors k8s.io/kubernetes/pkg/apis/core/v1/helper/qos.ComputePodQOS, Kubernetes v1.36.3.
"""

from __future__ import annotations

from typing import Any

from gpuflow.kubernetes.admission.pod import Body, Container, Pod, default_level
from gpuflow.resources import ResourceList

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
        return "Burstable" if any(_amounts(pod.level.requests)) else "BestEffort"
    cpu_requests = memory_requests = cpu_limits = memory_limits = 0
    guaranteed = True
    for requests, limits in parts:
        cpu, memory = _amounts(requests)
        cpu_requests += cpu
        memory_requests += memory
        cpu, memory = _amounts(limits)
        cpu_limits += cpu
        memory_limits += memory
        guaranteed = guaranteed and cpu > 0 and memory > 0
    if not (cpu_requests or memory_requests or cpu_limits or memory_limits):
        return "BestEffort"
    same = cpu_requests == cpu_limits and memory_requests == memory_limits
    return "Guaranteed" if guaranteed and same else "Burstable"


def _amounts(resources: ResourceList) -> tuple[int, int]:
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
        ("overhead", _render_list(pod.overhead) if pod.overhead else None),
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
        rendered["limits"] = _render_list(limits)
    if requests:
        rendered["requests"] = _render_list(requests)
    return rendered


def _render_list(resources: ResourceList) -> dict[str, str]:
    return {name: quantity.text for name, quantity in resources.items()}
