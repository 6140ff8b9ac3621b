"""Maximum flow from earlier to later nodes of a DAG, for `antichain`.

Every node offers its weight once and asks for it once. An offer may travel along dependencies, through any
number of nodes, to serve what a later node asks. Pure Python; ten thousand nodes take seconds.
"""

from collections.abc import Sequence
from itertools import pairwise

# Where few offers are left open and the way to an ask is long, the fattest paths are pushed first: that saves
# thousands of thin pushes. With many open offers plain Dinic serves more of them per search.
NODES_PER_OPEN_OFFER = 32


class Flow:
    """Dinic's algorithm with the residual graph kept implicit.

    Node `v` is split in two sides: `2v`, where it offers and things leave, and `2v + 1`, where it asks and things
    enter. Arcs along dependencies and from entering to leaving side have no limit: only the flow on them is kept.
    """

    def __init__(self, after: Sequence[Sequence[int]], weights: Sequence[int]) -> None:
        self.after = after
        self.before: list[list[int]] = [[] for _ in after]
        for node, targets in enumerate(after):
            for target in targets:
                self.before[target].append(node)
        self.offered = list(weights)
        self.asked = list(weights)
        self.through = [0] * len(weights)
        self.inflow: list[dict[int, int]] = [{} for _ in weights]

    def maximise(self) -> list[int]:
        """Push all that can be; the sides that an open offer still reaches then have a level above 0."""
        self._serve_from_nearest()
        least = self._first_step()
        while True:
            level, met = self._levels(least)
            if met:
                self._augment(level, met, least)
            elif least == 1:
                return level
            else:
                least //= 2

    def _serve_from_nearest(self) -> None:
        """A first flow without detours: each node, in order, is served by the nearest ancestors that still offer.

        Above a node where nothing is offered any more nothing ever will be, so every arc is given up only once.
        """
        untried = [iter(sources) for sources in self.before]
        current = [next(sources, None) for sources in untried]
        for node in self._ordered():
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

    def _ordered(self) -> list[int]:
        waiting = [len(sources) for sources in self.before]
        ordered = [node for node, count in enumerate(waiting) if not count]
        for node in ordered:
            for target in self.after[node]:
                waiting[target] -= 1
                if not waiting[target]:
                    ordered.append(target)
        return ordered

    def _first_step(self) -> int:
        """The smallest push to look for at first, a power of two; 1 is plain Dinic."""
        still = sum(map(bool, self.offered))
        if still * NODES_PER_OPEN_OFFER > len(self.offered):
            return 1
        return 1 << max(0, min(max(self.offered), max(self.asked)).bit_length() - 1)

    def _levels(self, least: int) -> tuple[list[int], list[int]]:
        """Distance (from 1) of every side from an open offer, 0 where none reaches, and the nearest open asks.

        Arcs, offers and asks below `least` do not count. Sides farther than the nearest asks are left at 0.
        """
        after, through, inflow, asked = self.after, self.through, self.inflow, self.asked
        level = [0] * (2 * len(after))
        frontier = [2 * node for node, amount in enumerate(self.offered) if amount >= least]
        for side in frontier:
            level[side] = 1
        depth = 1
        met: list[int] = []
        while frontier and not met:
            depth += 1
            reached: list[int] = []
            for side in frontier:
                node = side >> 1
                if side & 1:
                    targets = [2 * source for source, amount in inflow[node].items() if amount >= least]
                    targets.append(side - 1)
                else:
                    targets = [2 * target + 1 for target in after[node]]
                    if through[node] >= least:
                        targets.append(side + 1)
                for target in targets:
                    if not level[target]:
                        level[target] = depth
                        reached.append(target)
                        if target & 1 and asked[target >> 1] >= least:
                            met.append(target)
            frontier = reached
        return level, met

    def _augment(self, level: list[int], met: list[int], least: int) -> None:
        """Push along shortest paths until none is left. Searched from the asks: each lies on such a path."""
        arcs: dict[int, list[int]] = {}
        for ask in met:
            path = [ask]
            while path and self.asked[ask >> 1] >= least:
                side = path[-1]
                if level[side] == 1 and self.offered[side >> 1] >= least:
                    self._push(path[::-1])
                    steps = pairwise(path)
                    worn = (place for place, (to, by) in enumerate(steps, 1) if not self._passes(by, to, least))
                    del path[next(worn, len(path)) :]
                    continue
                if side not in arcs:
                    arcs[side] = self._sources(side, level, least)
                while arcs[side] and not self._passes(arcs[side][-1], side, least):
                    arcs[side].pop()
                if arcs[side]:
                    path.append(arcs[side][-1])
                else:
                    path.pop()
                    if path:
                        arcs[path[-1]].pop()

    def _sources(self, side: int, level: list[int], least: int) -> list[int]:
        """The sides one level nearer to the offers from which an arc leads to `side`."""
        node, nearer = side >> 1, level[side] - 1
        if side & 1:
            sources = [2 * source for source in self.before[node] if level[2 * source] == nearer]
            own = self.through[node] >= least
        else:
            sources = [
                2 * target + 1
                for target in self.after[node]
                if level[2 * target + 1] == nearer and self.inflow[target].get(node, 0) >= least
            ]
            own = True
        if own and level[side ^ 1] == nearer:
            sources.append(side ^ 1)
        return sources if nearer else []

    def _passes(self, side: int, target: int, least: int) -> bool:
        limit = self._limit(side, target)
        return limit is None or limit >= least

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


def _sides(path: list[int]) -> list[int]:
    """The sides passed when flow comes down `path`, which was climbed from its first node."""
    sides = [side for node in reversed(path) for side in (2 * node + 1, 2 * node)]
    return sides[:-1]
