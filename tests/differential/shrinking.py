"""A smaller case that still shows the same thing: leave out one key or one item at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

Check = Callable[[Sequence[Any]], Sequence[bool]]
"""Tells of each case whether it still shows the difference. Many are asked at once, because that is quicker."""


def shrink(case: Any, shows: Check, keep: frozenset[str] = frozenset()) -> Any:
    """The case after every deletion that keeps the difference has been made; the keys in `keep` stay."""
    at = 0
    while True:
        smaller = list(deletions(case, keep))
        kept = next((i for i, good in _from(at, shows(smaller)) if good), None)
        if kept is None:
            return case
        case = smaller[kept]
        # What was needed before the deletion is needed after it, most of the time: go on from the same place.
        at = kept


def _from(start: int, verdicts: Sequence[bool]) -> Iterator[tuple[int, bool]]:
    numbered = list(enumerate(verdicts))
    yield from numbered[start:]
    yield from numbered[:start]


def deletions(value: Any, keep: frozenset[str] = frozenset()) -> Iterator[Any]:
    """Every copy of a JSON value that lacks one key or one item, the largest parts first.

    A key in `keep` is never left out, and a list under it never emptied: without them the case would be a
    different question.
    """
    if isinstance(value, dict):
        for key in value:
            if key not in keep:
                yield {other: kept for other, kept in value.items() if other != key}
        for key, inner in value.items():
            for smaller in deletions(inner, keep):
                if smaller or key not in keep or not isinstance(inner, list):
                    yield {**value, key: smaller}
    elif isinstance(value, list):
        for index in range(len(value)):
            yield value[:index] + value[index + 1 :]
        for index, inner in enumerate(value):
            for smaller in deletions(inner, keep):
                yield [*value[:index], smaller, *value[index + 1 :]]
