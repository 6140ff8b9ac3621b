"""Pipelines on this machine: `gpuflow.local.run`, and `gpuflow run` on the command line."""

from gpuflow.local.console import Console
from gpuflow.local.runner import Run, StepResult, run

__all__ = ["Console", "Run", "StepResult", "run"]
