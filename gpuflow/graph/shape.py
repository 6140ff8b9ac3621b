"""The structure of a DAG, reduced once so that every question about weights on it is cheap.

A maximum-weight antichain is the same after three exact reductions, none of which looks at a weight:

- nodes with the same predecessors (or the same successors) share one weightless *barrier*, so that
  `list >> list` costs n + m edges where it was written with n * m;
- a node and its only successor, where it is that one's only predecessor, never live together: the heavier counts;
- two nodes with the same single predecessor and successor always may: their sum counts.

Series-parallel pipelines vanish into one node this way. What does not is the *core*.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True)
class Merge:
    """Terms `first` and `second` became one: their sum when `together`, else the heavier of them."""

    first: int
    second: int
    together: bool


@dataclass(frozen=True)
class Shape:
    """Terms are numbered: `size` nodes, then `barriers`, then one term per merge in order.

    `core` lists the terms that are left and `edges` their successors as positions in `core`.
    """

    size: int
    barriers: int
    merges: tuple[Merge, ...]
    core: tuple[int, ...]
    edges: tuple[tuple[int, ...], ...]


def reduce(successors: Sequence[Iterable[int]]) -> Shape:
    """The shape of the acyclic graph in which node `i` precedes the nodes `successors[i]`."""
    return _reduce(tuple(map(tuple, successors)))


@lru_cache(maxsize=16)
def _reduce(successors: tuple[tuple[int, ...], ...]) -> Shape:
    """The same pipeline is asked about with many weights, and its shape has none: the latest shapes are kept."""
    size = len(successors)
    after = [set(targets) for targets in successors]
    before: list[set[int]] = [set() for _ in after]
    for node, targets in enumerate(after):
        for target in targets:
            before[target].add(node)
    _add_barriers(before, after)
    _add_barriers(after, before)
    barriers = len(after) - size
    alive, term, merges = _merge(before, after)
    position = {node: index for index, node in enumerate(alive)}
    return Shape(
        size,
        barriers,
        tuple(merges),
        tuple(term[node] for node in alive),
        tuple(tuple(sorted(position[target] for target in after[node])) for node in alive),
    )


def _add_barriers(before: list[set[int]], after: list[set[int]]) -> None:
    """One barrier for every group of nodes that share two or more predecessors."""
    groups: dict[frozenset[int], list[int]] = defaultdict(list)
    for node, sources in enumerate(before):
        if len(sources) > 1:
            groups[frozenset(sources)].append(node)
    for shared, members in groups.items():
        if len(members) < 2:
            continue
        barrier = len(before)
        before.append(set(shared))
        after.append(set(members))
        for source in shared:
            after[source].difference_update(members)
            after[source].add(barrier)
        for member in members:
            before[member] = {barrier}


def _merge(before: list[set[int]], after: list[set[int]]) -> tuple[list[int], list[int], list[Merge]]:
    """Merge until nothing more can be: the nodes left, the term each stands for, and the merges in order."""
    term = list(range(len(after)))
    merges: list[Merge] = []
    dead: set[int] = set()
    twins: dict[tuple[int | None, int | None], int] = {}
    queue = list(reversed(term))

    def absorb(kept: int, gone: int, first: int, second: int, together: bool) -> None:
        merges.append(Merge(term[first], term[second], together))
        term[kept] = len(term) + len(merges) - 1
        dead.add(gone)

    while queue:
        node = queue.pop()
        if node in dead:
            continue
        if len(after[node]) == 1 and len(before[follower := next(iter(after[node]))]) == 1:
            # The side with fewer neighbors is rewired, so that long chains into wide fans stay linear.
            if len(before[node]) <= len(after[follower]):
                absorb(follower, node, node, follower, together=False)
                kept, moved = follower, before[node]
                _rewire(before[node], after, node, follower)
                before[follower] = before[node]
            else:
                absorb(node, follower, node, follower, together=False)
                kept, moved = node, after[follower]
                _rewire(after[follower], before, follower, node)
                after[node] = after[follower]
            queue.extend(moved)
            queue.append(kept)
        elif len(before[node]) <= 1 and len(after[node]) <= 1:
            ends = _ends(node, before, after)
            twin = twins.get(ends, node)
            if twin == node or twin in dead or _ends(twin, before, after) != ends:
                twins[ends] = node
                continue
            absorb(twin, node, twin, node, together=True)
            for neighbors, back in ((before[node], after), (after[node], before)):
                for neighbor in neighbors:
                    back[neighbor].discard(node)
                    queue.append(neighbor)
            queue.append(twin)
    return [node for node in range(len(after)) if node not in dead], term, merges


def _rewire(neighbors: set[int], back: list[set[int]], old: int, new: int) -> None:
    for neighbor in neighbors:
        back[neighbor].discard(old)
        back[neighbor].add(new)


def _ends(node: int, before: list[set[int]], after: list[set[int]]) -> tuple[int | None, int | None]:
    if len(before[node]) > 1 or len(after[node]) > 1:
        return (-1, -1)
    return next(iter(before[node]), None), next(iter(after[node]), None)
