"""The heaviest moment of a large pipeline in few steps, where no cap on its parallelism makes it hard.

The answer is that of `gpuflow.graph.peak`, which is asked when a cap binds or when a number is only known at run time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gpuflow.graph import Dag, Leaf, Loop, Tree, Unknown
from gpuflow.graph.antichain import heaviest


class Moment(NamedTuple):
    """What is alive at once: its weight, its pods, and its steps in the order of the tree."""

    weight: int
    pods: int
    steps: tuple[str, ...]


class Binding(Exception):
    """A cap, or a number that is not known, has a say."""


NOTHING = Moment(0, 0, ())


def heaviest_moment(tree: Tree, weights: Mapping[str, int]) -> Moment | None:
    """The heaviest moment when steps weigh this; `None` when it takes more to find out."""
    try:
        return _moment(tree, weights)
    except Binding:
        return None


def _moment(node: Tree, weights: Mapping[str, int]) -> Moment:
    match node:
        case Leaf():
            weight = weights.get(node.name, 0)
            return Moment(weight, node.pods, (node.name,)) if weight else NOTHING
        case Loop():
            body = _moment(node.body, weights)
            return _repeated(node, body) if body.weight else NOTHING
        case Dag():
            parts = [_moment(each, weights) for each in node.nodes.values()]
            alive = [parts[index] for index in heaviest(node.shape, [part.weight for part in parts])]
            pods = sum(part.pods for part in alive)
            if node.parallel is not None and pods > node.parallel:
                raise Binding
            return Moment(
                sum(part.weight for part in alive), pods, tuple(name for part in alive for name in part.steps)
            )


def _repeated(loop: Loop, body: Moment) -> Moment:
    copies = loop.copies.at_most if isinstance(loop.copies, Unknown) else loop.copies
    known = [count for count in (copies, loop.parallel) if count is not None]
    if not known:
        raise Binding
    times = min(known)
    return Moment(body.weight * times, body.pods * times, body.steps) if times else NOTHING


def bounded_moment(tree: Tree, weights: Mapping[str, int], pods: Mapping[str, int], cap: int) -> int | None:
    """A bound on the heaviest moment with at most `cap` pods alive: that without the cap, or the heaviest pods alone.

    Exact where all pods weigh the same. `None` where it is not known how many pods there may be.
    """
    whole = heaviest_moment(tree, weights)
    if whole is None or whole.pods <= cap:
        return None if whole is None else whole.weight
    # A gang larger than the cap counts as the whole cap, and may live alone.
    heaviest_pod = max(-(-weight // min(pods[name], cap)) for name, weight in weights.items() if weight)
    return min(whole.weight, heaviest_pod * cap)
