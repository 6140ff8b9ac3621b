"""Argo's own options of `gpuflow compile`."""

from __future__ import annotations

from dataclasses import dataclass

from gpuflow.targets.options import option


@dataclass(frozen=True, slots=True)
class ArgoOptions:
    """What may be asked of an Argo artifact."""

    kind: str | None = option(
        "--as", "WorkflowTemplate, Workflow, CronWorkflow, ClusterWorkflowTemplate", metavar="KIND"
    )
    kustomization: bool = option("--kustomization", "also write kustomization.yaml, which lists the compiled files")
    alert_rules: bool = option(
        "--alert-rules", "also write PIPELINE-alerts.yaml, a PrometheusRule, for pipelines with notify"
    )
    semaphores: str | None = option(
        "--semaphores",
        "make GPU steps hold a semaphore of their size (gpuflow argo semaphores prints the ConfigMap)",
        metavar="CONFIGMAP",
    )
