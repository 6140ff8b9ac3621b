"""Everything of a pipeline that may lie in the same bins, gathered once and asked about for each kind of pod in it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from gpuflow.checker.contention.bins import Amounts, Others
from gpuflow.checker.contention.concurrency import Crowd, Load, Worst
from gpuflow.checker.contention.pending import Rivals


@dataclass(frozen=True, slots=True)
class Company:
    """Pods of some steps that may lie in the same bins."""

    steps: tuple[str, ...]
    amounts: Amounts
    """What one of them weighs."""
    pods: int = 1
    """How many one copy of a step has."""


class Gathering:
    """Companies that share bins. What is found out about them is kept: many kinds of pods ask the same.

    One gathering belongs to one crowd, with or without caps.
    """

    def __init__(self, members: Iterable[Company]) -> None:
        self.members = tuple(members)
        self._loads: dict[str, Load] = {}
        self._worst: dict[tuple[str, int | None], Worst] = {}
        self._totals: dict[str, int | None] = {}
        self._others: dict[int, Others] = {}

    @cached_property
    def others(self) -> Others:
        return Others(each.amounts for each in self.members)

    def others_with(self, rivals: Rivals) -> Others:
        """The same, with those who may take places first."""
        if id(rivals) not in self._others:
            self._others[id(rivals)] = Others((*self.others.kinds, *rivals.kinds))
        return self._others[id(rivals)]

    def total(self, key: str, crowd: Crowd) -> int | None:
        """What all of it weighs, or more; `None` when that is not known, or is no bound under a cap."""
        if crowd.cap is not None:
            return None
        if key not in self._totals:
            self._totals[key] = crowd.total(self._load(key))
        return self._totals[key]

    def worst(self, key: str, crowd: Crowd) -> Worst:
        """The most that is alive at once in one run."""
        if (key, crowd.cap) not in self._worst:
            self._worst[key, crowd.cap] = crowd.worst(self._load(key))
        return self._worst[key, crowd.cap]

    def beside(self, steps: frozenset[str]) -> Gathering:
        """What of it belongs to these steps."""
        return Gathering(
            Company(tuple(step for step in each.steps if step in steps), each.amounts, each.pods)
            for each in self.members
            if not steps.isdisjoint(each.steps)
        )

    def _load(self, key: str) -> Load:
        """What a copy of each step weighs."""
        if key not in self._loads:
            amounts = ((each.steps, each.amounts.get(key, 0) * each.pods) for each in self.members)
            self._loads[key] = tuple((steps, amount) for steps, amount in amounts if amount)
        return self._loads[key]
