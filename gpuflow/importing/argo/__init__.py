"""Argo workflows as pipelines."""

from gpuflow.importing.argo.workflow import pipeline_of

__all__ = ["pipeline_of"]
