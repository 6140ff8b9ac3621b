"""Argo's own words as fields of the workflow, of its schedule, and of the templates of steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuflow.spec.engine_words.argo import (
    ArgoTemplate,
    ArgoWorkflow,
    Metric,
    PodMetadata,
    WorkflowHook,
    WorkflowSecurity,
)
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.step import Step

INSTANCE = "workflows.argoproj.io/controller-instanceid"
"""The label by which a controller knows its own objects."""
TITLE = "workflows.argoproj.io/title"


def workflow_words(pipeline: Pipeline) -> ArgoWorkflow:
    """What the pipeline says to Argo alone."""
    return (pipeline.engines and pipeline.engines.argo) or ArgoWorkflow()


def template_words(step: Step) -> ArgoTemplate:
    """What a step says to Argo alone."""
    return (step.engines and step.engines.argo) or ArgoTemplate()


def object_labels(pipeline: Pipeline) -> dict[str, str]:
    """Labels on the object and on its runs. A controller with an instance id looks at nothing without it."""
    instance = workflow_words(pipeline).instance_id
    return {INSTANCE: instance} if instance else {}


def object_annotations(pipeline: Pipeline) -> dict[str, str]:
    """Annotations on the object and on its runs."""
    words = workflow_words(pipeline)
    return {**({TITLE: words.title} if words.title else {}), **words.annotations}


def workflow_fields(pipeline: Pipeline, ours: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """Fields of the workflow's spec; None for what is not said. `ours`: metrics that the workflow has anyway."""
    words = workflow_words(pipeline)
    return {
        "archiveLogs": words.archive_logs,
        "priority": words.priority,
        "podMetadata": _metadata(words.pod_metadata),
        "securityContext": _security(words.security_context),
        "hooks": {name: _hook(hook) for name, hook in words.hooks.items()},
        "metrics": _metrics(words.metrics, ours),
    }


def schedule_fields(pipeline: Pipeline) -> dict[str, Any]:
    """Fields of a CronWorkflow's spec; None for what is not said."""
    history = workflow_words(pipeline).history
    return {
        "successfulJobsHistoryLimit": history.successful if history else None,
        "failedJobsHistoryLimit": history.failed if history else None,
    }


def template_fields(step: Step) -> dict[str, Any]:
    """Fields of the step's template; None for what is not said."""
    words = template_words(step)
    logs = words.archive_logs
    return {
        "archiveLocation": {"archiveLogs": logs} if logs is not None else None,
        "metrics": _metrics(words.metrics),
    }


def _metadata(given: PodMetadata | None) -> dict[str, Any] | None:
    if given is None:
        return None
    return {key: dict(value) for key in ("labels", "annotations") if (value := getattr(given, key))}


def _security(given: WorkflowSecurity | None) -> dict[str, Any] | None:
    if given is None:
        return None
    named = {
        "runAsUser": given.run_as_user,
        "runAsGroup": given.run_as_group,
        "fsGroup": given.fs_group,
        "runAsNonRoot": given.run_as_non_root,
        "seccompProfile": {"type": given.seccomp_profile} if given.seccomp_profile else None,
    }
    return {key: value for key, value in named.items() if value is not None}


def _hook(hook: WorkflowHook) -> dict[str, Any]:
    where = hook.template_ref
    reference: dict[str, Any] = {"name": where.name, "template": where.template}
    if where.cluster_scope:
        reference["clusterScope"] = True
    made: dict[str, Any] = {"expression": hook.expression, "templateRef": reference}
    if hook.arguments:
        made["arguments"] = {"parameters": [{"name": name, "value": value} for name, value in hook.arguments.items()]}
    return made


def _metrics(metrics: Sequence[Metric], ours: Sequence[dict[str, Any]] = ()) -> dict[str, Any] | None:
    found = [*ours, *map(_metric, metrics)]
    return {"prometheus": found} if found else None


def _metric(metric: Metric) -> dict[str, Any]:
    made: dict[str, Any] = {"name": metric.name, "help": metric.help}
    if metric.labels:
        made["labels"] = [{"key": key, "value": value} for key, value in metric.labels.items()]
    if metric.when is not None:
        made["when"] = metric.when
    if metric.counter is not None:
        made["counter"] = {"value": metric.counter}
    if metric.gauge is not None:
        gauge = metric.gauge
        # Argo requires `realtime` (MetricsTypes in workflow_types.go, 4.0.2).
        made["gauge"] = {"value": gauge.value, "realtime": gauge.realtime}
        if gauge.operation is not None:
            made["gauge"]["operation"] = gauge.operation
    if metric.histogram is not None:
        made["histogram"] = {"value": metric.histogram.value, "buckets": list(metric.histogram.buckets)}
    return made
