"""Argo Workflows: YAML fit to commit, built on Hera's typed models."""

from gpuflow.targets.argo.workflow import Argo

target = Argo()
