"""The heaviest moment of a large pipeline in few steps, where no cap on its parallelism makes it hard.

The answer is that of `gpuflow.graph.peak`, which is asked when a cap binds or when a number is only known at run time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gpuflow.graph import Dag, Leaf, Loop, Tree, Unknown
from gpuflow.graph.antichain import heaviest


class Moment(NamedTuple):
    """What is alive at once: its weight, its pods, and its steps in the order of the tree.

    These steps weigh `reached`, less than `weight` where the graph is too large for more than a bound.
    """

    weight: int
    pods: int
    steps: tuple[str, ...]
    reached: int


class Binding(Exception):
    """A cap, or a number that is not known, has a say."""


NOTHING = Moment(0, 0, (), 0)


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
            return Moment(weight, node.pods, (node.name,), weight) if weight else NOTHING
        case Loop():
            body = _moment(node.body, weights)
            return _repeated(node, body) if body.weight else NOTHING
        case Dag():
            parts = [_moment(each, weights) for each in node.nodes.values()]
            found = heaviest(node.shape, [part.weight for part in parts])
            alive = [parts[index] for index in found.nodes]
            pods = sum(part.pods for part in alive)
            if node.parallel is not None and pods > node.parallel:
                raise Binding
            steps = tuple(name for part in alive for name in part.steps)
            return Moment(found.bound, pods, steps, sum(part.reached for part in alive))


def _repeated(loop: Loop, body: Moment) -> Moment:
    copies = loop.copies.at_most if isinstance(loop.copies, Unknown) else loop.copies
    known = [count for count in (copies, loop.parallel) if count is not None]
    if not known:
        raise Binding
    times = min(known)
    return Moment(body.weight * times, body.pods * times, body.steps, body.reached * times) if times else NOTHING


def bounded_moment(tree: Tree, weights: Mapping[str, int], pods: Mapping[str, int], cap: int) -> int | None:
    """A bound on the heaviest moment with at most `cap` pods alive: that without the cap, or the heaviest pods alone.

    Exact where all pods weigh the same. `None` where it is not known how many pods there may be.
    """
    whole = heaviest_moment(tree, weights)
    if whole is None or (whole.pods <= cap and whole.reached == whole.weight):
        return None if whole is None else whole.weight
    # A gang larger than the cap counts as the whole cap, and may live alone.
    heaviest_pod = max(-(-weight // min(pods[name], cap)) for name, weight in weights.items() if weight)
    return min(whole.weight, heaviest_pod * cap)
