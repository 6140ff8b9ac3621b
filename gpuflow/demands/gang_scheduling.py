"""Gangs, and whether anything starts all of their pods or none: a queue, or a scheduler that knows groups.

Pods that wait in a queue of Volcano are admitted by Volcano, whose queues and preemptions are not modeled.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpuflow.core.errors import Finding, Where, warning
from gpuflow.demands.model import Demand, StepDemand, UnseenPart
from gpuflow.kubernetes.labels import QUEUE_LABEL

DEFAULT_SCHEDULER: Final = "default-scheduler"
CONTAINERS: Final = ("containers", "initContainers")
_GPU: Final = re.compile(r"(^|[./-])gpu($|[./-])|/mig-", re.IGNORECASE)
GROUP_LABELS: Final = (
    "scheduling.x-k8s.io/pod-group",
    "pod-group.scheduling.sigs.k8s.io",
    "pod-group.scheduling.sigs.k8s.io/name",
    "scheduling.k8s.io/group-name",
    "scheduling.volcano.sh/group-name",
    "kai.scheduler/queue",
    "runai/queue",
)
"""Labels and annotations by which a scheduler knows the pods of one gang."""


def iter_maps(value: object) -> Iterator[Mapping[str, Any]]:
    """The maps in what may be a list of them."""
    if isinstance(value, list):
        yield from (each for each in value if isinstance(each, Mapping))


def as_mapping(value: object) -> Mapping[str, Any]:
    """The value where it is a map, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def gpus(container: Mapping[str, Any]) -> int:
    """How many GPUs or slices a container asks for."""
    resources = as_mapping(container.get("resources"))
    asked = {**as_mapping(resources.get("requests")), **as_mapping(resources.get("limits"))}
    total = 0
    for key, value in asked.items():
        if "/" in str(key) and _GPU.search(str(key)):
            try:
                total += int(str(value))
            except ValueError:
                continue
    return total


def gpus_of_pod(spec: Mapping[str, Any]) -> int:
    """How many all containers of a pod ask for."""
    return sum(gpus(container) for group in CONTAINERS for container in iter_maps(spec.get(group)))


def is_queued(pod: Mapping[str, Any]) -> bool:
    """Whether the pod names a queue of Kueue."""
    return bool(as_mapping(as_mapping(pod.get("metadata")).get("labels")).get(QUEUE_LABEL))


def is_scheduled_as_gang(pod: Mapping[str, Any]) -> bool:
    """Whether a scheduler starts the pod with all others of its group or not at all."""
    metadata, spec = as_mapping(pod.get("metadata")), as_mapping(pod.get("spec"))
    known = {**as_mapping(metadata.get("labels")), **as_mapping(metadata.get("annotations"))}
    if any(key in known for key in GROUP_LABELS) or spec.get("schedulingGroup"):
        return True
    return bool(spec.get("schedulerName", DEFAULT_SCHEDULER) != DEFAULT_SCHEDULER)


def starts_whole(step: StepDemand) -> bool:
    """Whether a queue or a scheduler starts all pods of a gang or none."""
    pods = [each.pod for each in step.pod_sets]
    return any(map(is_queued, pods)) or any(map(is_scheduled_as_gang, pods))


def gangs_of(demand: Demand, least_gpus: int = 1) -> Iterator[StepDemand]:
    """Steps of which at least two pods ask for so many GPUs."""
    for step in demand.steps:
        if sum(each.count for each in step.pod_sets if gpus_of_pod(each.pod["spec"]) >= least_gpus) > 1:
            yield step


def one_by_one_finding(step: StepDemand, where: Where, hint: str, *, overlaps: bool) -> Finding:
    """GF771 for one gang."""
    number = sum(each.count for each in step.pod_sets if gpus_of_pod(each.pod["spec"]))
    again = "; its own schedule can start a second one beside it" if overlaps else ""
    return warning(
        "GF771",
        f'step "{step.name}": {number} pods with GPUs wait for each other, and nothing starts all of them or none: '
        f"two such gangs can each hold a part of the GPUs forever{again}",
        where,
        hint,
    )


DEFAULT_QUEUE = "default"


def volcano_queue_unseen(step: str, queue: str | None, where: Where) -> UnseenPart:
    """What is not known of a Job of Volcano; it is in a queue always."""
    name = queue or DEFAULT_QUEUE
    text = f"whether Volcano's queue {name} has room, and what it preempts, only Volcano knows"
    hint = f"look at it: kubectl describe queues.scheduling.volcano.sh {name}"
    return UnseenPart(step, text, where, hint=hint, is_placement=True)
