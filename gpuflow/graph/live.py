"""Sets of live steps with their copies, and how to cut one down to a number of pods."""

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple, TypeAlias


class Step(NamedTuple):
    """One step for one key; `place` is its position in the tree.

    `doubts` say why its weight or its copies may turn out smaller.
    """

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


def fit(live: Live, cap: int) -> Live:
    """What is left of `live` when it is cut to `cap` pods, the densest first or the heaviest first."""
    if count_pods(live) <= cap:
        return live
    dense = sorted(live, key=lambda pair: Fraction(pair[0].weight, pair[0].pods or 1), reverse=True)
    heavy = sorted(live, key=lambda pair: pair[0].weight, reverse=True)
    return max(_take(dense, cap), _take(heavy, cap), key=weigh)


def _take(live: Sequence[tuple[Step, int]], room: int) -> Live:
    taken: list[tuple[Step, int]] = []
    for step, copies in live:
        fitting = min(copies, room // step.pods) if step.pods else copies
        if fitting:
            taken.append((step, fitting))
            room -= fitting * step.pods
    return tuple(taken)
