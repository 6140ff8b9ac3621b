"""Order, loops and worst-case concurrency of pipelines, as pure functions on plain values."""

from gpuflow.graph.order import find_cycle, find_either, order, reachable
from gpuflow.graph.peak import Peak, peak, safe_parallel
from gpuflow.graph.tree import Dag, Leaf, Loop, Tree, Unknown, first_leaf, rename, with_unchosen, with_weights

__all__ = [
    "Dag",
    "Leaf",
    "Loop",
    "Peak",
    "Tree",
    "Unknown",
    "find_cycle",
    "find_either",
    "first_leaf",
    "order",
    "peak",
    "reachable",
    "rename",
    "safe_parallel",
    "with_unchosen",
    "with_weights",
]
