"""Argo: Workflow, WorkflowTemplate, ClusterWorkflowTemplate and CronWorkflow."""

from gpuflow.readers.argo.demand import demand_of

__all__ = ["demand_of"]
