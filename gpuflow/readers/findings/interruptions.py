"""Rules about interruptions: retries on spot nodes, and checkpoints that do not help where they are needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpuflow.core import yaml_tree
from gpuflow.core.errors import Finding, Where, warning
from gpuflow.demands.gang_scheduling import as_mapping, gpus_of_pod, iter_maps
from gpuflow.formats.argo import workflow_of
from gpuflow.formats.documents import KFP, Library
from gpuflow.readers.findings.subject import Subject, checkpoint_mounts, command_words, spot_label

JOB_KINDS = (
    "Job", "CronJob", "JobSet", "PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob", "TrainJob",
)  # fmt: skip
"""Kinds that come to an end: of others, pods are restarted in place as a matter of course."""


def restarts_with_checkpoint(subject: Subject) -> Iterator[Finding]:
    """GF766: restartPolicy OnFailure where a checkpoint waits to be used."""
    if subject.kind not in JOB_KINDS:
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
        lost = {str(each.get("name")) for each in iter_maps(asked.pod["spec"].get("volumes")) if "emptyDir" in each}
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
    if subject.kind not in JOB_KINDS or "elasticPolicy" in as_mapping(subject.document.tree.get("spec")):
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


WORKFLOWS: Final = ("Workflow", "WorkflowTemplate", "ClusterWorkflowTemplate", "CronWorkflow")
ARGO_HINT: Final = (
    "retryPolicy: Always and an expression that lets interruptions pass and stops at failures, such as "
    "\"lastRetry.status == 'Error' || asInt(lastRetry.exitCode) in [137, 143]\""
)


def retries_on_spot(subject: Subject) -> Iterator[Finding]:
    """GF764, GF765: by the rules of the engine that retries."""
    if subject.document.group == "argoproj.io" and subject.kind in WORKFLOWS:
        yield from _argo(subject)
    elif subject.document.group == KFP:
        yield from _kubeflow(subject)
    elif subject.document.group == "batch" or subject.kind == "JobSet":
        yield from _jobs(subject)


def _argo(subject: Subject) -> Iterator[Finding]:
    """Each template once, whatever calls it; what patches and defaults make of its pod counts."""
    seen: set[Where] = set()
    workflow = workflow_of(subject.document, Library(subject.documents).seen_from(subject.document))
    defaults = as_mapping(workflow.tree.get("templateDefaults"))
    for step in subject.demand.steps:
        label = spot_label(step.pod["spec"], subject.site)
        template = None if label is None else subject.tree_of(step.name)
        if not isinstance(template, yaml_tree.Map):
            continue
        if "retryStrategy" in template:
            holder: Mapping[str, Any] = template
            found = yaml_tree.where_of(template, ("retryStrategy",), key=True)
            where = Where(subject.where(step.name).file, found.line, found.column)
        else:
            holder, path = (defaults, ("templateDefaults",)) if "retryStrategy" in defaults else (workflow.tree, ())
            where = workflow.where(*path, "retryStrategy", key=True)
        retry = as_mapping(holder.get("retryStrategy"))
        if not retry or retry.get("expression") or where in seen:
            continue
        seen.add(where)
        policy = str(retry.get("retryPolicy") or "OnFailure")
        title = f'template "{template.get("name") or step.name}" runs on spot nodes ({label})'
        if policy not in ("Always", "OnError"):
            yield warning("GF765", f"{title}, and {policy} does not cover a pod that is deleted", where, ARGO_HINT)
        elif retry.get("limit") is not None:
            text = f"{title}, and its limit of {retry['limit']} counts every lost node like a failure"
            yield warning("GF764", text, where, ARGO_HINT)


def _kubeflow(subject: Subject) -> Iterator[Finding]:
    for step in subject.demand.steps:
        label = spot_label(step.pod["spec"], subject.site)
        if label is not None and step.tries > 1:
            yield warning(
                "GF765",
                f'task "{step.name}" runs on spot nodes ({label}), and set_retry has no policy: Kubeflow retries '
                "either failures or deleted pods, as it is installed, and never tells them apart",
                subject.where(step.name),
                "ask the administrator for templateDefaults with retryPolicy: Always (limit 0), and test it",
            )


def _jobs(subject: Subject) -> Iterator[Finding]:
    for path, spec in _job_specs(subject):
        pod = as_mapping(as_mapping(spec.get("template")).get("spec"))
        label = spot_label(pod, subject.site)
        if label is None or pod.get("restartPolicy") == "OnFailure" or _ignores_disruption(spec):
            continue
        limit = spec.get("backoffLimit", 6)
        if subject.kind == "JobSet":
            if _restarts_for_free(subject):
                continue
            what = "every lost node counts toward failurePolicy.maxRestarts"
            hint = "a failurePolicy rule RestartJobSetAndIgnoreMaxRestarts for DisruptionTarget (JobSet 0.10)"
        else:
            what = f"every lost node counts toward backoffLimit ({limit})"
            hint = (
                "podFailurePolicy: {rules: [{action: Ignore, onPodConditions: "
                "[{type: DisruptionTarget, status: 'True'}]}]}"
            )
        where = subject.document.where(*path, "backoffLimit", key=True)
        yield warning("GF764", f"{subject.title} runs on spot nodes ({label}), and {what}", where, hint)


def _job_specs(subject: Subject) -> Iterator[tuple[tuple[str | int, ...], Mapping[str, Any]]]:
    spec = as_mapping(subject.document.tree.get("spec"))
    if subject.kind == "CronJob":
        yield ("spec", "jobTemplate", "spec"), as_mapping(as_mapping(spec.get("jobTemplate")).get("spec"))
    elif subject.kind == "JobSet":
        for number, each in enumerate(iter_maps(spec.get("replicatedJobs"))):
            path = ("spec", "replicatedJobs", number, "template", "spec")
            yield path, as_mapping(as_mapping(each.get("template")).get("spec"))
    else:
        yield ("spec",), spec


def _ignores_disruption(spec: Mapping[str, Any]) -> bool:
    return any(
        rule.get("action") == "Ignore"
        and any(each.get("type") == "DisruptionTarget" for each in iter_maps(rule.get("onPodConditions")))
        for rule in iter_maps(as_mapping(spec.get("podFailurePolicy")).get("rules"))
    )


def _restarts_for_free(subject: Subject) -> bool:
    policy = as_mapping(as_mapping(subject.document.tree.get("spec")).get("failurePolicy"))
    return any(rule.get("action") == "RestartJobSetAndIgnoreMaxRestarts" for rule in iter_maps(policy.get("rules")))
