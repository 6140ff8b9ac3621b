"""A pipeline as a tree of modules: what runs, what waits for what, what repeats, and how much of it at once.

    Dag({"prepare": Leaf("prepare", {"gpu": 0}), "train": Leaf("train", {"gpu": 2})}, {"prepare": ["train"]})

Built once, asked about any number of resource keys. Trees are values: nothing in them may be changed later.
Steps that run after everything else, side by side:

    Dag({"main": Dag(steps, edges), "exit": Dag(exit_steps)}, {"main": ["exit"]}, parallel=8)
"""

from collections.abc import Collection, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

from gpuflow.graph.order import order
from gpuflow.graph.shape import Shape, reduce


@dataclass(frozen=True)
class Unknown:
    """A number that only the run will tell, why, and the most it can be where somebody promised that."""

    because: str
    at_most: int | None = None

    def __post_init__(self) -> None:
        _require(self.at_most is None or self.at_most >= 0, f"at_most is {self.at_most}; it cannot be negative")


@dataclass(frozen=True)
class Leaf:
    """One step: what it weighs on each key while it lives (a key left out is 0), and its number of pods.

    Several pods are a gang: they live and count together. Pods that come and go one by one are a `Loop`. A step
    that no cap counts has 0 pods. `name` is what a witness says.
    """

    name: str
    weights: Mapping[str, int | Unknown]
    pods: int = 1

    def __post_init__(self) -> None:
        _require(self.pods >= 0, f"step {self.name!r} has {self.pods} pods; it cannot have fewer than 0")
        for key, weight in self.weights.items():
            _require(
                isinstance(weight, Unknown) or weight >= 0,
                f"step {self.name!r} weighs {weight} on {key!r}; a weight cannot be negative",
            )


@dataclass(frozen=True)
class Dag:
    """Nodes by key and, for each key, the keys that wait for it; at most `parallel` pods of it live at once.

    A gang larger than an enclosing cap counts as that whole cap: it may live, alone.
    """

    nodes: Mapping[str, "Tree"]
    edges: Mapping[str, Collection[str]] = field(default_factory=dict)
    parallel: int | None = None

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
        return reduce([[index[target] for target in self.edges.get(name, ())] for name in self.nodes])


@dataclass(frozen=True)
class Loop:
    """`copies` independent runs of `body`, of which at most `parallel` live at once."""

    name: str
    body: "Tree"
    copies: int | Unknown
    parallel: int | None = None

    def __post_init__(self) -> None:
        _require_parallel(self.parallel, f"loop {self.name!r}")
        _require(
            isinstance(self.copies, Unknown) or self.copies >= 0,
            f"loop {self.name!r} has {self.copies} copies; it cannot have fewer than 0",
        )


Tree: TypeAlias = Leaf | Dag | Loop


def weighted(node: Tree, weights: Mapping[str, Mapping[str, int]]) -> Tree:
    """The same tree with other weights, by the names of its leaves; a leaf that is not named weighs nothing."""
    match node:
        case Leaf():
            return Leaf(node.name, weights.get(node.name, {}), node.pods)
        case Loop():
            return replace(node, body=weighted(node.body, weights))
        case Dag():
            # Names and edges stay, so that the reduced structure, which is dear, is found once for all weights.
            other = copy(node)
            other.__dict__["shape"] = node.shape
            other.__dict__["nodes"] = {name: weighted(each, weights) for name, each in node.nodes.items()}
            return other


def _require_parallel(parallel: int | None, what: str) -> None:
    _require(parallel is None or parallel >= 1, f"{what} has parallel: {parallel}; give 1 or more, or leave it out")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)
