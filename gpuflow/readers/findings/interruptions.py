"""Retries on spot nodes that count an interruption like a failure, or do not cover it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpuflow import yaml_tree
from gpuflow.demands.gang_scheduling import mapping, maps
from gpuflow.errors import Finding, Where
from gpuflow.readers.documents import KFP
from gpuflow.readers.findings.subject import Subject
from gpuflow.readers.findings.words import spot_label

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
    for step in subject.demand.steps:
        label = spot_label(step.pod["spec"], subject.site)
        template = None if label is None else subject.written(step.name)
        if not isinstance(template, yaml_tree.Map):
            continue
        own = "retryStrategy" in template
        holder, at = (template, subject.where(step.name)) if own else _template_defaults(subject)
        retry = mapping(holder.get("retryStrategy"))
        where = at if not isinstance(holder, yaml_tree.Map) else _key_place(holder, at)
        if not retry or retry.get("expression") or where in seen:
            continue
        seen.add(where)
        policy = str(retry.get("retryPolicy") or "OnFailure")
        title = f'template "{template.get("name") or step.name}" runs on spot nodes ({label})'
        if policy not in ("Always", "OnError"):
            yield _finding("GF765", f"{title}, and {policy} does not cover a pod that is deleted", where, ARGO_HINT)
        elif retry.get("limit") is not None:
            text = f"{title}, and its limit of {retry['limit']} counts every lost node like a failure"
            yield _finding("GF764", text, where, ARGO_HINT)


def _template_defaults(subject: Subject) -> tuple[Mapping[str, Any], Where]:
    """What the workflow says for all of its templates."""
    path = ("spec", "workflowSpec") if subject.kind == "CronWorkflow" else ("spec",)
    found: Mapping[str, Any] = subject.document.tree
    for part in (*path, "templateDefaults"):
        found = mapping(found.get(part))
    return found, subject.document.where(*path, "templateDefaults")


def _key_place(holder: yaml_tree.Map, known: Where) -> Where:
    found = yaml_tree.where_of(holder, ("retryStrategy",), key=True)
    return Where(known.file, found.line, found.column, None)


def _kubeflow(subject: Subject) -> Iterator[Finding]:
    for step in subject.demand.steps:
        label = spot_label(step.pod["spec"], subject.site)
        if label is not None and step.tries > 1:
            yield _finding(
                "GF765",
                f'task "{step.name}" runs on spot nodes ({label}), and set_retry has no policy: Kubeflow retries '
                "either failures or deleted pods, as it is installed, and never tells them apart",
                subject.where(step.name),
                "ask the administrator for templateDefaults with retryPolicy: Always (limit 0), and test it",
            )


def _jobs(subject: Subject) -> Iterator[Finding]:
    for path, spec in _job_specs(subject):
        pod = mapping(mapping(spec.get("template")).get("spec"))
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
        yield _finding("GF764", f"{subject.title} runs on spot nodes ({label}), and {what}", where, hint)


def _job_specs(subject: Subject) -> Iterator[tuple[tuple[str | int, ...], Mapping[str, Any]]]:
    spec = mapping(subject.document.tree.get("spec"))
    if subject.kind == "CronJob":
        yield ("spec", "jobTemplate", "spec"), mapping(mapping(spec.get("jobTemplate")).get("spec"))
    elif subject.kind == "JobSet":
        for number, each in enumerate(maps(spec.get("replicatedJobs"))):
            path = ("spec", "replicatedJobs", number, "template", "spec")
            yield path, mapping(mapping(each.get("template")).get("spec"))
    else:
        yield ("spec",), spec


def _ignores_disruption(spec: Mapping[str, Any]) -> bool:
    return any(
        rule.get("action") == "Ignore"
        and any(each.get("type") == "DisruptionTarget" for each in maps(rule.get("onPodConditions")))
        for rule in maps(mapping(spec.get("podFailurePolicy")).get("rules"))
    )


def _restarts_for_free(subject: Subject) -> bool:
    policy = mapping(mapping(subject.document.tree.get("spec")).get("failurePolicy"))
    return any(rule.get("action") == "RestartJobSetAndIgnoreMaxRestarts" for rule in maps(policy.get("rules")))


def _finding(code: str, text: str, where: Any, hint: str) -> Finding:
    return Finding(code, text, where, hint, severity="warning")
