"""Argo: Workflow, WorkflowTemplate, ClusterWorkflowTemplate and CronWorkflow."""

from gpuflow.readers.argo.reader import demand_of

__all__ = ["demand_of"]
