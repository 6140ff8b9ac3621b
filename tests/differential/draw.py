"""Random choices by name. Everything a case is made of comes from one seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

Item = TypeVar("Item")


class Draw:
    """A source of choices: the same seed gives the same case on every machine."""

    def __init__(self, seed: int | str) -> None:
        # Text seeds are hashed the same way in every Python and on every machine; tuples and objects are not.
        self._random = random.Random(str(seed))

    def chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def pick(self, items: Sequence[Item]) -> Item:
        return items[self._random.randrange(len(items))]

    def number(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def some(self, items: Sequence[Item], low: int = 0, high: int | None = None) -> list[Item]:
        """A few of the items, in their own order."""
        count = self.number(low, len(items) if high is None else min(high, len(items)))
        chosen = set(self._random.sample(range(len(items)), count))
        return [item for index, item in enumerate(items) if index in chosen]

    def weighted(self, weights: Mapping[Item, float]) -> Item:
        return self._random.choices(list(weights), list(weights.values()))[0]

    def times(self, weights: Mapping[int, float], make: Callable[[int], Item]) -> list[Item]:
        """So many items, numbered from 0."""
        return [make(index) for index in range(self.weighted(weights))]


def without_none(**fields: Any) -> dict[str, Any]:
    """The fields that have a value."""
    return {name: value for name, value in fields.items() if value is not None}
