"""Checkpoints that do not help where they are needed, and restarts that hide why they are needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpuflow.demands.gang_scheduling import gpus_of_pod, mapping, maps
from gpuflow.errors import Finding
from gpuflow.readers.findings.subject import Subject
from gpuflow.readers.findings.words import checkpoint_mounts, command_words

ENDING = ("Job", "CronJob", "JobSet", "PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob", "TrainJob")
"""Kinds that come to an end: of others, pods are restarted in place as a matter of course."""


def restarts_with_checkpoint(subject: Subject) -> Iterator[Finding]:
    """GF766: restartPolicy OnFailure where a checkpoint waits to be used."""
    if subject.kind not in ENDING:
        return
    for asked in subject.containers():
        if asked.pod["spec"].get("restartPolicy") != "OnFailure":
            continue
        for _, mount in checkpoint_mounts(asked.container):
            yield Finding(
                "GF766",
                f"{asked.title} keeps checkpoints in {mount.get('mountPath')}, and "
                "restartPolicy: OnFailure restarts it in place: an interruption counts like a failure",
                subject.where(asked.step.name),
                "restartPolicy: Never with a podFailurePolicy that ignores DisruptionTarget; a new pod then goes on "
                "from the checkpoint",
                severity="warning",
            )
            break


def checkpoints_lost(subject: Subject) -> Iterator[Finding]:
    """GF767: checkpoints in a volume that is deleted with its pod."""
    for asked in subject.containers():
        if _kept_by_supervisor(asked.container):
            continue
        lost = {str(each.get("name")) for each in maps(asked.pod["spec"].get("volumes")) if "emptyDir" in each}
        for _, mount in checkpoint_mounts(asked.container):
            if str(mount.get("name")) in lost:
                yield Finding(
                    "GF767",
                    f"{asked.title} keeps checkpoints in {mount.get('mountPath')}, "
                    "an emptyDir, which is deleted with its pod",
                    subject.where_of(asked, "volumeMounts"),
                    "mount a persistentVolumeClaim there, or save to an object store",
                    severity="warning",
                )


def _kept_by_supervisor(container: Mapping[str, Any]) -> bool:
    """Whether gpuflow-run carries what is saved there to a store."""
    words = command_words(container)
    own = words[: words.index("--")] if "--" in words else words
    starts = [index for index, word in enumerate(own) if word.rpartition("/")[2] == "gpuflow-run"]
    return bool(starts) and any(word.startswith("--store=") for word in own[starts[0] :])


def restarted_members(subject: Subject) -> Iterator[Finding]:
    """GF768: members of a gang with GPUs that are restarted one by one."""
    if subject.kind not in ENDING or "elasticPolicy" in mapping(subject.document.tree.get("spec")):
        return
    for step in subject.demand.steps:
        with_gpus = sum(each.count for each in step.pod_sets if gpus_of_pod(each.pod["spec"]))
        again = [each.name for each in step.pod_sets if each.pod["spec"].get("restartPolicy") == "OnFailure"]
        if with_gpus > 1 and again:
            yield Finding(
                "GF768",
                f'step "{step.name}": {", ".join(again[:5])} of a gang restart in place (restartPolicy: OnFailure) '
                "while the other members hang with their GPUs",
                subject.where(step.name),
                "restartPolicy: Never, so that the whole gang starts again",
                severity="note",
            )
