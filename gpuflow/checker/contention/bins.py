"""Whether everything else of a pipeline can lie so badly that no bin takes one more pod.

A bin is a node or a flavor with what is free of each resource. It refuses a pod when, for some resource, the load on
it leaves less than the pod asks. The question is whether *every* bin can refuse at once, when all that lies there is
whole pods with known requests that together weigh no more than a budget per resource: the peak of the pipeline.

The answer "no" is proved, never guessed. Give every pod a weight, any mix of its resources. To close one bin costs at
least the lightest load that closes it; if the sum over the bins is above what can be alive at once, they cannot all be
closed. Plain counts, each resource and their mixes are tried as weights. For copies of one pod the count of pods
decides exactly; in general a "yes" can be too careful, a "no" is never wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from math import gcd, inf

LARGEST_TABLE = 4096
"""Loads are tabulated up to so many steps of their common divisor times distinct pods; beyond, the best ratio bounds
them."""
MOST_MIXED = 5
"""Mixes are made of at most so many resources."""

Amounts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Bin:
    """`count` places that are alike, with what is free of each resource."""

    free: Amounts
    count: int = 1


@dataclass(frozen=True, slots=True)
class Question:
    """A pod before its bins."""

    asked: Amounts
    """What the pod asks for; every amount is above zero."""
    bins: Sequence[Bin]
    others: Others
    """What may lie in the bins."""
    budgets: Mapping[str, int | None]
    """The most that the others together weigh, per key; `None` where that is not bounded."""
    overshoot: Amounts = field(default_factory=dict)
    """By how much a load may exceed what is free now: a pending pod may start when a running one ends."""
    avoided: int = 0
    """So many bins, whichever, may be closed to the pod for another reason."""


def refusing(question: Question) -> tuple[str, ...] | None:
    """The resources through which all bins may refuse the pod at once, or `None` when they cannot.

    Empty when there is nothing to wait for: no bin, or each refuses the pod as it is.
    """
    return None if _refusing(question, exact=False) is None else _refusing(question, exact=True)


def _refusing(question: Question, *, exact: bool) -> tuple[str, ...] | None:
    """The answer with the lightest loads worked out (`exact`), or quickly by the best ratio of amount to weight."""
    reach = {name: question.others.cover(name, {name: 1}, exact) for name in question.asked}
    ways: list[list[str] | None] = []

    def ways_of(index: int) -> list[str] | None:
        """The resources through which a bin can be closed; `None` for one that refuses already, without any load."""
        if index == len(ways):
            bin = question.bins[index]
            closed = any(bin.free.get(name, 0) < amount for name, amount in question.asked.items())
            names = [name for name in question.asked if reach[name].least(*_span(question, bin, name)) is not None]
            ways.append(None if closed else names)
        return ways[index]

    for factors, budget in _weightings(question, mixed=exact):
        prices = {name: question.others.cover(name, factors, exact) for name in question.asked}
        total: float = 0
        closing: list[tuple[float, int]] = []
        for index, each in enumerate(question.bins):
            names = ways_of(index)
            if names is None:
                continue
            costs = (prices[name].least(*_span(question, each, name)) for name in names)
            cheapest = min((cost for cost in costs if cost is not None), default=inf)  # inf: it can never be closed
            total += each.count * cheapest
            if total > budget and not question.avoided:
                return None
            closing.append((cheapest, each.count))
        if question.avoided and _without_costliest(closing, question.avoided) > budget:
            return None
    return _used(question, [ways_of(index) for index in range(len(question.bins))])


def _without_costliest(closing: list[tuple[float, int]], avoided: int) -> float:
    """What it costs to close all bins but those that cost most."""
    total: float = 0
    for cost, count in sorted(closing, reverse=True):
        spared = min(avoided, count)
        avoided -= spared
        total += cost * (count - spared) if count > spared else 0
    return total


def _used(question: Question, ways: Sequence[list[str] | None]) -> tuple[str, ...] | None:
    used: set[str] = set()
    lasting = sum(each.count for each, names in zip(question.bins, ways, strict=True) if names == [])
    if lasting > question.avoided:
        return None
    for names in ways:
        used.update(names or ())
    return tuple(sorted(used))


def _span(question: Question, bin: Bin, name: str) -> tuple[int, int]:
    """From the least load that closes the bin to the most that lies there."""
    free, budget = bin.free.get(name, 0), question.budgets.get(name)
    most = free + question.overshoot.get(name, 0)
    return free - question.asked[name] + 1, most if budget is None else min(most, budget)


def _weightings(question: Question, *, mixed: bool) -> Iterator[tuple[Amounts, int]]:
    """Ways to weigh pods, as factors per key, with the most that may be alive of each."""
    known = {name: budget for name, budget in question.budgets.items() if budget is not None}
    for name, budget in known.items():
        yield {name: 1}, budget
    mixable = list(known)[:MOST_MIXED] if mixed else []
    scale = 1000 * max(known.values(), default=1)
    for size in range(2, len(mixable) + 1):
        for names in combinations(mixable, size):
            factors = {name: scale // max(known[name], 1) for name in names}
            yield factors, sum(factor * known[name] for name, factor in factors.items())


class Others:
    """Each distinct pod that may be in the bins, by its amounts. A key may be added to count pods."""

    def __init__(self, distinct: Iterable[Amounts]) -> None:
        self.distinct = tuple(distinct)
        self._covers: dict[tuple[str, tuple[tuple[str, int], ...], bool], Cover] = {}

    def cover(self, name: str, factors: Amounts, exact: bool) -> Cover:
        """How loads of a resource are reached with these pods, each weighed by the factors of its resources."""
        key = name, tuple(factors.items()), exact
        if key not in self._covers:
            coins: dict[int, int] = {}
            for pod in self.distinct:
                amount = pod.get(name, 0)
                if amount > 0:
                    weight = sum(factor * pod.get(each, 0) for each, factor in factors.items())
                    coins[amount] = min(weight, coins.get(amount, weight))
            self._covers[key] = Cover(coins, LARGEST_TABLE // max(len(coins), 1) if exact else 0)
        return self._covers[key]


class Cover:
    """The lightest way to reach a load with whole pods: `coins` are their amounts, with the weight of each."""

    def __init__(self, coins: Mapping[int, int], largest: int = LARGEST_TABLE) -> None:
        self.coins = coins
        self.largest = largest
        self.grain = gcd(*coins) if coins else 1
        self._table = [0]
        self._answers: dict[tuple[int, int], int | None] = {}

    def least(self, low: int, high: int) -> int | None:
        """The least weight of a load between `low` and `high`, or less where that is not worth finding out.

        `None` when no load lies there.
        """
        first, last = -(-low // self.grain), high // self.grain
        if first > last or (not self.coins and first > 0):
            return None
        if first <= 0:
            return 0
        if last > self.largest:
            amount, weight = self.cheapest
            return -(-first * self.grain * weight // amount)
        if (first, last) not in self._answers:
            self._grow(last)
            reached = [weight for weight in self._table[first : last + 1] if weight >= 0]
            self._answers[first, last] = min(reached, default=None)
        return self._answers[first, last]

    @cached_property
    def cheapest(self) -> tuple[int, int]:
        """The coin that brings most for its weight."""
        return min(self.coins.items(), key=lambda coin: Fraction(coin[1], coin[0]))

    def _grow(self, last: int) -> None:
        """Extend the table of the least weight for each load; -1 where none reaches it."""
        steps = [(amount // self.grain, weight) for amount, weight in self.coins.items()]
        for load in range(len(self._table), last + 1):
            before = [(self._table[load - size], weight) for size, weight in steps if size <= load]
            self._table.append(min((least + weight for least, weight in before if least >= 0), default=-1))
