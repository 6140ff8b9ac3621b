"""Pods that wait for each other, and whether anything starts them together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from gpuflow.demands.model import StepDemand
from gpuflow.errors import Finding
from gpuflow.kubernetes.labels import QUEUE_LABEL
from gpuflow.readers.findings.subject import Subject
from gpuflow.readers.findings.words import gpus_of_pod, is_queued, is_scheduled_as_gang, mapping

SERVING: Final = ("Deployment", "StatefulSet", "ReplicaSet", "ReplicationController", "DaemonSet", "Pod")
"""Kinds whose pods do not wait for each other."""
BY_WORKFLOW: Final = ("Workflow", "WorkflowTemplate", "ClusterWorkflowTemplate", "CronWorkflow")


def gangs_without_scheduling(subject: Subject) -> Iterator[Finding]:
    """GF771: members with GPUs that are placed one by one."""
    if subject.kind in SERVING or _operator_schedules(subject):
        return
    for step in _gangs(subject):
        pods = [each.pod for each in step.pod_sets]
        if any(map(is_queued, pods)) or any(map(is_scheduled_as_gang, pods)):
            continue
        number = sum(each.count for each in step.pod_sets if gpus_of_pod(each.pod["spec"]))
        again = "; its own schedule can start a second one beside it" if subject.demand.overlap is not None else ""
        yield Finding(
            "GF771",
            f'step "{step.name}": {number} pods with GPUs wait for each other, and nothing starts all of them or none: '
            f"two such gangs can each hold a part of the GPUs forever{again}",
            subject.where(step.name),
            f"label the object {QUEUE_LABEL}: QUEUE where Kueue runs, or use the scheduler of Volcano or a PodGroup",
            severity="warning",
        )


def queue_on_pods(subject: Subject) -> Iterator[Finding]:
    """GF774: a queue that admits the pods of a gang one by one."""
    if subject.kind in (*SERVING, *BY_WORKFLOW) or _object_names_queue(subject):
        return
    for step in _gangs(subject, least_gpus=0):
        if any(is_queued(each.pod) for each in step.pod_sets):
            yield Finding(
                "GF774",
                f'step "{step.name}": its pods name a queue and {subject.title} does not, so Kueue '
                "admits each pod on its own, and a part of the gang may wait for the rest",
                subject.where(step.name),
                f"move the label {QUEUE_LABEL} to metadata.labels of the {subject.kind}",
                severity="warning",
            )


def _gangs(subject: Subject, least_gpus: int = 1) -> Iterator[StepDemand]:
    """Steps of which at least two pods ask for so many GPUs."""
    for step in subject.demand.steps:
        if sum(each.count for each in step.pod_sets if gpus_of_pod(each.pod["spec"]) >= least_gpus) > 1:
            yield step


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
