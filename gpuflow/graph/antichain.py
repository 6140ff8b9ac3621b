"""The heaviest set of nodes of which none waits for another: a maximum-weight antichain.

By weighted Dilworth it weighs the sum of all weights less the maximum flow of `flow`, and the minimum cut names
its members. No transitive closure is needed.
"""

from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from math import gcd

from gpuflow.graph.flow import Flow
from gpuflow.graph.shape import Shape


def heaviest(shape: Shape, weights: Sequence[int]) -> list[int]:
    """The nodes of a heaviest antichain, in order; nodes without weight are left out."""
    value = [*weights, *(0 for _ in range(shape.barriers))]
    base = len(value)
    for merge in shape.merges:
        first, second = value[merge.first], value[merge.second]
        value.append(first + second if merge.together else max(first, second))
    weighed = [value[term] for term in shape.core]
    unit = gcd(*weighed) or 1
    stack = [shape.core[node] for node in _cut(shape.edges, tuple(weight // unit for weight in weighed))]
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
    return sorted(node for node in chosen if value[node])


@lru_cache(maxsize=16)
def _cut(edges: tuple[tuple[int, ...], ...], weights: tuple[int, ...]) -> tuple[int, ...]:
    """The members of a heaviest antichain of the core: offers reach their leaving but not their entering side.

    Quotas, queues and nodes ask the same of the same pipeline, so the latest answers are kept.
    """
    if not any(edges):
        return tuple(range(len(weights)))
    flow, found = Flow(edges, weights), _flows(edges)
    known = max(found, key=lambda other: other.times_in(weights) * sum(other.weights), default=None)
    times = known.times_in(weights) if known is not None else 0
    if known is not None and 2 * times * sum(known.weights) > sum(weights):
        flow.begin_with(known, times)
    reached = flow.maximise()
    found.append(flow)
    return tuple(node for node in range(len(weights)) if reached[2 * node] and not reached[2 * node + 1])


@lru_cache(maxsize=2)
def _flows(edges: tuple[tuple[int, ...], ...]) -> deque[Flow]:
    """The latest flows through a graph. Memory requests with and without the engine's own differ by little."""
    return deque(maxlen=4)
