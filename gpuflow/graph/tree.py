"""A pipeline as a tree of modules: what runs, what waits for what, what repeats, and how much of it at once.

    Dag({"prepare": Leaf("prepare", {"gpu": 0}), "train": Leaf("train", {"gpu": 2})}, {"prepare": ["train"]})

Built once, asked about any number of resource keys. Trees are values: nothing in them may be changed later.
Steps that run after everything else, side by side:

    Dag({"main": Dag(steps, edges), "exit": Dag(exit_steps)}, {"main": ["exit"]}, parallel=8)

The structure of each DAG is reduced once, so that every question about weights on it is cheap. A maximum-weight
antichain is the same after three exact reductions, none of which looks at a weight:

- nodes with the same predecessors (or the same successors) share one weightless *barrier*, so that
  `list >> list` costs n + m edges where it was written with n * m;
- a node and its only successor, where it is that one's only predecessor, never live together: the heavier counts;
- two nodes with the same single predecessor and successor always may: their sum counts.

Series-parallel pipelines vanish into one node this way. What does not is the *core*.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import TypeAlias

from gpuflow.graph.order import order


@dataclass(frozen=True)
class Merge:
    """Terms `first` and `second` became one: their sum when `together`, else the heavier of them."""

    first: int
    second: int
    together: bool


@dataclass(frozen=True)
class Shape:
    """Terms are numbered: `size` nodes, then `barriers`, then one term per merge in order. `core` lists the terms that
    are left and `edges` their successors as positions in `core`."""

    size: int
    barriers: int
    merges: tuple[Merge, ...]
    core: tuple[int, ...]
    edges: tuple[tuple[int, ...], ...]


@lru_cache(maxsize=16)
def _reduced_shape(successors: tuple[tuple[int, ...], ...]) -> Shape:
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


@dataclass(frozen=True)
class Unknown:
    """A number that only the run will tell, why, and the most it can be where somebody promised that."""

    because: str
    at_most: int | None = None

    def __post_init__(self) -> None:
        _require(self.at_most is None or self.at_most >= 0, f"at_most is {self.at_most}; it cannot be negative")


@dataclass(frozen=True)
class Leaf:
    """One step: what it weighs on each key while it lives (a key left out is 0), and its number of pods. Several pods
    are a gang: they live and count together. Pods that come and go one by one are a `Loop`. A step that no cap counts
    has 0 pods. `name` is what a witness says."""

    name: str
    weights: Mapping[str, int | Unknown]
    pods: int = 1

    def __post_init__(self) -> None:
        _require(self.pods >= 0, f"step {self.name!r} has {self.pods} pods; it cannot have fewer than 0")
        for key, weight in self.weights.items():
            text = f"step {self.name!r} weighs {weight} on {key!r}; a weight cannot be negative"
            _require(isinstance(weight, Unknown) or weight >= 0, text)


@dataclass(frozen=True)
class Dag:
    """Nodes by key and, for each key, the keys that wait for it; at most `parallel` pods of it live at once. A gang
    larger than an enclosing cap counts as that whole cap: it may live, alone."""

    nodes: Mapping[str, Tree]
    edges: Mapping[str, Collection[str]] = field(default_factory=dict)
    parallel: int | None = None
    either: tuple[tuple[str, ...], ...] = ()
    """Nodes between the same neighbors of which one at most ever runs (`find_either`)."""

    def __post_init__(self) -> None:
        _require_parallel(self.parallel, f"a graph of {len(self.nodes)} nodes")
        for source, targets in self.edges.items():
            for name in (source, *targets):
                _require(name in self.nodes, f"the edges of {source!r} name {name!r}, which is not a node here")
        order(self.edges)

    @cached_property
    def shape(self) -> Shape:
        """The reduced structure over the nodes in their order; it serves every key."""
        index = {name: number for number, name in enumerate(self.nodes)}
        edges = self.never_together
        return _reduced_shape(tuple(tuple(index[target] for target in edges.get(name, ())) for name in self.nodes))

    @cached_property
    def never_together(self) -> Mapping[str, Collection[str]]:
        """The edges, and one from each alternative to the next: nodes on one path never live together."""
        added = dict(pair for group in self.either for pair in pairwise(group))
        return {**self.edges, **{name: (*self.edges.get(name, ()), other) for name, other in added.items()}}


@dataclass(frozen=True)
class Loop:
    """`copies` independent runs of `body`, of which at most `parallel` live at once."""

    name: str
    body: Tree
    copies: int | Unknown
    parallel: int | None = None

    def __post_init__(self) -> None:
        _require_parallel(self.parallel, f"loop {self.name!r}")
        text = f"loop {self.name!r} has {self.copies} copies; it cannot have fewer than 0"
        _require(isinstance(self.copies, Unknown) or self.copies >= 0, text)


Tree: TypeAlias = Leaf | Dag | Loop


def with_weights(node: Tree, weights: Mapping[str, Mapping[str, int]]) -> Tree:
    """The same tree with other weights, by the names of its leaves; a leaf that is not named weighs nothing."""
    match node:
        case Leaf():
            return Leaf(node.name, weights.get(node.name, {}), node.pods)
        case Loop():
            return replace(node, body=with_weights(node.body, weights))
        case Dag():
            # Names and edges stay, so that the reduced structure, which is dear, is found once for all weights.
            other = copy(node)
            other.__dict__["shape"] = node.shape
            other.__dict__["nodes"] = {name: with_weights(each, weights) for name, each in node.nodes.items()}
            return other


def rename(node: Tree, name_of: Callable[[str], str]) -> Tree:
    """The same tree with other names of its leaves and loops."""
    match node:
        case Leaf():
            return replace(node, name=name_of(node.name))
        case Loop():
            return replace(node, name=name_of(node.name), body=rename(node.body, name_of))
        case Dag():
            return replace(node, nodes={key: rename(each, name_of) for key, each in node.nodes.items()})


def with_unchosen(node: Tree, names_of: Callable[[list[Tree]], Sequence[str]]) -> Tree:
    """The same tree with a leaf beside alternatives for each but one of them: what is there of those that are not
    chosen. `names_of` gives the names of these leaves."""
    match node:
        case Leaf():
            return node
        case Loop():
            return replace(node, body=with_unchosen(node.body, names_of))
        case Dag():
            nodes = {key: with_unchosen(each, names_of) for key, each in node.nodes.items()}
            beside = {group[0]: names_of([node.nodes[key] for key in group]) for group in node.either}
            edges: dict[str, Collection[str]] = {
                key: (*after, *(name for each in after for name in beside.get(each, ())))
                for key, after in node.edges.items()
            }
            for key, names in beside.items():
                nodes |= {name: Leaf(name, {}) for name in names}
                edges |= dict.fromkeys(names, node.edges.get(key, ()))
            return replace(node, nodes=nodes, edges=edges)


def first_leaf(node: Tree) -> str | None:
    """The name of the first step of a tree; None where it has none."""
    match node:
        case Leaf():
            return node.name
        case Loop():
            return first_leaf(node.body)
        case Dag():
            return next((name for each in node.nodes.values() if (name := first_leaf(each)) is not None), None)


def _require_parallel(parallel: int | None, what: str) -> None:
    _require(parallel is None or parallel >= 1, f"{what} has parallel: {parallel}; give 1 or more, or leave it out")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)
