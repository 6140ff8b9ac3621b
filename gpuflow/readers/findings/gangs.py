"""Pods that wait for each other, and whether anything starts them together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from gpuflow.demands.gang_scheduling import gangs_of, is_queued, mapping, placed_one_by_one, starts_whole
from gpuflow.errors import Finding
from gpuflow.kubernetes.labels import QUEUE_LABEL
from gpuflow.readers.findings.subject import Subject

SERVING: Final = ("Deployment", "StatefulSet", "ReplicaSet", "ReplicationController", "DaemonSet", "Pod")
"""Kinds whose pods do not wait for each other."""
BY_WORKFLOW: Final = ("Workflow", "WorkflowTemplate", "ClusterWorkflowTemplate", "CronWorkflow")


def gangs_without_scheduling(subject: Subject) -> Iterator[Finding]:
    """GF771: members with GPUs that are placed one by one."""
    if subject.kind in SERVING or _operator_schedules(subject):
        return
    for step in gangs_of(subject.demand):
        if starts_whole(step):
            continue
        hint = f"label the object {QUEUE_LABEL}: QUEUE where Kueue runs, or use the scheduler of Volcano or a PodGroup"
        yield placed_one_by_one(step, subject.where(step.name), hint, overlaps=subject.demand.overlap is not None)


def queue_on_pods(subject: Subject) -> Iterator[Finding]:
    """GF774: a queue that admits the pods of a gang one by one."""
    if subject.kind in (*SERVING, *BY_WORKFLOW) or _object_names_queue(subject):
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
        tree = mapping(mapping(tree.get("spec")).get("jobTemplate"))
    return bool(mapping(mapping(tree.get("metadata")).get("labels")).get(QUEUE_LABEL))


def _operator_schedules(subject: Subject) -> bool:
    """Whether the operator is told to make a PodGroup."""
    spec = mapping(subject.document.tree.get("spec"))
    if mapping(spec.get("runPolicy")).get("schedulingPolicy"):
        return True
    if subject.kind == "TrainJob":
        name = mapping(spec.get("runtimeRef")).get("name")
        runtimes = (each for each in subject.documents if each.kind.endswith("TrainingRuntime") and each.name == name)
        return any(mapping(each.tree.get("spec")).get("podGroupPolicy") for each in runtimes)
    return False
