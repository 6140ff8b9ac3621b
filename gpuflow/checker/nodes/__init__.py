"""Whether nodes have room: for one pod in kube-scheduler's own words, and for a whole demand."""

from gpuflow.checker.nodes.filters import NodeFit, fit_nodes

__all__ = ["NodeFit", "fit_nodes"]
