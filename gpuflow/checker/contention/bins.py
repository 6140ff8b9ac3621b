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
from math import gcd
from operator import mul

from gpuflow.core.work_budget import spend

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
    others: DistinctPods
    """What may lie in the bins."""
    budgets: Mapping[str, int | None]
    """The most that the others together weigh, per key; `None` where that is not bounded."""
    overshoot: Amounts = field(default_factory=dict)
    """By how much a load may exceed what is free now: a pending pod may start when a running one ends."""
    avoided: int = 0
    """So many bins, whichever, may be closed to the pod for another reason."""


def refusing_resources(question: Question) -> tuple[str, ...] | None:
    """The resources through which all bins may refuse the pod at once, or `None` when they cannot. Empty when there is
    nothing to wait for: no bin, or each refuses the pod as it is. `TooLarge` where that is not worked out."""
    return None if _find_refusing(question, exact=False) is None else _find_refusing(question, exact=True)


def _find_refusing(question: Question, *, exact: bool) -> tuple[str, ...] | None:
    """The answer with the lightest loads worked out (`exact`), or quickly by the best ratio of amount to weight."""
    columns = _Columns(question, exact)
    if columns.lasting > question.avoided:
        return None
    for factors, budget in _weightings(question, mixed=exact):
        cheapest = columns.closing_costs(factors, beyond=budget + 1)
        if question.avoided:
            total = _without_costliest(list(zip(cheapest, columns.counts, strict=True)), question.avoided)
        else:
            total = sum(map(mul, cheapest, columns.counts))
        if total > budget:
            return None
    return tuple(sorted(name for name, amounts in columns.closable.items() if amounts))


class _Columns:
    """The bins that would take the pod as they are, resource by resource. Thousands of bins differ in few amounts of
    each resource, so what a load costs is worked out once for each amount."""

    def __init__(self, question: Question, exact: bool) -> None:
        self.question, self.exact = question, exact
        asked = question.asked
        spend("places", len(question.bins) * len(asked) // 4)
        bins = [bin for bin in question.bins if all(bin.free.get(name, 0) >= asked[name] for name in asked)]
        self.counts = [bin.count for bin in bins]
        self.free = {name: [bin.free.get(name, 0) for bin in bins] for name in asked}
        self.spans = {name: {free: _span(question, free, name) for free in set(self.free[name])} for name in asked}
        self.closable = {
            name: {free for free, span in spans.items() if self._cover(name, {name: 1}).least_weight(*span) is not None}
            for name, spans in self.spans.items()
        }
        """The amounts of each resource that some load closes."""
        ways = [map(self.closable[name].__contains__, self.free[name]) for name in asked]
        self.lasting = sum(count for count, *closable in zip(self.counts, *ways, strict=True) if not any(closable))
        """How many bins no load closes."""

    def _cover(self, name: str, factors: Amounts) -> Cover:
        return self.question.others.cover(name, factors, self.exact)

    def closing_costs(self, factors: Amounts, beyond: int) -> list[int]:
        """What it costs at least to close each bin, by these weights; `beyond` where nothing does."""
        costs = []
        for name, spans in self.spans.items():
            spend("places", 8 + len(spans) + len(self.counts) // 8)
            cover = self._cover(name, factors)
            priced = {
                free: beyond if (cost := cover.least_weight(*span)) is None else cost for free, span in spans.items()
            }
            costs.append([priced[free] for free in self.free[name]])
        return list(map(min, *costs)) if len(costs) > 1 else costs[0]


def _without_costliest(closing: list[tuple[int, int]], avoided: int) -> int:
    """What it costs to close all bins but those that cost most."""
    total = 0
    for cost, count in sorted(closing, reverse=True):
        spared = min(avoided, count)
        avoided -= spared
        total += cost * (count - spared)
    return total


def _span(question: Question, free: int, name: str) -> tuple[int, int]:
    """From the least load that closes a bin with so much free to the most that lies there."""
    budget = question.budgets.get(name)
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


class DistinctPods:
    """Each distinct pod that may be in the bins, by its amounts. A key may be added to count pods."""

    def __init__(self, distinct: Iterable[Amounts]) -> None:
        self.distinct = tuple({tuple(sorted(pod.items())): pod for pod in distinct}.values())
        self._covers: dict[tuple[str, tuple[tuple[str, int], ...], bool], Cover] = {}

    def cover(self, name: str, factors: Amounts, exact: bool) -> Cover:
        """How loads of a resource are reached with these pods, each weighed by the factors of its resources."""
        key = name, tuple(factors.items()), exact
        if key not in self._covers:
            coins: dict[int, int] = {}
            spend("places", len(self.distinct))
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
        self.beyond = (max(coins.values(), default=0) + 1) * (largest + 1)
        self._table = [0]
        self._answers: dict[tuple[int, int], int | None] = {}

    def least_weight(self, low: int, high: int) -> int | None:
        """The least weight of a load between `low` and `high`, or less where that is not worth finding out. `None` when
        no load lies there."""
        first, last = -(-low // self.grain), high // self.grain
        if first > last or (not self.coins and first > 0):
            return None
        if first <= 0:
            return 0
        if last > self.largest:
            amount, weight = self.best_coin
            return -(-first * self.grain * weight // amount)
        if (first, last) not in self._answers:
            self._grow(last)
            least = min(self._table[first : last + 1])
            self._answers[first, last] = None if least >= self.beyond else least
        return self._answers[first, last]

    @cached_property
    def best_coin(self) -> tuple[int, int]:
        """The coin that brings most for its weight."""
        return min(self.coins.items(), key=lambda coin: Fraction(coin[1], coin[0]))

    def _grow(self, last: int) -> None:
        """Extend the table of the least weight for each load; `beyond` or more where none reaches it."""
        steps = [(amount // self.grain, weight) for amount, weight in self.coins.items()]
        table = self._table
        spend("places", max(last + 1 - len(self._table), 0) * len(steps) // 4)
        for load in range(len(table), last + 1):
            table.append(
                min([table[load - size] + weight for size, weight in steps if size <= load], default=self.beyond)
            )
