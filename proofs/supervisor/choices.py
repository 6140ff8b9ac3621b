"""Decisions: replayed as far as they are given, then the plain next step; and the search through all of them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

KINDS = ("start", "switch", "delay", "fault", "crash", "notice", "program")
"""What a decision may cost: another attempt starts early; another thread goes first; an operation takes long; storage
fails, loses its answer or lists late; a supervisor is killed; notice is given; the program fails or is careless."""


class Bounds:
    """How many decisions may differ from the plain next step: of each kind, and together."""

    def __init__(self, total: int, each: Mapping[str, int] | None = None) -> None:
        self.total, self.each = total, dict.fromkeys(KINDS, total) | dict(each or {})

    def __str__(self) -> str:
        limits = ", ".join(f"{kind} {most}" for kind, most in self.each.items() if most < self.total)
        return f"{self.total} together" + (f" ({limits})" if limits else "")


class Choices:
    """The decisions of one execution."""

    def __init__(self, given: Sequence[int], bounds: Bounds, share: tuple[int, int] = (0, 1)) -> None:
        self.given, self.bounds, self.share = given, bounds, share
        self.taken: list[tuple[int, int]] = []
        self.asked = 0
        self.spent: Counter[str] = Counter()

    def affordable(self, kind: str) -> bool:
        if not self.spent and self.asked % self.share[1] != self.share[0]:
            return False  # another process explores what begins to differ here
        return self.spent.total() < self.bounds.total and self.spent[kind] < self.bounds.each[kind]

    def choose(self, costs: Sequence[str]) -> int:
        """0 for the plain next step, or 1 + the place in `costs` of what happens instead."""
        self.asked += 1
        open_to = [index for index, kind in enumerate(costs) if self.affordable(kind)]
        if not open_to:
            return 0
        picked = self._pick(len(open_to) + 1)
        self.taken.append((picked, len(open_to) + 1))
        if picked == 0:
            return 0
        chosen = open_to[picked - 1]
        self.spent[costs[chosen]] += 1
        return chosen + 1

    def _pick(self, count: int) -> int:
        at = len(self.taken)
        return self.given[at] if at < len(self.given) else 0

    def following(self) -> list[int] | None:
        """The decisions of the next execution, depth first; None when this was the last."""
        taken = list(self.taken)
        while taken and taken[-1][0] + 1 >= taken[-1][1]:
            taken.pop()
        return [index for index, _ in taken[:-1]] + [taken[-1][0] + 1] if taken else None

    def path(self) -> list[int]:
        return [index for index, _ in self.taken]


class RandomChoices(Choices):
    """Decisions by chance, for what lies beyond the bound that can be exhausted."""

    def __init__(self, chance: random.Random, bounds: Bounds, rate: float = 0.03) -> None:
        super().__init__((), bounds)
        self.chance, self.rate = chance, rate

    def _pick(self, count: int) -> int:
        return self.chance.randrange(1, count) if self.chance.random() < self.rate else 0


def all_choices(bounds: Bounds, share: tuple[int, int] = (0, 1), first: Sequence[int] = ()) -> Iterator[Choices]:
    """Every execution within the bounds, from `first` on: run each before asking for the next."""
    given: list[int] | None = list(first)
    while given is not None:
        choices = Choices(given, bounds, share)
        yield choices
        assert choices.path()[: len(given)] == given, "the same decisions led elsewhere: something is left to chance"
        given = choices.following()
