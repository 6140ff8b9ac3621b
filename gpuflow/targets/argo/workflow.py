"""The workflow object around the templates."""

from __future__ import annotations

from typing import Any

from gpuflow.date_format import MOMENT, formatted
from gpuflow.emit import emit
from gpuflow.errors import Where, did_you_mean, fail
from gpuflow.pod.build import LABEL
from gpuflow.pod.volumes import run_claim_volume
from gpuflow.printable import comment
from gpuflow.spec.params import text_of
from gpuflow.spec.pipeline import Pipeline
from gpuflow.targets.argo.alert_rules import run_metrics
from gpuflow.targets.argo.alerts import sent_by_agent
from gpuflow.targets.argo.defaults import run_defaults
from gpuflow.targets.argo.facts import FACTS
from gpuflow.targets.argo.graph import EXIT, MAIN, Templates
from gpuflow.targets.argo.models import KINDS, check_against_hera
from gpuflow.targets.argo.options import ArgoOptions
from gpuflow.targets.argo.own_words import object_annotations, object_labels, schedule_fields, workflow_fields
from gpuflow.targets.argo.run_facts import BY_HAND, RunFacts, without_schedule
from gpuflow.targets.argo.semaphores import reason
from gpuflow.targets.argo.sharing import shared
from gpuflow.targets.argo.size import size_findings
from gpuflow.targets.argo.versions import for_version
from gpuflow.targets.cron import go_cron
from gpuflow.targets.frame import Artifact, Request, header

POLICIES = {"allow": "Allow", "forbid": "Forbid", "replace": "Replace"}
TEMPLATES = ("WorkflowTemplate", "ClusterWorkflowTemplate")
"""Kinds whose own labels their runs do not get: each run is another object."""


def compile_request(request: Request) -> Artifact:
    """The manifest as YAML, with what a reader should know above it."""
    manifest = for_version(build(request), request.site)
    waiting = reason(request.pipeline, request.site, request.options_as(ArgoOptions).semaphores)
    by_hand = [f"Dates of the run are {BY_HAND}." for _ in without_schedule(request.plan)]
    findings = size_findings(request.plan, manifest)
    return Artifact(
        f"{request.pipeline.name}.yaml", comment((*header(request), *by_hand, *waiting)) + emit(manifest), findings
    )


def build(request: Request) -> dict[str, Any]:
    """The manifest as plain data, exactly what Hera's own model of it says."""
    pipeline = request.pipeline
    kind = request.options_as(ArgoOptions).kind or ("CronWorkflow" if pipeline.schedule else "WorkflowTemplate")
    if kind not in KINDS:
        raise fail(
            "GF903",
            f'"{kind}" is not a kind of Argo object',
            where=Where(pipeline.source.file),
            hint=did_you_mean(kind, KINDS),
        )
    labels = {**pipeline.labels, f"{LABEL}pipeline": pipeline.name, **object_labels(pipeline)}
    annotations = object_annotations(pipeline)
    metadata: dict[str, Any] = {"name": pipeline.name, "labels": labels}
    if request.namespace is not None and kind != "ClusterWorkflowTemplate":
        metadata["namespace"] = request.namespace
    if kind == "Workflow":
        metadata["generateName"] = metadata.pop("name") + "-"
    if pipeline.description is not None:
        annotations = {"workflows.argoproj.io/description": pipeline.description, **annotations}
    if annotations:
        metadata["annotations"] = annotations
    spec = _workflow_spec(request)
    of_runs = _of_runs(pipeline, labels)
    if kind == "CronWorkflow":
        spec = _cron_spec(request, spec, of_runs)
    elif kind in TEMPLATES:
        spec = {"workflowMetadata": of_runs, **spec}
    manifest = {"apiVersion": "argoproj.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}
    check_against_hera(manifest)
    return manifest


def _of_runs(pipeline: Pipeline, labels: dict[str, str]) -> dict[str, Any]:
    """What each run gets of the object's metadata: Argo copies none of it by itself."""
    annotations = object_annotations(pipeline)
    return {"labels": labels, "annotations": annotations} if annotations else {"labels": labels}


def _workflow_spec(request: Request) -> dict[str, Any]:
    pipeline = request.pipeline
    templates = Templates(request.site, request.options_as(ArgoOptions).semaphores, RunFacts(pipeline.schedule))
    templates.dag(pipeline, MAIN, nested=False)
    has_exit = bool(pipeline.exit or sent_by_agent(pipeline, request.site))
    if has_exit:
        templates.exit(pipeline)
    spec: dict[str, Any] = {
        "entrypoint": MAIN,
        "onExit": EXIT if has_exit else None,
        "arguments": _arguments(pipeline),
        "parallelism": pipeline.parallel,
        "activeDeadlineSeconds": pipeline.deadline.seconds if pipeline.deadline else None,
        **run_defaults(pipeline, request.site),
        **workflow_fields(pipeline, run_metrics(pipeline, request.site)),
        "volumeClaimTemplates": _claims(pipeline),
        "volumeClaimGC": {"strategy": "OnWorkflowCompletion"} if pipeline.claims else None,
        "templates": shared(templates.found, (MAIN, EXIT)),
    }
    return {key: value for key, value in spec.items() if value not in (None, [], {})}


def _arguments(pipeline: Pipeline) -> dict[str, Any] | None:
    parameters = []
    for name, param in pipeline.params.items():
        entry: dict[str, Any] = {"name": name}
        if not param.required:
            entry["value"] = text_of(param.default)
        if param.enum is not None:
            entry["enum"] = [text_of(value) for value in param.enum]
        if param.description is not None:
            entry["description"] = param.description
        parameters.append(entry)
    return {"parameters": parameters} if parameters else None


def _claims(pipeline: Pipeline) -> list[dict[str, Any]]:
    claims = []
    for name, claim in pipeline.claims.items():
        spec: dict[str, Any] = {"accessModes": [claim.access], "resources": {"requests": {"storage": str(claim.size)}}}
        if claim.storage_class is not None:
            spec["storageClassName"] = claim.storage_class
        claims.append({"metadata": {"name": run_claim_volume(name)}, "spec": spec})
    return claims


def _cron_spec(request: Request, spec: dict[str, Any], of_runs: dict[str, Any]) -> dict[str, Any]:
    pipeline, schedule = request.pipeline, request.pipeline.schedule
    late = request.site.engine(FACTS.name).starting_deadline
    if schedule is None:
        raise fail(
            "GF903",
            "a CronWorkflow needs a schedule",
            where=Where(pipeline.source.file),
            hint="add schedule: to the pipeline",
        )
    cron: dict[str, Any] = {
        "schedules": [go_cron(schedule.cron)],
        "timezone": schedule.timezone,
        "when": f"{{{{=now() >= date('{formatted(schedule.begins, MOMENT)}')}}}}"
        if schedule.begins is not None
        else None,
        "concurrencyPolicy": POLICIES[schedule.concurrency],
        "startingDeadlineSeconds": late.seconds if late is not None else None,
        "suspend": True if schedule.suspended else None,
        **schedule_fields(pipeline),
        "workflowMetadata": of_runs,
        "workflowSpec": spec,
    }
    return {key: value for key, value in cron.items() if value is not None}
