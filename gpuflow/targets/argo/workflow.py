"""The workflow object around the templates, and the check that Hera's models hold every field of it."""

from __future__ import annotations

from typing import Any

from hera.workflows import models

from gpuflow.emit import emit
from gpuflow.errors import Where, did_you_mean, fail
from gpuflow.pod.build import LABEL
from gpuflow.pod.volumes import run_claim_volume
from gpuflow.spec.params import text_of
from gpuflow.spec.pipeline import Pipeline
from gpuflow.targets.argo.capabilities import CAPABILITIES
from gpuflow.targets.argo.graph import EXIT, MAIN, Templates
from gpuflow.targets.frame import Artifact, Capabilities, Request, header

KINDS: dict[str, Any] = {
    "WorkflowTemplate": models.WorkflowTemplate,
    "Workflow": models.Workflow,
    "CronWorkflow": models.CronWorkflow,
    "ClusterWorkflowTemplate": models.ClusterWorkflowTemplate,
}
POLICIES = {"allow": "Allow", "forbid": "Forbid", "replace": "Replace"}


class Argo:
    """Compiles to a WorkflowTemplate, or to a CronWorkflow when there is a schedule; --as asks for another kind."""

    name = "argo"
    capabilities: Capabilities = CAPABILITIES

    def compile(self, request: Request) -> Artifact:
        manifest = build(request)
        comment = "".join(f"# {line}\n" for line in header(request, self.name))
        return Artifact(f"{request.pipeline.name}.yaml", comment + emit(manifest))


def build(request: Request) -> dict[str, Any]:
    """The manifest as plain data, exactly what Hera's own model of it says."""
    pipeline = request.pipeline
    kind = request.options.get("as") or ("CronWorkflow" if pipeline.schedule else "WorkflowTemplate")
    if kind not in KINDS:
        raise fail(
            "GF903",
            f'"{kind}" is not a kind of Argo object',
            where=Where(pipeline.source.file),
            hint=did_you_mean(kind, KINDS),
        )
    labels = {**pipeline.labels, f"{LABEL}pipeline": pipeline.name}
    metadata: dict[str, Any] = {"name": pipeline.name, "labels": labels}
    if request.namespace is not None and kind != "ClusterWorkflowTemplate":
        metadata["namespace"] = request.namespace
    if kind == "Workflow":
        metadata["generateName"] = metadata.pop("name") + "-"
    if pipeline.description is not None:
        metadata["annotations"] = {"workflows.argoproj.io/description": pipeline.description}
    spec = _workflow_spec(request)
    if kind == "CronWorkflow":
        spec = _cron_spec(pipeline, spec, labels)
    manifest = {"apiVersion": "argoproj.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}
    _check_against_hera(manifest)
    return manifest


def _workflow_spec(request: Request) -> dict[str, Any]:
    pipeline = request.pipeline
    templates = Templates(request.site)
    templates.dag(pipeline, MAIN, nested=False)
    if pipeline.exit:
        templates.exit(pipeline)
    spec: dict[str, Any] = {
        "entrypoint": MAIN,
        "onExit": EXIT if pipeline.exit else None,
        "arguments": _arguments(pipeline),
        "parallelism": pipeline.parallel,
        "activeDeadlineSeconds": pipeline.deadline.seconds if pipeline.deadline else None,
        "serviceAccountName": request.site.engines.argo.service_account,
        "volumeClaimTemplates": _claims(pipeline),
        "volumeClaimGC": {"strategy": "OnWorkflowCompletion"} if pipeline.claims else None,
        "templates": templates.found,
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


def _cron_spec(pipeline: Pipeline, spec: dict[str, Any], labels: dict[str, str]) -> dict[str, Any]:
    schedule = pipeline.schedule
    if schedule is None:
        raise fail(
            "GF903",
            "a CronWorkflow needs a schedule",
            where=Where(pipeline.source.file),
            hint="add schedule: to the pipeline",
        )
    cron: dict[str, Any] = {
        "schedules": [schedule.cron],
        "timezone": schedule.timezone,
        "concurrencyPolicy": POLICIES[schedule.concurrency],
        "suspend": True if schedule.suspended else None,
        "workflowMetadata": {"labels": labels},
        "workflowSpec": spec,
    }
    return {key: value for key, value in cron.items() if value is not None}


def _check_against_hera(manifest: dict[str, Any]) -> None:
    """Hera drops fields it does not know in silence; what went in must come out."""
    model = KINDS[manifest["kind"]].model_validate(manifest)
    out = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    lost = list(_differences(manifest, out, ""))
    if lost:
        raise AssertionError(f"Hera's models lose or change {', '.join(lost[:5])}")


def _differences(given: Any, kept: Any, path: str) -> list[str]:
    """Paths at which Hera's model holds something else than was given."""
    if isinstance(given, dict):
        if not isinstance(kept, dict):
            return [path]
        return [found for key, value in given.items() for found in _differences(value, kept.get(key), f"{path}.{key}")]
    if isinstance(given, list):
        if not isinstance(kept, list) or len(given) != len(kept):
            return [path]
        return [found for i, value in enumerate(given) for found in _differences(value, kept[i], f"{path}[{i}]")]
    return [] if given == kept else [f"{path}: {given!r} became {kept!r}"]
