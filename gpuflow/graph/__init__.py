"""Order, loops and worst-case concurrency of pipelines, as pure functions on plain values."""

from gpuflow.graph.order import find_cycle, find_either, order, reachable
from gpuflow.graph.peak import Peak, peak, safe_parallel
from gpuflow.graph.tree import Dag, Leaf, Loop, Tree, Unknown, rename, side_by_side, with_weights

__all__ = [
    "Dag",
    "Leaf",
    "Loop",
    "Peak",
    "Tree",
    "Unknown",
    "find_cycle",
    "find_either",
    "order",
    "peak",
    "reachable",
    "rename",
    "safe_parallel",
    "side_by_side",
    "with_weights",
]
