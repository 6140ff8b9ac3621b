"""What no pod can tell: metrics of a run, which Argo's controller counts by itself, and rules for Prometheus.

The controller counts a run when it has ended, its exit handler included, so also when no pod of it could start. A run
that does not end has its age as a metric.
"""

from __future__ import annotations

from typing import Any

from gpuflow.emit import emit
from gpuflow.pod.build import LABEL
from gpuflow.printable import comment
from gpuflow.site import Site
from gpuflow.site.alerts import alerts_of
from gpuflow.spec.pipeline import Pipeline
from gpuflow.targets.frame import Artifact, Request, header

RUNS, SECONDS = "gpuflow_runs", "gpuflow_run_seconds"
PREFIX = "argo_workflows_"
"""What the controller puts before every name."""
LATE = 1800
"""How long after its deadline a run may still be busy with its exit handler, in seconds."""


def run_metrics(pipeline: Pipeline, site: Site) -> list[dict[str, Any]]:
    """Prometheus metrics of a workflow whose end somebody is told of."""
    if not alerts_of(pipeline, site):
        return []
    labels = [{"key": "pipeline", "value": pipeline.name}, {"key": "run_namespace", "value": "{{workflow.namespace}}"}]
    return [
        {
            "name": RUNS,
            "help": "Runs that have ended",
            "labels": [*labels, {"key": "status", "value": "{{workflow.status}}"}],
            "counter": {"value": "1"},
        },
        {
            "name": SECONDS,
            "help": "How long a run has been active",
            "labels": [*labels, {"key": "run", "value": "{{workflow.name}}"}],
            "gauge": {"realtime": True, "value": "{{workflow.duration}}"},
        },
    ]


def alert_rules(request: Request) -> Artifact | None:
    """A PrometheusRule for a pipeline whose end somebody is told of."""
    pipeline = request.pipeline
    if not alerts_of(pipeline, request.site):
        return None
    of_this = f'pipeline="{pipeline.name}"'
    if request.namespace is not None:
        of_this += f', run_namespace="{request.namespace}"'
    failed = f'{PREFIX}{RUNS}{{{of_this}, status!="Succeeded"}}'
    # A counter that was never there begins at 1, and `increase` sees no step in that.
    rules = [
        _rule(
            "GpuflowRunFailed",
            f"({failed} unless {failed} offset 15m) or ({failed} - {failed} offset 15m > 0)",
            pipeline.name,
            f"a run of {pipeline.name} failed",
        )
    ]
    if pipeline.deadline is not None:
        late = f"max by (run) ({PREFIX}{SECONDS}{{{of_this}}}) > {pipeline.deadline.seconds + LATE}"
        text = f"a run of {pipeline.name} has not ended although its deadline of {pipeline.deadline} is long over"
        rules.append(_rule("GpuflowRunNeverEnds", late, pipeline.name, text))
    metadata: dict[str, Any] = {
        "name": f"{pipeline.name}-alerts",
        "labels": {**pipeline.labels, f"{LABEL}pipeline": pipeline.name},
    }
    if request.namespace is not None:
        metadata["namespace"] = request.namespace
    manifest = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": metadata,
        "spec": {"groups": [{"name": f"gpuflow-{pipeline.name}", "rules": rules}]},
    }
    return Artifact(f"{pipeline.name}-alerts.yaml", comment(header(request)) + emit(manifest))


def _rule(name: str, expression: str, pipeline: str, summary: str) -> dict[str, Any]:
    return {
        "alert": name,
        "expr": expression,
        "labels": {"pipeline": pipeline, "severity": "warning"},
        "annotations": {"summary": summary},
    }
