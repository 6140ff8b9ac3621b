"""The exact maximum for every number of pods, for modules small enough to be tabulated.

Prices leave a gap where gangs of different sizes compete for a cap, as in any knapsack. A table closes it.
"""

from collections.abc import Sequence
from typing import TypeAlias

from gpuflow.graph.live import Live
from gpuflow.graph.shape import Shape

# Additions before a table is given up and the bound stands: a tenth of a second or two.
WORK = 200_000
# The search over what no reduction merges branches at every node and recurses as deep.
MAX_CORE = 64

Entry: TypeAlias = tuple[int, Live]
Table: TypeAlias = list[Entry]
"""At index j the heaviest that has at most j pods; beyond the end, as at the end."""

EMPTY: Entry = (0, ())


class TooLarge(Exception):
    """The table would take more work than it is worth."""


class Knapsack:
    """Tables of up to `cap` pods, put together like the modules they stand for."""

    def __init__(self, cap: int) -> None:
        self.cap = cap
        self.left = WORK

    def single(self, live: Live, weight: int, pods: int) -> Table:
        return [*[EMPTY] * pods, (weight, live)] if weight and pods <= self.cap else [EMPTY]

    def either(self, first: Table, second: Table) -> Table:
        """Of two that never live together, the heavier."""
        self._spend(len(first) + len(second))
        longest = max(len(first), len(second))
        return [max(_at(first, pods), _at(second, pods), key=lambda entry: entry[0]) for pods in range(longest)]

    def both(self, first: Table, second: Table) -> Table:
        """Of two that may live together, the best division of the pods."""
        self._spend(len(first) * len(second))
        table: Table = []
        for pods in range(min(self.cap, len(first) + len(second) - 2) + 1):
            split = max(
                range(max(0, pods - len(second) + 1), min(pods, len(first) - 1) + 1),
                key=lambda mine: first[mine][0] + second[pods - mine][0],
            )
            mine, yours = first[split], second[pods - split]
            table.append((mine[0] + yours[0], mine[1] + yours[1]))
        return table

    def repeat(self, table: Table, copies: int) -> Table:
        whole: Table = [EMPTY]
        while copies:
            if copies & 1:
                whole = self.both(whole, table)
            copies >>= 1
            if copies:
                table = self.both(table, table)
        return whole

    def together(self, shape: Shape, tables: Sequence[Table]) -> Table:
        """The table of a graph from those of its nodes."""
        terms = [*tables, *([EMPTY] for _ in range(shape.barriers))]
        for merge in shape.merges:
            join = self.both if merge.together else self.either
            terms.append(join(terms[merge.first], terms[merge.second]))
        if len(shape.core) > MAX_CORE:
            raise TooLarge
        apart = _comparable(shape.edges)
        known: dict[frozenset[int], Table] = {frozenset(): [EMPTY]}

        def best(nodes: frozenset[int]) -> Table:
            if nodes not in known:
                self._spend(len(nodes))
                node = min(nodes, key=lambda each: (-len(apart[each] & nodes), each))
                beside = nodes - apart[node] - {node}
                with_node = self.both(terms[shape.core[node]], best(beside))
                conflicts = len(beside) < len(nodes) - 1
                known[nodes] = self.either(with_node, best(nodes - {node})) if conflicts else with_node
            return known[nodes]

        return best(frozenset(range(len(shape.core))))

    def _spend(self, work: int) -> None:
        self.left -= work
        if self.left < 0:
            raise TooLarge


def _at(table: Table, pods: int) -> Entry:
    return table[min(pods, len(table) - 1)]


def _comparable(edges: Sequence[Sequence[int]]) -> list[set[int]]:
    """For every node all nodes before and after it."""
    later: list[set[int]] = []
    for node in range(len(edges)):
        seen: set[int] = set()
        stack = [node]
        while stack:
            fresh = set(edges[stack.pop()]) - seen
            seen |= fresh
            stack += fresh
        later.append(seen)
    return [
        after | {other for other, reached in enumerate(later) if node in reached} for node, after in enumerate(later)
    ]
