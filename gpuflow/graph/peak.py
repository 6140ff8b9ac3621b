"""The worst moment of a pipeline: the most of one resource that its live steps can hold at the same time.

`safe_parallel` is the answer to a peak that is too high: how many pods at once are always safe.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import count
from math import floor, gcd, lcm
from typing import Literal, NamedTuple, TypeAlias

from gpuflow.graph.antichain import Work, heaviest_antichain
from gpuflow.graph.tree import Dag, Leaf, Loop, Shape, Tree, Unknown


class Step(NamedTuple):
    """One step for one key; `place` is its position in the tree. `doubts` say why its weight or its copies may turn out
    smaller."""

    place: int
    name: str
    weight: int
    pods: int
    doubts: tuple[str, ...] = ()


Live: TypeAlias = tuple[tuple[Step, int], ...]
"""Steps and the number of their live copies; a step may appear more than once."""


def weigh(live: Live) -> int:
    return sum(step.weight * copies for step, copies in live)


def count_pods(live: Live) -> int:
    return sum(step.pods * copies for step, copies in live)


def cut_to_cap(live: Live, cap: int) -> Live:
    """What is left of `live` when it is cut to `cap` pods, the densest first or the heaviest first."""
    if count_pods(live) <= cap:
        return live
    dense = sorted(live, key=lambda pair: Fraction(pair[0].weight, pair[0].pods or 1), reverse=True)
    heavy = sorted(live, key=lambda pair: pair[0].weight, reverse=True)
    return max(_take_copies(dense, cap), _take_copies(heavy, cap), key=weigh)


def _take_copies(live: Sequence[tuple[Step, int]], room: int) -> Live:
    taken: list[tuple[Step, int]] = []
    for step, copies in live:
        fitting = min(copies, room // step.pods) if step.pods else copies
        if fitting:
            taken.append((step, fitting))
            room -= fitting * step.pods
    return tuple(taken)


# Additions before a table is given up and the bound stands: a tenth of a second or two.
TABLE_WORK = 200_000
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
        self.left = TABLE_WORK

    def single(self, live: Live, weight: int, pods: int) -> Table:
        return [*[EMPTY] * pods, (weight, live)] if weight and pods <= self.cap else [EMPTY]

    def choose(self, first: Table, second: Table) -> Table:
        """Of two that never live together, the heavier."""
        self._spend(len(first) + len(second))
        longest = max(len(first), len(second))
        return [max(_at(first, pods), _at(second, pods), key=lambda entry: entry[0]) for pods in range(longest)]

    def combine(self, first: Table, second: Table) -> Table:
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
                whole = self.combine(whole, table)
            copies >>= 1
            if copies:
                table = self.combine(table, table)
        return whole

    def combine_graph(self, shape: Shape, tables: Sequence[Table]) -> Table:
        """The table of a graph from those of its nodes."""
        terms = [*tables, *([EMPTY] for _ in range(shape.barriers))]
        for merge in shape.merges:
            join = self.combine if merge.together else self.choose
            terms.append(join(terms[merge.first], terms[merge.second]))
        if len(shape.core) > MAX_CORE:
            raise TooLarge
        apart = _comparable_nodes(shape.edges)
        known: dict[frozenset[int], Table] = {frozenset(): [EMPTY]}

        def best(nodes: frozenset[int]) -> Table:
            if nodes not in known:
                self._spend(len(nodes))
                node = min(nodes, key=lambda each: (-len(apart[each] & nodes), each))
                beside = nodes - apart[node] - {node}
                with_node = self.combine(terms[shape.core[node]], best(beside))
                conflicts = len(beside) < len(nodes) - 1
                known[nodes] = self.choose(with_node, best(nodes - {node})) if conflicts else with_node
            return known[nodes]

        return best(frozenset(range(len(shape.core))))

    def _spend(self, work: int) -> None:
        self.left -= work
        if self.left < 0:
            raise TooLarge


def _at(table: Table, pods: int) -> Entry:
    return table[min(pods, len(table) - 1)]


def _comparable_nodes(edges: Sequence[Sequence[int]]) -> list[set[int]]:
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


Number: TypeAlias = int | Fraction

# Prices tried for one cap. Each one met is a sound bound; a handful is the rule.
ROUNDS = 50


class Optimum(NamedTuple):
    """The optimum at some price as weight and pods, and steps that do fit; the latter may weigh less."""

    weight: Number
    pods: Number
    live: Live

    def worth(self, price: Number) -> Number:
        return self.weight - price * self.pods


NOTHING = Optimum(0, 0, ())


class Part(ABC):
    """A module with the numbers of one key filled in. Of its steps with weight, `top` is the heaviest weight, `grain`
    divides all their numbers of pods, and `free` says that some count no pod."""

    def __init__(self, top: int, grain: int, free: bool) -> None:
        self.top = top
        self.grain = grain
        self.free = free

    @abstractmethod
    def at(self, price: Number) -> Optimum:
        """The best to have alive when each pod costs `price`; the plain maximum when that is 0."""

    @abstractmethod
    def table(self, knapsack: Knapsack) -> Table:
        """The exact best for every number of pods, or `TooLarge`."""

    @abstractmethod
    def steps(self) -> Iterator[tuple[Step, int]]:
        """All its steps with their copies."""


class SingleStep(Part):
    """A step."""

    def __init__(self, step: Step) -> None:
        super().__init__(step.weight, step.pods if step.weight else 0, step.weight > 0 and not step.pods)
        self.step = step
        self.best = Optimum(step.weight, step.pods, ((step, 1),))

    def at(self, price: Number) -> Optimum:
        # Whether it is worth something, in whole numbers: fractions take ten times as long.
        return self.best if self.step.weight * price.denominator > self.step.pods * price.numerator else NOTHING

    def table(self, knapsack: Knapsack) -> Table:
        return knapsack.single(self.best.live, self.step.weight, self.step.pods)

    def steps(self) -> Iterator[tuple[Step, int]]:
        yield self.step, 1


class Copies(Part):
    """`count` independent runs of `body`."""

    def __init__(self, body: Part, count: int) -> None:
        super().__init__(body.top, body.grain, body.free)
        self.body = body
        self.count = count

    def at(self, price: Number) -> Optimum:
        best = self.body.at(price) if self.count else NOTHING
        live = tuple((step, copies * self.count) for step, copies in best.live)
        return Optimum(best.weight * self.count, best.pods * self.count, live)

    def table(self, knapsack: Knapsack) -> Table:
        return knapsack.repeat(self.body.table(knapsack), self.count)

    def steps(self) -> Iterator[tuple[Step, int]]:
        return ((step, copies * self.count) for step, copies in self.body.steps())


class OrderedParts(Part):
    """Parts of which some wait for others."""

    def __init__(self, shape: Shape, parts: Sequence[Part], work: Work) -> None:
        top = max((part.top for part in parts), default=0)
        super().__init__(top, gcd(*(part.grain for part in parts)), any(part.free for part in parts))
        self.shape = shape
        self.parts = parts
        self.work = work

    def at(self, price: Number) -> Optimum:
        bests = [part.at(price) for part in self.parts]
        # Worths times the price's denominator: whole numbers, unless a cap inside has a bound that is none.
        over, under = price.numerator, price.denominator
        worths = [best.weight * under - best.pods * over for best in bests]
        more = lcm(*{worth.denominator for worth in worths})
        scale = under * more
        scaled = [int(worth * more) for worth in worths]
        found = heaviest_antichain(self.shape, scaled)
        self.work.spent += found.work
        chosen = [bests[node] for node in found.nodes]
        live = tuple(pair for best in chosen for pair in best.live)
        weight, pods = sum(best.weight for best in chosen), sum(best.pods for best in chosen)
        if found.bound > (reached := sum(scaled[node] for node in found.nodes)):
            # The flow was cut short: weight is added until the worth is what no antichain exceeds.
            self.work.cut_short = True
            weight += Fraction(found.bound - reached, scale)
        return Optimum(weight, pods, live)

    def steps(self) -> Iterator[tuple[Step, int]]:
        for part in self.parts:
            yield from part.steps()

    def table(self, knapsack: Knapsack) -> Table:
        return knapsack.combine_graph(self.shape, [part.table(knapsack) for part in self.parts])


class CappedPart(Part):
    """A part of which at most `cap` pods live at once. `upper` bounds its weight and `live` does fit. From the best
    `price` found, where it is `worth` something, the cap needs no help. Below, the straight line from there to `upper`
    at price 0 is a bound, because the true optimum is convex in the price: as if `upper` had `pods`, a fraction
    perhaps."""

    def __init__(self, part: Part, cap: int, work: Work) -> None:
        super().__init__(part.top, part.grain, part.free)
        self.part = part
        self.work = work
        # Where all gangs have four pods, a cap of ten is one of eight.
        self.cap = cap - cap % (part.grain or 1)
        self.price: Number = 0
        many = part.at(0)
        self.pods, self.worth = many.pods, many.weight
        self.upper = floor(many.weight)
        self.live = cut_to_cap(many.live, self.cap)
        if many.pods > self.cap:
            self._close(many)
        if self.upper > weigh(self.live):
            with suppress(TooLarge):
                self.upper, self.live = part.table(Knapsack(self.cap))[-1]
        if self.work.is_used_up and self.upper > weigh(self.live):
            self.work.cut_short = True
            self.upper = min(self.upper, _heaviest_pods(part.steps(), self.cap))
        if self.price:
            self.pods = max(0, self.upper - self.worth) / Fraction(self.price)

    def at(self, price: Number) -> Optimum:
        if price < self.price or not price:
            return Optimum(self.upper, self.pods, self.live)
        best = self.part.at(price)
        return best._replace(live=cut_to_cap(best.live, self.cap))

    def table(self, knapsack: Knapsack) -> Table:
        return self.part.table(knapsack)[: self.cap + 1]

    def steps(self) -> Iterator[tuple[Step, int]]:
        return self.part.steps()

    def _close(self, many: Optimum) -> None:
        """Bring bound and reach together: try the price at which the best above the cap and within it tie."""
        # No pod is worth more than the heaviest step: at that price only steps that count no pod live.
        few = self.part.at(self.top)
        bound: Number = many.weight
        for _ in range(ROUNDS):
            price = (many.weight - few.weight) / Fraction(many.pods - few.pods)
            if self.work.is_used_up or price <= 0:
                return
            best = self.part.at(price)
            worth = best.worth(price)
            self.live = max(self.live, cut_to_cap(best.live, self.cap), key=weigh)
            if worth + price * self.cap < bound:
                bound = worth + price * self.cap
                self.price, self.worth, self.upper = price, worth, floor(bound)
            if self.upper <= weigh(self.live) or worth <= few.worth(price):
                return
            if best.pods > self.cap:
                many = best
            else:
                few = best


def _heaviest_pods(steps: Iterable[tuple[Step, int]], cap: int) -> int:
    """What the `cap` heaviest pods weigh, whatever waits for whatever; of the last gang, a part."""
    alike: Counter[tuple[int, int]] = Counter()
    for step, copies in steps:
        alike[step.weight, step.pods] += copies
    room, total = cap, Fraction(0)
    for (weight, pods), copies in sorted(alike.items(), key=lambda each: Fraction(each[0][0], each[0][1] or 1))[::-1]:
        taken = min(pods * copies, room)
        total += Fraction(weight * taken, pods) if pods else weight * copies
        room -= taken
    return floor(total)


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
    best = _best_of_steps(tree, key, work)
    if best is not None:
        return best, []
    reader = _Reader(key, work)
    return reader.part(tree).at(0), list(dict.fromkeys(reader.missing))


def _best_of_steps(tree: Tree, key: str, work: Work) -> Optimum | None:
    """The same as for any tree, without a part for each step: there may be ten thousand of them. `None` where not all
    nodes are steps with known weights, or where a cap counts their pods."""
    if not isinstance(tree, Dag) or tree.parallel is not None:
        return None
    all_steps: list[Step] = []
    for place, leaf in enumerate(tree.nodes.values()):
        weight = leaf.weights.get(key, 0) if isinstance(leaf, Leaf) else None
        if not isinstance(leaf, Leaf) or not isinstance(weight, int):
            return None
        all_steps.append(Step(place, leaf.name, weight, leaf.pods))
    found = heaviest_antichain(tree.shape, [step.weight for step in all_steps])
    steps = [all_steps[place] for place in found.nodes]
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
