"""Options of single engines in a pipeline and in a step: `engines: {airflow: {…}, argo: {…}, kubeflow: {…}}`.

Each engine takes its own options, and compiling for another one loses nothing: they say nothing to it. There is one
file for each engine; an option that would contradict the spec is refused with the spec's own word for it.
"""

from __future__ import annotations

from gpuflow.spec.engine_options.airflow import AirflowDag, AirflowTask
from gpuflow.spec.engine_options.argo import ArgoTemplate, ArgoWorkflow
from gpuflow.spec.engine_options.kubeflow import KubeflowPipeline, KubeflowTask
from gpuflow.spec.model import Model


class PipelineEngines(Model):
    """What the whole pipeline says to one engine alone."""

    airflow: AirflowDag | None = None
    """Airflow's words for the DAG."""
    argo: ArgoWorkflow | None = None
    """Argo's words for the workflow."""
    kubeflow: KubeflowPipeline | None = None
    """Kubeflow's words for the pipeline."""


class StepEngines(Model):
    """What a step says to one engine alone."""

    airflow: AirflowTask | None = None
    """Airflow's words for the task."""
    argo: ArgoTemplate | None = None
    """Argo's words for the template."""
    kubeflow: KubeflowTask | None = None
    """Kubeflow's words for the task."""
