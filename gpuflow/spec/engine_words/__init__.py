"""Engines' own words in a pipeline and in a step: `engines: {airflow: {…}, argo: {…}, kubeflow: {…}}`.

Each engine takes its own, and compiling for another one loses nothing: these words say nothing to it. One file for each
engine; a word that would contradict the spec is refused with the spec's own word for it.
"""

from __future__ import annotations

from gpuflow.spec.engine_words.airflow import AirflowDag, AirflowTask
from gpuflow.spec.engine_words.argo import ArgoTemplate, ArgoWorkflow
from gpuflow.spec.engine_words.kubeflow import KubeflowPipeline, KubeflowTask
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
