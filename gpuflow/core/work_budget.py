"""How much one check may work out. Work is counted, never timed: the same input gets the same answer on every machine.

What is not decided within its part is *unknown*, with the reason. The parts are far larger than what documents of
people need; together they keep a check within some seconds.

    with limited():
        spend("places", len(bins))  # TooLarge: say that it is not known, and why
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

LIMITS: Final[Mapping[str, int]] = {
    "moments": 2_000_000,  # arcs of graphs, to find the worst moments of steps that depend on each other
    "places": 1_400_000,  # loads of nodes and flavors, to find how pods can be in each other's way
    "devices": 2_000_000,  # devices that claims are held against
    "patterns": 4_000_000,  # characters times states of regular expressions
}
TOO_LARGE: Final[Mapping[str, str]] = {
    "moments": "the exact worst moment of a graph with so many steps and edges takes too long to work out",
    "places": "how so many different pods, nodes and flavors can be in each other's way takes too long to work out",
    "devices": "the search for devices takes too many steps",
    "patterns": "a pattern that takes too many steps on the values of so many devices",
}
"""Why something is unknown when a part is used up."""


class TooLarge(Exception):
    """A part of the work is used up; the text says what was too large."""

    def __init__(self, part: str) -> None:
        super().__init__(TOO_LARGE[part])
        self.part = part


class Allowance:
    """What is left of each part."""

    def __init__(self, advice: Allowance | None = None, share: int = 1) -> None:
        """`advice`: what may be used up for advice on the same check. `share`: 2 for a half of the whole, and so on."""
        self.advice = advice
        self.most = {part: most // share for part, most in LIMITS.items()}
        self.left = dict(self.most)
        self.kept: dict[object, object] = {}
        """What was found with it and is true for this check only."""


_current: ContextVar[Allowance | None] = ContextVar("allowance", default=None)


@contextmanager
def work_limit(allowance: Allowance | None = None) -> Iterator[None]:
    """The computations inside share one allowance: a new one, or the rest of the given one."""
    token = _current.set(Allowance(Allowance(share=3)) if allowance is None else allowance)
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def limited_advice() -> Iterator[None]:
    """What is worked out inside takes from the part that a check has for advice, so that verdicts never lack it."""
    check = _current.get()
    if check is None:
        yield
        return
    with work_limit(check if check.advice is None else check.advice):
        yield


def spend_work(part: str, amount: int = 1) -> bool:
    """Count so much more work; whether the part is not used up yet. Outside of `work_limit` it never is."""
    allowance = _current.get()
    if allowance is None:
        return True
    allowance.left[part] -= amount
    return allowance.left[part] >= 0


def spend(part: str, amount: int = 1) -> None:
    """The same, with `TooLarge` when the part is used up."""
    if not spend_work(part, amount):
        raise TooLarge(part)


def work_left(part: str) -> int | None:
    """What may still be done; None outside of `work_limit`."""
    allowance = _current.get()
    return None if allowance is None else max(allowance.left[part], 0)


def is_half_used(part: str) -> bool:
    """Whether what is left must do for what matters more."""
    allowance = _current.get()
    return allowance is not None and 2 * allowance.left[part] < allowance.most[part]


def may_advise() -> bool:
    """Whether the verdicts of a check took so little that advice may be looked for as well."""
    return not any(map(is_half_used, LIMITS))


def current() -> Allowance | None:
    """The allowance of the check that is being made."""
    return _current.get()
