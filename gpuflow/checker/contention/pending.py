"""Pending pods and workloads of others, which may take places before a step of the pipeline does.

Pending pods and workloads are in the snapshot already, so they count although no other workload grows. Each takes one
place at most, now or when it becomes free: it can keep a step waiting, but not forever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpuflow.checker.contention.bins import Amounts

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
        most: dict[tuple[str, str] | None, int | None] = {
            source: self._most.get(source, {}).get(key) for source in totals if source is not None
        }
        return sum(
            total if (bound := most.get(source)) is None else min(total, max(bound, 0))
            for source, total in totals.items()
        )

    def largest(self, keys: Iterable[str]) -> dict[str, int]:
        """The most that one of them takes of each."""
        return {key: max(amounts.get(key, 0) for amounts in self.distinct) for key in keys}

    def asking(self, keys: Iterable[str]) -> tuple[PendingRequest, ...]:
        """Those who ask for some of these resources, the largest first."""
        wanted = tuple(keys)
        found = [each for each in self.members if any(each.amounts.get(key, 0) for key in wanted)]
        return tuple(sorted(found, key=lambda each: ([-each.amounts.get(key, 0) for key in wanted], each.name)))


def named(pending: Iterable[PendingRequest], noun: str) -> str:
    """That they wait: `pod others/p waits`, or `pods others/p, others/q, others/r and 7 more wait`."""
    names = list(dict.fromkeys(each.name for each in pending))
    if len(names) == 1:
        return f"{noun} {names[0]} waits"
    shown, more = names[:MOST_NAMES], len(names) - MOST_NAMES
    if more > 0:
        return f"{noun}s {', '.join(shown)} and {more} more wait"
    return f"{noun}s {', '.join(shown[:-1])} and {shown[-1]} wait"
