"""The heaviest set of nodes of which none waits for another: a maximum-weight antichain.

By weighted Dilworth it weighs the sum of all weights less the maximum flow of `flow`, and the minimum cut names
its members. No transitive closure is needed.
"""

from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from math import gcd
from typing import NamedTuple

from gpuflow.graph import work
from gpuflow.graph.flow import Flow, members
from gpuflow.graph.shape import Shape


class Antichain(NamedTuple):
    """The nodes of a heavy antichain, in order; those without weight are left out.

    None weighs more than `bound`, which is what this one weighs unless finding the heaviest took too much `work`.
    """

    nodes: list[int]
    bound: int
    work: int


def heaviest(shape: Shape, weights: Sequence[int]) -> Antichain:
    """A heaviest antichain, or a heavy one and a bound where the flow would take more work than it may."""
    value = [*weights, *(0 for _ in range(shape.barriers))]
    base = len(value)
    for merge in shape.merges:
        first, second = value[merge.first], value[merge.second]
        value.append(first + second if merge.together else max(first, second))
    weighed = [value[term] for term in shape.core]
    unit = gcd(*weighed) or 1
    cut = _cut(shape.edges, tuple(weight // unit for weight in weighed), work.FLOW)
    stack = [shape.core[node] for node in cut.nodes]
    chosen: list[int] = []
    while stack:
        term = stack.pop()
        if term < base:
            chosen.append(term)
            continue
        merge = shape.merges[term - base]
        if merge.together:
            stack += (merge.first, merge.second)
        else:
            stack.append(merge.first if value[merge.first] == value[term] else merge.second)
    return Antichain(sorted(node for node in chosen if value[node]), cut.bound * unit, cut.work)


@lru_cache(maxsize=16)
def _cut(edges: tuple[tuple[int, ...], ...], weights: tuple[int, ...], most_work: int) -> Antichain:
    """A heaviest antichain of the core: offers reach the leaving side of its nodes but not the entering side.

    Quotas, queues and nodes ask the same of the same pipeline, so the latest answers are kept.
    """
    if not any(edges):
        return Antichain(list(range(len(weights))), sum(weights), 0)
    flow, found = Flow(edges, weights), _flows(edges)
    known = max(found, key=lambda other: other.times_in(weights) * sum(other.weights), default=None)
    times = known.times_in(weights) if known is not None else 0
    if known is not None and 2 * times * sum(known.weights) > sum(weights):
        flow.begin_with(known, times)
    nodes = members(flow.maximise(most_work))
    found.append(flow)
    return Antichain(nodes, flow.open, flow.work)


@lru_cache(maxsize=2)
def _flows(edges: tuple[tuple[int, ...], ...]) -> deque[Flow]:
    """The latest flows through a graph. Memory requests with and without the engine's own differ by little."""
    return deque(maxlen=4)
