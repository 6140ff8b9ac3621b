"""The heaviest set of nodes of which none waits for another: a maximum-weight antichain.

By weighted Dilworth it weighs the sum of all weights less the maximum flow, and the minimum cut names its members. No
transitive closure is needed. In the flow every node offers its weight once and asks for it once; an offer may travel
along dependencies, through any number of nodes, to serve what a later node asks. Pure Python; ten thousand nodes take
seconds. Work is counted, never timed: the same question gets the same answer on every machine. What would take longer
gets a bound, which is as safe and says that it is one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from heapq import heappop, heappush
from itertools import pairwise
from math import gcd
from typing import NamedTuple

from gpuflow.core.work_budget import Allowance, current, spend_work, work_left
from gpuflow.graph.tree import Shape

FLOW = 8_000_000
"""Arcs that one flow may look at: some seconds. Ten thousand steps with a handful of edges each stay below."""
QUESTION = 2_000_000
"""Arcs for all prices that one question about a cap tries; a flow that has begun is brought to its own end."""


@dataclass
class Work:
    """What one question has cost so far."""

    most: int = field(default_factory=lambda: QUESTION)
    spent: int = 0
    cut_short: bool = False
    """Something was given up: where bound and reach differ, more work might bring them together."""

    @property
    def is_used_up(self) -> bool:
        return self.spent > self.most


# A search that passes more than this part of the graph shows that its distances have aged: they are measured anew.
STALE = 16


class Flow:
    """Augmenting paths, the fattest first, with the residual graph kept implicit. Node `v` is split in two sides: `2v`,
    where it offers and things leave, and `2v + 1`, where it asks and things enter. Arcs along dependencies and from
    entering to leaving side have no limit: only the flow on them is kept."""

    def __init__(self, after: Sequence[Sequence[int]], weights: Sequence[int]) -> None:
        self.after = after
        self.before: list[list[int]] = [[] for _ in after]
        for node, targets in enumerate(after):
            for target in targets:
                self.before[target].append(node)
        # The sides at the other end of each dependency, which are looked at again and again.
        self.entering = [[2 * target + 1 for target in targets] for targets in after]
        self.leaving = [[2 * source for source in sources] for sources in self.before]
        self.weights = weights
        self.offered = list(weights)
        self.asked = list(weights)
        self.through = [0] * len(weights)
        self.inflow: list[dict[int, int]] = [{} for _ in weights]
        self.arcs = sum(map(len, after))
        self.work = 0
        """The arcs looked at so far."""
        self.most_work = FLOW

    def times_in(self, weights: Sequence[int]) -> int:
        """How many times this flow fits into the same graph with other weights."""
        if any(own and not weight for own, weight in zip(self.weights, weights, strict=True)):
            return 0
        return min((weight // own for own, weight in zip(self.weights, weights, strict=True) if own), default=0)

    def begin_with(self, flow: Flow, times: int) -> None:
        """Take over what was found for smaller weights, so many times. What is left over is small, and soon found."""
        for node, weight in enumerate(flow.weights):
            self.offered[node] -= times * (weight - flow.offered[node])
            self.asked[node] -= times * (weight - flow.asked[node])
        self.through = [times * amount for amount in flow.through]
        self.inflow = [{source: times * amount for source, amount in flows.items()} for flows in flow.inflow]

    @property
    def open(self) -> int:
        """What is not served. Of a flow, the largest or not, no antichain weighs more."""
        return sum(self.asked)

    def maximise(self, most_work: int = FLOW) -> list[int]:
        """Push all that can be, or what `most_work` allows; the sides that an open offer still reaches then have a
        distance above 0."""
        self.most_work = most_work
        self._serve_from_nearest()
        least = 1 << max(self.weights).bit_length()
        while True:
            distance = self._distances(1)
            asks = self._reached_asks(distance, 1)
            if not asks:
                return distance
            if self.work > most_work:
                return self._heaviest_reach(distance)
            # Nothing fatter than the largest ask that is still reached: smaller steps would find nothing more.
            least = min(max(1, least // 2), 1 << (max(self.asked[ask] for ask in asks).bit_length() - 1))
            fresh = distance if least == 1 else self._distances(least)
            while self._serve(fresh, least):
                fresh = self._distances(least)
            if least == 1 and self.work <= most_work:
                return fresh  # nothing was served, so no ask is reached any more

    def _heaviest_reach(self, distance: list[int]) -> list[int]:
        """Of what offers reach along the flow found so far, fat arcs only or all, that with the heaviest antichain. All
        that is reached leads on to what waits for it, so each of these shows an antichain."""
        found = [distance]
        for bits in range(2, max(self.weights).bit_length(), 2):
            found.append(self._distances(1 << bits))
        return max(found, key=lambda each: sum(self.weights[node] for node in members(each)))

    def _serve_from_nearest(self) -> None:
        """A first flow without detours: each node, in order, is served by the nearest ancestors that still offer. Above
        a node where nothing is offered any more nothing ever will be, so every arc is given up only once."""
        untried = [iter(sources) for sources in self.before]
        current = [next(sources, None) for sources in untried]
        for node in self._topological_order():
            path = [node]
            while path and self.asked[node]:
                source = current[path[-1]]
                if source is None:
                    path.pop()
                    if path:
                        current[path[-1]] = next(untried[path[-1]], None)
                elif self.offered[source]:
                    self._push([2 * source, *_sides(path)])
                else:
                    path.append(source)

    def _topological_order(self) -> list[int]:
        waiting = [len(sources) for sources in self.before]
        ordered = [node for node, count in enumerate(waiting) if not count]
        for node in ordered:
            for target in self.after[node]:
                waiting[target] -= 1
                if not waiting[target]:
                    ordered.append(target)
        return ordered

    def _distances(self, least: int) -> list[int]:
        """How far (from 1) every side is from an open offer, 0 where none reaches it. Arcs and offers below `least` do
        not count."""
        entering, through, inflow = self.entering, self.through, self.inflow
        self.work += len(entering) + self.arcs
        distance = [0] * (2 * len(entering))
        queue = [2 * node for node, amount in enumerate(self.offered) if amount >= least]
        for side in queue:
            distance[side] = 1
        found = queue.append
        for side in queue:
            node, farther = side >> 1, distance[side] + 1
            if side & 1:
                for source, amount in inflow[node].items():
                    if amount >= least and not distance[2 * source]:
                        distance[2 * source] = farther
                        found(2 * source)
                if not distance[side - 1]:
                    distance[side - 1] = farther
                    found(side - 1)
            else:
                for target in entering[node]:
                    if not distance[target]:
                        distance[target] = farther
                        found(target)
                if through[node] >= least and not distance[side + 1]:
                    distance[side + 1] = farther
                    found(side + 1)
        return distance

    def _reached_asks(self, distance: list[int], least: int) -> list[int]:
        """The nodes that still ask and that an open offer reaches, the nearest first."""
        asks = [node for node, amount in enumerate(self.asked) if amount >= least and distance[2 * node + 1]]
        return sorted(asks, key=lambda node: distance[2 * node + 1])

    def _serve(self, distance: list[int], least: int) -> bool:
        """Serve asks from open offers until no path bears `least` or the distances have aged; whether any was."""
        served = False
        dead: set[int] = set()
        for ask in self._reached_asks(distance, least):
            while self.asked[ask] >= least:
                path, passed = self._search(2 * ask + 1, distance, dead, least)
                if not path:
                    break
                self._push(path)
                served = True
                if passed * STALE > len(distance) or self.work > self.most_work:
                    return self.work <= self.most_work
        return served

    def _search(self, ask: int, distance: list[int], dead: set[int], least: int) -> tuple[list[int], int]:
        """A path from an open offer to the side `ask`, and how many sides the search passed; no path where none is.
        Searched from the ask, always on from the side that was nearest to an offer when distances were measured. Where
        a search ends without an offer no later one finds any: what it passed is `dead`."""
        next_of: dict[int, int] = {} if ask in dead else {ask: -1}
        heap = [(distance[side], side) for side in next_of]
        passed = 0
        while heap:
            _, side = heappop(heap)
            passed += 1
            node = side >> 1
            if side & 1:
                sources = self.leaving[node]
                if self.through[node] >= least:
                    sources = [*sources, side - 1]
            elif self.offered[node] >= least:
                path = [side]
                while path[-1] != ask:
                    path.append(next_of[path[-1]])
                return path, passed
            else:
                inflow = self.inflow
                sources = [target for target in self.entering[node] if inflow[target >> 1].get(node, 0) >= least]
                sources.append(side + 1)
            self.work += len(sources)
            for source in sources:
                if distance[source] and source not in next_of and source not in dead:
                    next_of[source] = side
                    heappush(heap, (distance[source], source))
        dead.update(next_of)
        return [], passed

    def _limit(self, side: int, target: int) -> int | None:
        """What may be taken back on a backward arc; `None` on a forward arc."""
        node, other = side >> 1, target >> 1
        if side & 1:
            return None if node == other else self.inflow[node].get(other, 0)
        return self.through[node] if node == other else None

    def _push(self, path: list[int]) -> None:
        """As much as the path from the offer `path[0]` to the ask `path[-1]` bears."""
        first, last = path[0] >> 1, path[-1] >> 1
        amount = min(self.offered[first], self.asked[last])
        for side, target in pairwise(path):
            limit = self._limit(side, target)
            if limit is not None and limit < amount:
                amount = limit
        self.offered[first] -= amount
        self.asked[last] -= amount
        for side, target in pairwise(path):
            node, other = side >> 1, target >> 1
            if node == other:
                self.through[node] += amount if side & 1 else -amount
            elif side & 1:
                self.inflow[node][other] -= amount
                if not self.inflow[node][other]:
                    del self.inflow[node][other]
            else:
                self.inflow[other][node] = self.inflow[other].get(node, 0) + amount


def members(reached: Sequence[int]) -> list[int]:
    """The antichain at the border of what is reached: nodes whose leaving side is, and whose entering side is not."""
    return [node for node in range(len(reached) // 2) if reached[2 * node] and not reached[2 * node + 1]]


def _sides(path: list[int]) -> list[int]:
    """The sides passed when flow comes down `path`, which was climbed from its first node."""
    sides = [side for node in reversed(path) for side in (2 * node + 1, 2 * node)]
    return sides[:-1]


Edges = tuple[tuple[int, ...], ...]
MOST_ANSWERS = 16
SHARE = 3
"""One flow may take this part of the work that a check has left, so that others come to their turn."""
LEAST_WORK = 8
"""A flow that may look at less than so many times the nodes is not begun: the sum of all weights is the bound."""


class Antichain(NamedTuple):
    """The nodes of a heavy antichain, in order; those without weight are left out. None weighs more than `bound`, which
    is what this one weighs unless finding the heaviest took too much `work`."""

    nodes: list[int]
    bound: int
    work: int


def heaviest_antichain(shape: Shape, weights: Sequence[int]) -> Antichain:
    """A heaviest antichain, or a heavy one and a bound where the flow would take more work than it may."""
    value = [*weights, *(0 for _ in range(shape.barriers))]
    base = len(value)
    for merge in shape.merges:
        first, second = value[merge.first], value[merge.second]
        value.append(first + second if merge.together else max(first, second))
    weighed = [value[term] for term in shape.core]
    unit = gcd(*weighed) or 1
    cut = _heaviest_of_core(shape.edges, tuple(weight // unit for weight in weighed), FLOW)
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


def _heaviest_of_core(edges: Edges, weights: tuple[int, ...], most_work: int) -> Antichain:
    """A heaviest antichain of the core: offers reach the leaving side of its nodes but not the entering side. Quotas,
    queues and nodes ask the same of the same pipeline, so the latest answers are kept."""
    if not any(edges):
        return Antichain(list(range(len(weights))), sum(weights), 0)
    exact, here = _flows(edges), _flows(edges) if (check := current()) is None else _flows_of_check(edges, check)
    for known in (exact, here):
        if weights in known.answers:
            return known.answers[weights]
    rest = work_left("moments")
    if rest is not None and rest // SHARE < LEAST_WORK * len(edges):
        found = Antichain([max(range(len(weights)), key=weights.__getitem__)], sum(weights), 0)
    else:
        found = _antichain_by_flow(
            edges, weights, most_work if rest is None else min(most_work, rest // SHARE), here.flows
        )
    spend_work("moments", found.work)
    is_exact = found.bound == sum(weights[node] for node in found.nodes)
    if is_exact or check is not None:  # what was cut short is kept for this check: another may have more to spend
        answers = exact.answers if is_exact else here.answers
        if len(answers) >= MOST_ANSWERS:
            answers.pop(next(iter(answers)))
        answers[weights] = found
    return found


def _antichain_by_flow(edges: Edges, weights: tuple[int, ...], most_work: int, before: deque[Flow]) -> Antichain:
    flow = Flow(edges, weights)
    known = max(before, key=lambda other: other.times_in(weights) * sum(other.weights), default=None)
    times = known.times_in(weights) if known is not None else 0
    if known is not None and 2 * times * sum(known.weights) > sum(weights):
        flow.begin_with(known, times)
    nodes = members(flow.maximise(most_work))
    before.append(flow)
    return Antichain(nodes, flow.open, flow.work)


class _FlowCache(NamedTuple):
    """What was found for a graph lately."""

    answers: dict[tuple[int, ...], Antichain]
    """By weights."""
    flows: deque[Flow]
    """Memory requests with and without the engine's own differ by little."""


@lru_cache(maxsize=2)
def _flows(edges: Edges) -> _FlowCache:
    return _FlowCache({}, deque(maxlen=4))


def _flows_of_check(edges: Edges, check: Allowance) -> _FlowCache:
    """The same, of one check: what it finds does not depend on what was checked before it."""
    found = check.kept.setdefault(edges, _FlowCache({}, deque(maxlen=4)))
    assert isinstance(found, _FlowCache)
    return found
