"""The worst moment of a pipeline: the most of one resource that its live steps can hold at the same time.

`safe_parallel` is the answer to a peak that is too high: how many pods at once are always safe.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Literal

from gpuflow.graph.antichain import Work, heaviest_antichain
from gpuflow.graph.parallelism_cap import (
    CappedPart,
    Copies,
    Optimum,
    OrderedParts,
    Part,
    SingleStep,
    Step,
    count_pods,
    weigh,
)
from gpuflow.graph.tree import Dag, Leaf, Loop, Tree, Unknown

CUT_SHORT = "the exact worst moment of a graph with so many steps and edges takes too long to work out"

WEIGHTLESS = SingleStep(Step(0, "", 0, 0))
"""Any step that weighs nothing: it is never said to live."""


@dataclass(frozen=True)
class Peak:
    """The most that can be held at once, and the moment that shows it.

    - `exact`: `value` is reached, by the steps in `live`.
    - `at-most`: never more than `value`; `because` says why not exact. `live` may be alive together and weighs
      `reached`, where every number that only the run will tell is as large as it can be.
    - `unknown`: `value` is `None`, `because` names what is missing; `live` weighs `reached` without that.
    """

    value: int | None
    bound: Literal["exact", "at-most", "unknown"]
    because: str | None
    live: Mapping[str, int]
    """Step name to live copies; steps without weight are left out."""
    reached: int
    is_cut_short: bool = False
    """It is a bound because more would take too long to work out."""

    @property
    def witness(self) -> tuple[str, ...]:
        """The names of the live steps, in the order of the tree."""
        return tuple(self.live)


def peak(tree: Tree, key: str) -> Peak:
    """The worst moment of `tree` for the resource `key`, whatever its steps' durations turn out to be."""
    work = Work()
    best, missing = worst_moment(tree, key, work)
    reached = weigh(best.live)
    live: dict[str, int] = {}
    for step, copies in sorted(best.live, key=lambda pair: pair[0].place):
        live[step.name] = live.get(step.name, 0) + copies
    if missing:
        return Peak(None, "unknown", "; ".join(missing), live, reached)
    value = int(best.weight)
    reasons = list(dict.fromkeys(doubt for step, _ in best.live for doubt in step.doubts))
    is_cut_short = value > reached and work.cut_short
    if is_cut_short:
        reasons.append(CUT_SHORT)
    elif value > reached:
        reasons.append(f"under the parallel caps {reached} can be reached and more than {value} cannot")
    return Peak(value, "at-most" if reasons else "exact", "; ".join(reasons) or None, live, reached, is_cut_short)


def worst_moment(tree: Tree, key: str, work: Work) -> tuple[Optimum, list[str]]:
    """The best at price 0, and what is missing to bound it."""
    plain = _plain_weights(tree, key)
    if plain is not None:
        return _best_of_steps(tree, plain, work), []
    reader = _Reader(key, work)
    return reader.part(tree).at(0), list(dict.fromkeys(reader.missing))


def _plain_weights(tree: Tree, key: str) -> list[int] | None:
    """What the nodes of a graph weigh, where all are steps with known weights and no cap counts their pods."""
    weights: list[int] = []
    if not isinstance(tree, Dag) or tree.parallel is not None:
        return None
    for node in tree.nodes.values():
        weight = node.weights.get(key, 0) if isinstance(node, Leaf) else None
        if not isinstance(weight, int):
            return None
        weights.append(weight)
    return weights


def _best_of_steps(tree: Tree, weights: list[int], work: Work) -> Optimum:
    """The same as for any tree, without a part for each step: there may be ten thousand of them."""
    assert isinstance(tree, Dag)
    found = heaviest_antichain(tree.shape, weights)
    leaves = list(tree.nodes.values())
    steps = []
    for place in found.nodes:
        leaf = leaves[place]
        assert isinstance(leaf, Leaf)
        steps.append(Step(place, leaf.name, weights[place], leaf.pods))
    work.cut_short |= found.bound > sum(step.weight for step in steps)
    return Optimum(found.bound, sum(step.pods for step in steps), tuple((step, 1) for step in steps))


class _Reader:
    """Fills the numbers of one key into a tree, and collects what no number bounds."""

    def __init__(self, key: str, work: Work) -> None:
        self.key = key
        self.work = work
        self.missing: list[str] = []
        self.places = count()

    def part(self, node: Tree, room: int | None = None, doubts: tuple[str, ...] = ()) -> Part:
        """`room` is the tightest cap on pods around the node, `doubts` what is unknown around it."""
        match node:
            case Leaf():
                return self._leaf(node, room, doubts)
            case Dag():
                return self._dag(node, room, doubts)
            case Loop():
                return self._loop(node, room, doubts)

    def _leaf(self, leaf: Leaf, room: int | None, doubts: tuple[str, ...]) -> Part:
        weight = leaf.weights.get(self.key, 0)
        if isinstance(weight, Unknown):
            reason = f"{self.key} of step {leaf.name!r} is unknown: {weight.because}"
            if weight.at_most is None:
                self.missing.append(reason)
            weight, doubts = weight.at_most or 0, (*doubts, reason)
        if not weight:
            return WEIGHTLESS
        pods = leaf.pods if room is None else min(leaf.pods, room)
        return SingleStep(Step(next(self.places), leaf.name, weight, pods, doubts))

    def _dag(self, dag: Dag, room: int | None, doubts: tuple[str, ...]) -> Part:
        cap = dag.parallel
        if cap is not None and room is not None and room <= cap:
            cap = None
        inside = room if cap is None else cap
        whole = OrderedParts(dag.shape, [self.part(node, inside, doubts) for node in dag.nodes.values()], self.work)
        return whole if cap is None else CappedPart(whole, cap, self.work)

    def _loop(self, loop: Loop, room: int | None, doubts: tuple[str, ...]) -> Part:
        if loop.copies == 0:
            return WEIGHTLESS
        limits = [loop.parallel]
        reason = None
        if isinstance(loop.copies, Unknown):
            reason = f"the copies of loop {loop.name!r} are unknown: {loop.copies.because}"
            limits.append(loop.copies.at_most)
            doubts = (*doubts, reason)
        else:
            limits.append(loop.copies)
        body = self.part(loop.body, room, doubts)
        if room is not None and not body.free:
            # A copy with weight has a pod, so no more copies than the cap around them can live.
            limits.append(room // (body.grain or 1))
        known = [limit for limit in limits if limit is not None]
        if not known and reason and body.top:
            self.missing.append(reason)
        copies = Copies(body, min(known, default=0))
        # The cap around holds for the loop alone too. Saying so tightens the bound where others wait for the loop.
        return copies if room is None or isinstance(body, SingleStep) else CappedPart(copies, room, self.work)


def safe_parallel(tree: Tree, key: str, budget: int) -> int | None:
    """The largest cap on the live pods of the whole tree with which `key` provably never exceeds `budget`.

    `None` where no cap does: a step alone is too heavy, its weight is unknown, or it counts no pod. A cap below the
    largest gang is not proposed, since the gang could not start. Where no cap is needed the answer is the tree's
    own, or the number of all its pods with every unknown loop counted by its cap, or once.
    """
    own = tree.parallel if isinstance(tree, Dag) else None
    uncapped = replace(tree, parallel=None) if isinstance(tree, Dag) else tree
    pods = list(_pods(tree, 1))
    work = Work()  # for all caps together: when it is used up, caps are judged by bounds that are quick to find
    every = own or max(1, sum(gang * copies for gang, copies in pods))

    def most(cap: int) -> int | None:
        best, missing = worst_moment(Dag({"all": uncapped}, parallel=cap), key, work)
        return None if missing else int(best.weight)

    best, missing = worst_moment(tree, key, work)
    if not missing and best.weight <= budget:
        return every
    low = max([1, *(gang for gang, _ in pods)])
    at_low = most(low)
    if at_low is None or at_low > budget:
        return None
    high, at_high = every, int(best.weight)
    if weigh(best.live) > budget:
        high = min(high, count_pods(best.live))
    while missing and (at_high := most(high := 2 * high) or 0) <= budget:
        low, at_low = high, at_high
    # The bound is concave in the cap: the straight line between two caps leads close to the budget from above.
    # Every other guess halves the range, which keeps the search short whatever the curve.
    halve = False
    while high - low > 1:
        straight = low + (budget - at_low) * (high - low) // max(1, at_high - at_low)
        guess = (low + high) // 2 if halve else min(max(straight, low + 1), high - 1)
        at_guess = most(guess) or 0
        if at_guess <= budget:
            low, at_low = guess, at_guess
        else:
            high, at_high = guess, at_guess
        halve = not halve
    return low


def _pods(node: Tree, copies: int) -> Iterator[tuple[int, int]]:
    """The gang size of every step and how often it runs."""
    match node:
        case Leaf():
            yield node.pods, copies
        case Dag():
            for child in node.nodes.values():
                yield from _pods(child, copies)
        case Loop():
            # Of a loop of unknown size no more than its cap can be alive, which is all that matters here.
            times = (node.copies.at_most or node.parallel or 1) if isinstance(node.copies, Unknown) else node.copies
            if times:
                yield from _pods(node.body, copies * times)
