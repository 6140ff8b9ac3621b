"""Who competes for the same nodes or flavors: other pods of the pipeline, and pending pods and workloads of others.

Pending pods and workloads are in the snapshot already, so they count although no other workload grows. Each takes one
place at most, now or when it becomes free: it can keep a step waiting, but not forever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from gpuflow.checker.contention.bins import Amounts, DistinctPods
from gpuflow.checker.contention.concurrency import Concurrency, Load, PeakLoad

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
