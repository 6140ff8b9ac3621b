"""What of a pipeline may be alive at the same time, asked with any weights.

The graph of a demand is built once; a question gives every step a weight and gets the heaviest moment. Steps that are
never alive at the same time as certain others can be left out, which gives those others a tighter bound. Where no cap
on parallelism makes it hard, the heaviest moment of a large pipeline is found in few steps; `gpuflow.graph.peak`
gives the same answer and is asked when a cap binds or when a number is only known at run time.

Who competes for the same nodes or flavors: other pods of the pipeline, and pending pods and workloads of others.

Pending pods and workloads are in the snapshot already, so they count although no other workload grows. Each takes one
place at most, now or when it becomes free: it can keep a step waiting, but not forever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from gpuflow.checker.contention.bins import Amounts, DistinctPods
from gpuflow.core.work_budget import limited_advice, may_advise
from gpuflow.demands import Demand
from gpuflow.graph import Dag, Leaf, Loop, Tree, Unknown, order, peak, with_weights
from gpuflow.graph.antichain import heaviest_antichain
from gpuflow.graph.peak import CUT_SHORT


class Moment(NamedTuple):
    """What is alive at once: its weight, its pods, and its steps in the order of the tree. These steps weigh `reached`,
    less than `weight` where the graph is too large for more than a bound."""

    weight: int
    pods: int
    steps: tuple[str, ...]
    reached: int


class BindingLimit(Exception):
    """A cap or an unknown number limits the result."""


NO_MOMENT = Moment(0, 0, (), 0)


def heaviest_moment(tree: Tree, weights: Mapping[str, int]) -> Moment | None:
    """The heaviest moment when steps weigh this; `None` when it takes more to find out."""
    try:
        return _heaviest_moment(tree, weights)
    except BindingLimit:
        return None


def _heaviest_moment(node: Tree, weights: Mapping[str, int]) -> Moment:
    match node:
        case Leaf():
            weight = weights.get(node.name, 0)
            return Moment(weight, node.pods, (node.name,), weight) if weight else NO_MOMENT
        case Loop():
            body = _heaviest_moment(node.body, weights)
            return _moment_of_loop(node, body) if body.weight else NO_MOMENT
        case Dag():
            parts = [_heaviest_moment(each, weights) for each in node.nodes.values()]
            found = heaviest_antichain(node.shape, [part.weight for part in parts])
            alive = [parts[index] for index in found.nodes]
            pods = sum(part.pods for part in alive)
            if node.parallel is not None and pods > node.parallel:
                raise BindingLimit
            steps = tuple(name for part in alive for name in part.steps)
            return Moment(found.bound, pods, steps, sum(part.reached for part in alive))


def _moment_of_loop(loop: Loop, body: Moment) -> Moment:
    copies = loop.copies.at_most if isinstance(loop.copies, Unknown) else loop.copies
    known = [count for count in (copies, loop.parallel) if count is not None]
    if not known:
        raise BindingLimit
    times = min(known)
    return Moment(body.weight * times, body.pods * times, body.steps, body.reached * times) if times else NO_MOMENT


def moment_bound(tree: Tree, weights: Mapping[str, int], pods: Mapping[str, int], cap: int) -> int | None:
    """A bound on the heaviest moment with at most `cap` pods alive: that without the cap, or the heaviest pods alone.
    Exact where all pods weigh the same. `None` where it is not known how many pods there may be."""
    whole = heaviest_moment(tree, weights)
    if whole is None or (whole.pods <= cap and whole.reached == whole.weight):
        return None if whole is None else whole.weight
    # A gang larger than the cap counts as the whole cap, and may live alone.
    heaviest_pod = max(-(-weight // min(pods[name], cap)) for name, weight in weights.items() if weight)
    return min(whole.weight, heaviest_pod * cap)


QUESTION = "weight"
BODY = "body"
MOST_ASKED = 32
"""Up to so many steps, the steps that may run at the same time are worked out; for more, every step may."""
MANY_STEPS = 1000
"""With more steps than that, a cap is checked against a bound that is quick to find."""
MOST_COMPARED = 20_000
"""With more steps than that it is not worked out which of them wait for each other."""
MOST_PODS = 2**20
"""The largest cap that is tried."""


class PeakLoad(NamedTuple):
    """The heaviest moment: its weight, or why that is not known, and the steps that reach it. Where the value is a
    bound because more would take too long to work out, `because` says so."""

    value: int | None
    because: str | None
    witness: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Branch:
    """A part of the graph with the names of all steps below it."""

    node: Tree
    steps: frozenset[str]
    inner: Mapping[str, Branch]

    @cached_property
    def key_of(self) -> Mapping[str, str]:
        """In which of its parts a step is."""
        return {step: key for key, each in self.inner.items() for step in each.steps}

    @cached_property
    def comparable_parts(self) -> Mapping[str, int]:
        """For each part of a graph those before and after it, and itself: a bit for each, in the order of the parts."""
        assert isinstance(self.node, Dag)
        places = {key: 1 << number for number, key in enumerate(self.inner)}
        edges = self.node.never_together
        in_order = order(edges)
        before, after = dict(places), dict(places)
        for key in in_order:
            for target in edges.get(key, ()):
                before[target] |= before[key]
        for key in reversed(in_order):
            for target in edges.get(key, ()):
                after[key] |= after[target]
        return {key: before[key] | after[key] for key in self.inner}


def branch_of(node: Tree) -> Branch:
    match node:
        case Leaf():
            return Branch(node, frozenset({node.name}), {})
        case Loop():
            inner = {BODY: branch_of(node.body)}
        case Dag():
            inner = {name: branch_of(each) for name, each in node.nodes.items()}
    return Branch(node, frozenset().union(*(each.steps for each in inner.values())), inner)


Load = tuple[tuple[tuple[str, ...], int], ...]
"""What a copy of each of some steps weighs; a step that is named twice weighs the larger amount."""


class Concurrency:
    """The steps of a demand with everything that bounds how many live at once."""

    def __init__(self, demand: Demand) -> None:
        self.tree = demand.moments
        self.cap: int | None = None
        self.pods = {step.name: step.pods for step in demand.steps} | dict.fromkeys(demand.drivers_beside, 1)
        gangs = [sum(part.pods for part in parts) for parts in demand.gangs.values()]
        self.largest_gang = max(gangs, default=1)
        counted = (*demand.by_name.items(), *demand.drivers_beside.items())
        self.copies = {name: step.copies for name, step in counted}
        self._peak_loads: dict[Load, PeakLoad] = {}
        self._reached: dict[Load, int] = {}
        self._totals: dict[tuple[str, ...], int | None] = {}
        self._neighbors: dict[frozenset[str], frozenset[str]] = {}
        self._concurrent: dict[frozenset[str], frozenset[str]] = {}

    def with_cap(self, cap: int) -> Concurrency:
        """The same steps with at most so many pods alive at once."""
        uncapped = self._uncapped_tree  # found once, for all caps
        other = copy(self)
        other.cap, other._uncapped_tree, other._peak_loads, other._reached = cap, uncapped, {}, {}
        return other

    @cached_property
    def _uncapped_tree(self) -> Tree:
        tree = self.tree
        return replace(tree, parallel=None) if isinstance(tree, Dag) and tree.parallel is not None else tree

    def peak_load(self, load: Load) -> PeakLoad:
        """The heaviest moment; a step that is left out weighs nothing. Under a cap and with very many steps, the value
        is a bound from above."""
        if load not in self._peak_loads:
            weights: dict[str, int] = {}
            for steps, weight in load:
                for step in steps:
                    weights[step] = max(weight, weights.get(step, 0))
            self._peak_loads[load], self._reached[load] = self._find(weights)
        return self._peak_loads[load]

    def reached_load(self, load: Load) -> int:
        """What the steps of the heaviest moment that was found weigh: less than its value where that is a bound."""
        self.peak_load(load)
        return self._reached[load]

    def _find(self, weights: Mapping[str, int]) -> tuple[PeakLoad, int]:
        if self.cap is None:
            moment = heaviest_moment(self.tree, weights)
            if moment is not None:
                because = CUT_SHORT if moment.weight > moment.reached else None
                return PeakLoad(moment.weight, because, moment.steps), moment.reached
        elif len(self.pods) > MANY_STEPS:
            bound = moment_bound(self._uncapped_tree, weights, self.pods, self.cap)
            if bound is not None:
                return PeakLoad(bound, None, ()), 0
        by_key = {name: {QUESTION: weight} for name, weight in weights.items()}
        tree = with_weights(self.tree if self.cap is None else self._uncapped_tree, by_key)
        found = peak(tree if self.cap is None else Dag({"all": tree}, parallel=self.cap), QUESTION)
        told = found.value is None or found.is_cut_short
        return PeakLoad(found.value, found.because if told else None, found.witness), found.reached

    def total(self, load: Load) -> int | None:
        """What all copies of all steps weigh together, or more; `None` when their number is not known."""
        total = 0
        for steps, weight in load:
            if steps not in self._totals:
                counts = [self.copies[step] for step in steps]
                self._totals[steps] = None if None in counts else sum(count or 0 for count in counts)
            copies = self._totals[steps]
            if copies is None:
                return None
            total += copies * weight
        return total

    def concurrent_with(self, names: frozenset[str]) -> frozenset[str]:
        """The steps that may be alive together with one of these, themselves included."""
        if len(names) > MOST_ASKED or len(self.pods) > MOST_COMPARED:
            return frozenset(self.pods)
        if names not in self._concurrent:
            self._concurrent[names] = names | self.neighbors(names)
        return self._concurrent[names]

    def neighbors(self, names: frozenset[str]) -> frozenset[str]:
        """The steps that may be alive together with one of these; themselves only if they have several copies."""
        if len(names) > MOST_ASKED or len(self.pods) > MOST_COMPARED:
            return frozenset(self.pods)
        if names not in self._neighbors:
            self._neighbors[names] = frozenset(other for name in names for other in self._concurrent_with(name))
        return self._neighbors[names]

    def _concurrent_with(self, name: str) -> Iterator[str]:
        """From the whole graph down to the step: what is not ordered with it at each level."""
        branch = self._branches
        while True:
            match branch.node:
                case Leaf():
                    return
                case Loop(copies=copies, parallel=parallel):
                    if not (copies == 1 or parallel == 1):
                        yield from branch.steps  # other copies go at their own pace
                    branch = branch.inner[BODY]
                case Dag():
                    key = branch.key_of[name]
                    bits = f"{branch.comparable_parts[key]:0{len(branch.inner)}b}"[::-1]
                    for is_ordered, each in zip(bits, branch.inner.values(), strict=True):
                        if is_ordered == "0":
                            yield from each.steps
                    branch = branch.inner[key]

    @cached_property
    def _branches(self) -> Branch:
        return branch_of(self.tree)

    def most_pods(self) -> int:
        """The number of all pods; a fan-out of unknown size counts once."""

        def count(node: Tree) -> int:
            match node:
                case Leaf():
                    return node.pods
                case Loop():
                    return count(node.body) * (node.copies if isinstance(node.copies, int) else 1)
                case Dag():
                    return sum(map(count, node.nodes.values()))

        return max(1, count(self.tree))


def largest_cap(concurrency: Concurrency, holds: Callable[[Concurrency], bool]) -> int | None:
    """The largest number of pods alive at once with which something still holds; `None` when it never does. It is taken
    not to hold without a cap, and to hold below every cap with which it holds. No cap is proposed that is smaller than
    a gang, since the gang could not start. `None` also where a check has no work left for advice."""
    if not may_advise():
        return None
    with limited_advice():
        return _largest_cap(concurrency, holds)


def _largest_cap(concurrency: Concurrency, holds: Callable[[Concurrency], bool]) -> int | None:
    low, high = concurrency.largest_gang, concurrency.most_pods()
    if not holds(concurrency.with_cap(low)):
        return None
    while low < high and high < MOST_PODS and holds(concurrency.with_cap(high)):
        low, high = high, 2 * high  # fan-outs of unknown size: there are more pods than could be counted
    while high - low > 1:
        middle = (low + high) // 2
        if holds(concurrency.with_cap(middle)):
            low = middle
        else:
            high = middle
    return low


MOST_NAMES = 3


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """A pending pod or workload, and what it will take."""

    name: str
    amounts: Amounts
    source: tuple[str, str] | None = None
    """Where its quota comes from, if that bounds what it and others of the same source take at once."""


class PendingRequests:
    """The pending pods or workloads that may take places in the same bins; at least one."""

    def __init__(
        self, members: Iterable[PendingRequest], most: Mapping[tuple[str, str], Mapping[str, int]] | None = None
    ) -> None:
        self.members = tuple(members)
        self._most = most or {}
        self._alike = Counter((each.source, tuple(sorted(each.amounts.items()))) for each in self.members)
        self.distinct: list[Amounts] = [dict(items) for items in dict.fromkeys(items for _, items in self._alike)]

    def total(self, key: str) -> int:
        """What they weigh together, or as much of it as their sources let through at once."""
        totals: Counter[tuple[str, str] | None] = Counter()
        for (source, items), count in self._alike.items():
            totals[source] += dict(items).get(key, 0) * count
        together = 0
        for source, total in totals.items():
            most = None if source is None else self._most.get(source, {}).get(key)
            together += total if most is None else min(total, max(most, 0))
        return together

    def largest_amounts(self, keys: Iterable[str]) -> dict[str, int]:
        """The most that one of them takes of each."""
        return {key: max(amounts.get(key, 0) for amounts in self.distinct) for key in keys}

    def with_requests_for(self, keys: Iterable[str]) -> tuple[PendingRequest, ...]:
        """Those who ask for some of these resources, the largest first."""
        wanted = tuple(keys)
        found = [each for each in self.members if any(each.amounts.get(key, 0) for key in wanted)]
        return tuple(sorted(found, key=lambda each: ([-each.amounts.get(key, 0) for key in wanted], each.name)))


def waiting_clause(pending: Iterable[PendingRequest], noun: str) -> str:
    """That they wait: `pod others/p waits`, or `pods others/p, others/q, others/r and 7 more wait`."""
    names = list(dict.fromkeys(each.name for each in pending))
    if len(names) == 1:
        return f"{noun} {names[0]} waits"
    shown, more = names[:MOST_NAMES], len(names) - MOST_NAMES
    if more > 0:
        return f"{noun}s {', '.join(shown)} and {more} more wait"
    return f"{noun}s {', '.join(shown[:-1])} and {shown[-1]} wait"


@dataclass(frozen=True, slots=True)
class Competitor:
    """Pods of some steps that may be in the same bins."""

    steps: tuple[str, ...]
    amounts: Amounts
    """What one of them asks for."""
    pods: int = 1
    """How many one copy of a step has."""


class Competitors:
    """Competitors that share bins. Answers are kept, because many pod groups ask the same. One object belongs to one
    `Concurrency`, with or without caps."""

    def __init__(self, members: Iterable[Competitor]) -> None:
        self.members = tuple(members)
        self._loads: dict[str, Load] = {}
        self._peak_loads: dict[tuple[str, int | None], PeakLoad] = {}
        self._totals: dict[str, int | None] = {}
        self._others: dict[PendingRequests, DistinctPods] = {}
        self._concurrent_with: dict[frozenset[str], Competitors] = {}

    @cached_property
    def distinct_pods(self) -> DistinctPods:
        return DistinctPods(each.amounts for each in self.members)

    def largest_amounts(self, keys: Iterable[str]) -> dict[str, int]:
        """The most that one of them takes of each."""
        return {key: max((each.amounts.get(key, 0) for each in self.members), default=0) for key in keys}

    def others_with(self, pending: PendingRequests) -> DistinctPods:
        """The same, with pending pods or workloads."""
        if pending not in self._others:
            self._others[pending] = DistinctPods((*self.distinct_pods.distinct, *pending.distinct))
        return self._others[pending]

    def total(self, key: str, concurrency: Concurrency) -> int | None:
        """What all of it weighs, or more; `None` when that is not known, or under a cap, where the sum says nothing."""
        if concurrency.cap is not None:
            return None
        if key not in self._totals:
            self._totals[key] = concurrency.total(self._load(key))
        return self._totals[key]

    def peak_load(self, key: str, concurrency: Concurrency) -> PeakLoad:
        """The most that is alive at once in one run."""
        if (key, concurrency.cap) not in self._peak_loads:
            self._peak_loads[key, concurrency.cap] = concurrency.peak_load(self._load(key))
        return self._peak_loads[key, concurrency.cap]

    def reached_load(self, key: str, concurrency: Concurrency) -> int:
        """What certainly may be alive at once in one run, where the most is only bounded."""
        return concurrency.reached_load(self._load(key))

    def concurrent_with(self, steps: frozenset[str]) -> Competitors:
        """What of it belongs to these steps."""
        if steps not in self._concurrent_with:
            self._concurrent_with[steps] = Competitors(
                Competitor(tuple(step for step in each.steps if step in steps), each.amounts, each.pods)
                for each in self.members
                if not steps.isdisjoint(each.steps)
            )
        return self._concurrent_with[steps]

    def _load(self, key: str) -> Load:
        """What a copy of each step weighs."""
        if key not in self._loads:
            amounts = ((each.steps, each.amounts.get(key, 0) * each.pods) for each in self.members)
            self._loads[key] = tuple((steps, amount) for steps, amount in amounts if amount)
        return self._loads[key]
