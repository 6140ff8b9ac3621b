"""The artifact: pipeline spec and platform spec as two YAML documents, or as resources for Git."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from gpuflow.emit import emit_all
from gpuflow.errors import GpuflowError, fail
from gpuflow.printable import comment
from gpuflow.spec.pipeline import Pipeline
from gpuflow.targets.frame import Artifact, Request, header
from gpuflow.targets.kubeflow.alerts import with_alerts
from gpuflow.targets.kubeflow.approvals import without_approvals
from gpuflow.targets.kubeflow.build import Builder, parameters
from gpuflow.targets.kubeflow.calls import client_line, run_calls
from gpuflow.targets.kubeflow.component import HEADER, component_documents, component_refusals
from gpuflow.targets.kubeflow.dag import outputs_of
from gpuflow.targets.kubeflow.endings import root
from gpuflow.targets.kubeflow.messages import SCHEMA_VERSION, ir
from gpuflow.targets.kubeflow.options import COMPONENT, KubeflowOptions
from gpuflow.targets.kubeflow.own_words import pipeline_words
from gpuflow.targets.kubeflow.plain import plain
from gpuflow.version import __version__

FORMS = ("ir", "crd", COMPONENT)
COMFORTABLE_TASKS = 250
"""Argo keeps a run in one object of at most 1 MiB; KFP needs some 2.5 KB of it per task, more with pod settings."""


def compile_request(request: Request) -> Artifact:
    """The compiled pipeline as one file."""
    form = request.options_as(KubeflowOptions).form or "ir"
    if form not in FORMS:
        raise fail("GF302", f'kubeflow has no form "{form}"', hint=f"known here: {', '.join(FORMS)}")
    name = f"{request.pipeline.name}.yaml"
    if form == COMPONENT:
        return _component(request, name)
    spec, platform, tasks = documents(request)
    plain_parts = [spec, platform] if platform else [spec]
    version = f"{request.pipeline.name}-{_digest(spec, platform)}" if form == "crd" else None
    parts = _resources(request, version, spec, platform) if version else plain_parts
    calls = _start(request, None if version else request.file or name, version)
    lines = [*header(request), *_notes(tasks), *calls]
    return Artifact(name, comment(lines) + emit_all(parts))


def _component(request: Request, name: str) -> Artifact:
    """The pipeline as one component."""
    found = list(component_refusals(request.pipeline))
    if found:
        raise GpuflowError(found)
    parts = [part for part in component_documents(request) if part]
    return Artifact(name, comment([*header(request), *HEADER]) + emit_all(parts))


def documents(request: Request) -> tuple[dict[str, Any], dict[str, Any], int]:
    """Pipeline spec, platform spec (empty when there is nothing to say) and the number of steps, as plain data."""
    pipeline = with_alerts(without_approvals(request.pipeline), request.site)
    builder = Builder(pipeline, request.site)
    dag = root(builder)
    spec = ir.PipelineSpec(
        schema_version=SCHEMA_VERSION, sdk_version=f"gpuflow-{__version__}", components=builder.components
    )
    spec.pipeline_info.name = pipeline.name
    spec.pipeline_info.description = pipeline.description or ""
    own = pipeline_words(pipeline)
    spec.pipeline_info.display_name = own.display_name or ""
    spec.default_pipeline_root = own.pipeline_root or ""
    spec.root.dag.CopyFrom(dag.spec(pipeline.outputs))
    if pipeline.params:
        spec.root.input_definitions.CopyFrom(parameters(builder))
    if pipeline.outputs:
        types = {name: dag.produced[ref][2] for name, ref in pipeline.outputs.items()}
        spec.root.output_definitions.CopyFrom(outputs_of(types))
    executors = {"executors": dict(sorted(builder.executors.items()))}
    written = dict(sorted({**plain(spec), "deploymentSpec": executors}.items()))
    return written, _platform(builder, _run_config(pipeline)), len(builder.executors)


def _run_config(pipeline: Pipeline) -> dict[str, Any]:
    """What holds for a whole run."""
    ttl = pipeline_words(pipeline).ttl
    said = {
        "activeDeadlineSeconds": pipeline.deadline.seconds if pipeline.deadline else None,
        "resourceTtlOnCompletion": ttl.seconds if ttl else None,
    }
    return {key: value for key, value in said.items() if value is not None}


def _platform(builder: Builder, config: dict[str, Any]) -> dict[str, Any]:
    kubernetes: dict[str, Any] = {}
    said = {label: config for label, config in sorted(builder.configs.items()) if config}
    if said:
        kubernetes["deploymentSpec"] = {"executors": said}
    if config:
        kubernetes["pipelineConfig"] = config
    return {"platforms": {"kubernetes": kubernetes}} if kubernetes else {}


def _digest(spec: dict[str, Any], platform: dict[str, Any]) -> str:
    """A version is named after what it holds, so that a change makes a new one."""
    return hashlib.sha256(json.dumps([spec, platform], sort_keys=True).encode()).hexdigest()[:8]


def _resources(request: Request, version: str, spec: dict[str, Any], platform: dict[str, Any]) -> list[dict[str, Any]]:
    """Pipeline and PipelineVersion."""
    pipeline = request.pipeline
    name, labels = pipeline.name, {**request.site.labels, **pipeline.labels}
    metadata: dict[str, Any] = {"namespace": request.namespace} if request.namespace else {}
    if labels:
        metadata["labels"] = dict(sorted(labels.items()))
    shown = pipeline_words(pipeline).display_name or name
    about = {"description": pipeline.description} if pipeline.description else {}
    body = {"pipelineName": name, "displayName": version, **about, "pipelineSpec": spec}
    if platform:
        body["platformSpec"] = platform
    kind = {"apiVersion": "pipelines.kubeflow.org/v2beta1"}
    return [
        {**kind, "kind": "Pipeline", "metadata": {"name": name, **metadata}, "spec": {"displayName": shown, **about}},
        {**kind, "kind": "PipelineVersion", "metadata": {"name": version, **metadata}, "spec": body},
    ]


def _start(request: Request, package: str | None, version: str | None) -> list[str]:
    calls = run_calls(request.pipeline, request.site, package, request.namespace, version)
    how = "Runs on its schedule after:" if request.pipeline.schedule else "Start a run with:"
    return [client_line(request.site), how, *(f"  {call}" for call in calls)]


def _notes(tasks: int) -> list[str]:
    if tasks <= COMFORTABLE_TASKS:
        return []
    return [f"NOTE: {tasks} tasks; Argo may refuse the run above about 300 (1 MiB). Split it, or use fan-outs."]
