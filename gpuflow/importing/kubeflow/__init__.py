"""Pipelines of Kubeflow, in the form that its compiler writes, as pipelines."""

from gpuflow.importing.kubeflow.pipeline import pipeline_of

__all__ = ["pipeline_of"]
