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
from gpuflow.work import Allowance, current, left, take

Edges = tuple[tuple[int, ...], ...]
MOST_ANSWERS = 16
SHARE = 3
"""One flow may take this part of the work that a check has left, so that others come to their turn."""
LEAST_WORK = 8
"""A flow that may look at less than so many times the nodes is not begun: the sum of all weights is the bound."""


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


def _cut(edges: Edges, weights: tuple[int, ...], most_work: int) -> Antichain:
    """A heaviest antichain of the core: offers reach the leaving side of its nodes but not the entering side.

    Quotas, queues and nodes ask the same of the same pipeline, so the latest answers are kept.
    """
    if not any(edges):
        return Antichain(list(range(len(weights))), sum(weights), 0)
    exact, here = _flows(edges), _flows(edges) if (check := current()) is None else _of_check(edges, check)
    for known in (exact, here):
        if weights in known.answers:
            return known.answers[weights]
    rest = left("moments")
    if rest is not None and rest // SHARE < LEAST_WORK * len(edges):
        found = Antichain([max(range(len(weights)), key=weights.__getitem__)], sum(weights), 0)
    else:
        found = _by_flow(edges, weights, most_work if rest is None else min(most_work, rest // SHARE), here.flows)
    take("moments", found.work)
    is_exact = found.bound == sum(weights[node] for node in found.nodes)
    if is_exact or check is not None:  # what was cut short is kept for this check: another may have more to spend
        answers = exact.answers if is_exact else here.answers
        if len(answers) >= MOST_ANSWERS:
            answers.pop(next(iter(answers)))
        answers[weights] = found
    return found


def _by_flow(edges: Edges, weights: tuple[int, ...], most_work: int, before: deque[Flow]) -> Antichain:
    flow = Flow(edges, weights)
    known = max(before, key=lambda other: other.times_in(weights) * sum(other.weights), default=None)
    times = known.times_in(weights) if known is not None else 0
    if known is not None and 2 * times * sum(known.weights) > sum(weights):
        flow.begin_with(known, times)
    nodes = members(flow.maximise(most_work))
    before.append(flow)
    return Antichain(nodes, flow.open, flow.work)


class _Known(NamedTuple):
    """What was found for a graph lately."""

    answers: dict[tuple[int, ...], Antichain]
    """By weights."""
    flows: deque[Flow]
    """Memory requests with and without the engine's own differ by little."""


@lru_cache(maxsize=2)
def _flows(edges: Edges) -> _Known:
    return _Known({}, deque(maxlen=4))


def _of_check(edges: Edges, check: Allowance) -> _Known:
    """The same, of one check: what it finds does not depend on what was checked before it."""
    found = check.kept.setdefault(edges, _Known({}, deque(maxlen=4)))
    assert isinstance(found, _Known)
    return found
