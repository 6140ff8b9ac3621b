"""Rules over documents of other tools: gangs, GPU limits, schedules, shared memory, updates; `RULES` is the list."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from gpuflow.core.errors import Finding
from gpuflow.demands.gang_scheduling import (
    as_mapping,
    gangs_of,
    gpus,
    is_queued,
    iter_maps,
    one_by_one_finding,
    starts_whole,
)
from gpuflow.kubernetes.labels import QUEUE_LABEL
from gpuflow.kubernetes.resources import read_quantity
from gpuflow.quantity import Quantity
from gpuflow.readers.findings.interruptions import (
    WORKFLOWS,
    checkpoints_lost,
    restarted_members,
    restarts_with_checkpoint,
    retries_on_spot,
)
from gpuflow.readers.findings.subject import Subject, looks_like_torch
from gpuflow.readers.kubernetes.fields import Part, amount_or_percentage, surge_of

SERVING: Final = ("Deployment", "StatefulSet", "ReplicaSet", "ReplicationController", "DaemonSet", "Pod")
"""Kinds whose pods do not wait for each other."""


def gangs_without_scheduling(subject: Subject) -> Iterator[Finding]:
    """GF771: members with GPUs that are placed one by one."""
    if subject.kind in SERVING or _operator_schedules(subject):
        return
    for step in gangs_of(subject.demand):
        if starts_whole(step):
            continue
        hint = f"label the object {QUEUE_LABEL}: QUEUE where Kueue runs, or use the scheduler of Volcano or a PodGroup"
        yield one_by_one_finding(step, subject.where(step.name), hint, overlaps=subject.demand.overlap is not None)


def queue_on_pods(subject: Subject) -> Iterator[Finding]:
    """GF774: a queue that admits the pods of a gang one by one."""
    if subject.kind in (*SERVING, *WORKFLOWS) or _object_names_queue(subject):
        return
    for step in gangs_of(subject.demand, least_gpus=0):
        if any(is_queued(each.pod) for each in step.pod_sets):
            yield Finding(
                "GF774",
                f'step "{step.name}": its pods name a queue and {subject.title} does not, so Kueue '
                "admits each pod on its own, and a part of the gang may wait for the rest",
                subject.where(step.name),
                f"move the label {QUEUE_LABEL} to metadata.labels of the {subject.kind}",
                severity="warning",
            )


def _object_names_queue(subject: Subject) -> bool:
    tree: Mapping[str, object] = subject.document.tree
    if subject.kind == "CronJob":
        tree = as_mapping(as_mapping(tree.get("spec")).get("jobTemplate"))
    return bool(as_mapping(as_mapping(tree.get("metadata")).get("labels")).get(QUEUE_LABEL))


def _operator_schedules(subject: Subject) -> bool:
    """Whether the operator is told to make a PodGroup."""
    spec = as_mapping(subject.document.tree.get("spec"))
    if as_mapping(spec.get("runPolicy")).get("schedulingPolicy"):
        return True
    if subject.kind == "TrainJob":
        name = as_mapping(spec.get("runtimeRef")).get("name")
        runtimes = (each for each in subject.documents if each.kind.endswith("TrainingRuntime") and each.name == name)
        return any(as_mapping(each.tree.get("spec")).get("podGroupPolicy") for each in runtimes)
    return False


def gpus_without_limit(subject: Subject) -> Iterator[Finding]:
    """GF761: a request for GPUs without a limit, or with another one."""
    for asked in subject.containers():
        resources = asked.container.get("resources")
        if not isinstance(resources, Mapping):
            continue
        requests, limits = (_amounts(resources.get(side)) for side in ("requests", "limits"))
        for key, amount in requests.items():
            # Of an extended resource, whose name has a domain that is not Kubernetes' own, both must be the same.
            if "/" not in key or "kubernetes.io/" in key or limits.get(key) == amount:
                continue
            given = "no limit" if key not in limits else f"a limit of {limits[key]}"
            yield Finding(
                "GF761",
                f"{asked.title} requests {amount} {key} and has {given}; Kubernetes refuses that",
                subject.where_of(asked, "resources", "requests", key),
                f"resources: {{limits: {{{key}: {amount}}}}} says both",
                severity="warning",
            )


def _amounts(listed: object) -> dict[str, Quantity]:
    found: dict[str, Quantity] = {}
    for key, value in listed.items() if isinstance(listed, Mapping) else ():
        try:
            found[str(key)] = read_quantity(value)
        except ValueError:
            continue  # whoever reads the pod says so
    return found


def overlapping_schedule(subject: Subject) -> Iterator[Finding]:
    """GF772: a check says the same with its verdict (GF553)."""
    overlap = subject.demand.overlap
    if overlap is not None:
        yield Finding(
            "GF772",
            f"{subject.title} may run several times at once ({overlap.because}): the peak is that of one run",
            overlap.where,
            "max_active_runs=1 waits for the run before"
            if subject.kind == "DAG"
            else "concurrencyPolicy: Forbid waits for the run before, Replace stops it",
            severity="warning",
        )


SHM = "/dev/shm"


def small_shared_memory(subject: Subject) -> Iterator[Finding]:
    """GF769: PyTorch on several GPUs with the runtime's own /dev/shm."""
    for asked in subject.containers():
        number = gpus(asked.container)
        mounts = {str(mount.get("mountPath")).rstrip("/") for mount in iter_maps(asked.container.get("volumeMounts"))}
        if number < 2 or SHM in mounts or asked.pod["spec"].get("hostIPC") or not looks_like_torch(asked.container):
            continue
        yield Finding(
            "GF769",
            f"{asked.title} uses {number} GPUs with PyTorch, and its {SHM} has the 64 MiB of the container runtime",
            subject.where_of(asked, "volumeMounts"),
            f"mount an emptyDir {{medium: Memory, sizeLimit: 16Gi}} at {SHM}; it counts in the memory limit",
            severity="warning",
        )


def update_surges(subject: Subject) -> Iterator[Finding]:
    """GF773: what runs while an update replaces pods."""
    root = Part(subject.document, (), subject.document.tree)
    if subject.document.group == "apps" and subject.kind == "Deployment":
        spec = root.need("spec")
        count = spec.count("replicas", 1)
        yield from _surge_finding(subject, count, surge_of(spec, count), "pods", spec.at("strategy") or spec)
    elif subject.kind == "LeaderWorkerSet":
        spec = root.need("spec")
        count = spec.count("replicas", 1)
        surge = spec.at("rolloutStrategy", "rollingUpdateConfiguration", "maxSurge")
        if surge is not None:
            yield from _surge_finding(subject, count, amount_or_percentage(surge, count, "0%"), "groups", surge)
    elif subject.kind == "RayService":
        upgrade = root.at("spec", "upgradeStrategy")
        if upgrade is None or upgrade.text("type") != "None":
            yield from _surge_finding(subject, 1, 1, "Ray clusters", upgrade or root.need("spec"))


def _surge_finding(subject: Subject, count: int, more: int, what: str, at: Part) -> Iterator[Finding]:
    if more:
        yield Finding(
            "GF773",
            f"{subject.title}: the peak is that of the first start, with {count} of its {what}; an update runs up to "
            f"{count + more} at the same time",
            at.key_where,
            "leave room for them"
            + (", or set strategy: {rollingUpdate: {maxSurge: 0}}" if subject.kind == "Deployment" else ""),
            severity="note",
        )


RULES: tuple[Callable[[Subject], Iterator[Finding]], ...] = (
    gpus_without_limit,
    retries_on_spot,
    restarts_with_checkpoint,
    checkpoints_lost,
    restarted_members,
    small_shared_memory,
    gangs_without_scheduling,
    queue_on_pods,
    overlapping_schedule,
    update_surges,
)
