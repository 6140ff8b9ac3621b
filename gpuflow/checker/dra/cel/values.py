"""The values of a selector, semantic versions among them, and what its operators and functions make of them.

A runtime error is an answer: `false && error` is false, and an error that is left over ends the allocation.

Mirrors github.com/google/cel-go/interpreter, k8s.io/apiserver/pkg/cel/library.Quantity, SemverLib and
normalizeAndParse, and github.com/blang/semver/v4.Parse and Version.Compare, Kubernetes v1.36.3.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache, partial, total_ordering
from operator import attrgetter
from typing import Any, Final, NamedTuple

from gpuflow.checker.dra.cel import patterns
from gpuflow.checker.dra.cel.patterns import Pattern
from gpuflow.core.work_budget import TooLarge
from gpuflow.quantity import Quantity

SEMVER_NUMBER: Final = r"(0|[1-9][0-9]*)"
SEMVER_IDENTIFIER: Final = r"(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
SEMVER: Final = re.compile(
    rf"{SEMVER_NUMBER}\.{SEMVER_NUMBER}\.{SEMVER_NUMBER}(?:-({SEMVER_IDENTIFIER}(?:\.{SEMVER_IDENTIFIER})*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?",
    re.ASCII,
)
MAX_UINT64: Final = 2**64 - 1


@total_ordering
class Semver:
    """A version; what follows `+` does not count when two are compared."""

    __slots__ = ("_key", "major", "minor", "patch")

    def __init__(self, major: int, minor: int, patch: int, before: tuple[str, ...]) -> None:
        self.major, self.minor, self.patch = major, minor, patch
        # Numbers come before words, and a release after everything that leads up to it.
        words = tuple((0, int(each), "") if each.isdigit() else (1, 0, each) for each in before)
        self._key = (major, minor, patch, not before, words)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Semver) and self._key == other._key

    def __lt__(self, other: Semver) -> bool:
        return self._key < other._key

    def __hash__(self) -> int:
        return hash(self._key)


@lru_cache(maxsize=4096)
def parse_semver(text: str) -> Semver:
    """`ValueError` when the text is no version."""
    found = SEMVER.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no semantic version")
    numbers = [int(found[index]) for index in (1, 2, 3)]
    before = tuple(found[4].split(".")) if found[4] else ()
    if max(*numbers, *(int(each) for each in before if each.isdigit())) > MAX_UINT64:
        raise ValueError(f"{text!r}: a number of it is too large")
    return Semver(numbers[0], numbers[1], numbers[2], before)


def parse_short_semver(text: str) -> Semver:
    """A version that may be short, with a `v` before it or with zeros before its numbers."""
    parts = text.removeprefix("v").split(".", 2)
    parts = [_without_zeros(part) if len(part) > 1 else part for part in parts]
    if len(parts) < 3 and any(sign in parts[-1] for sign in "+-"):
        raise ValueError(f"{text!r}: a short version has no pre-release or build")
    return parse_semver(".".join([*parts, "0", "0"][: max(len(parts), 3)]))


def _without_zeros(part: str) -> str:
    bare = part.lstrip("0")
    return bare if bare[:1] in tuple("0123456789") else f"0{bare}"


Value = Any
"""bool, int, str, Quantity, Semver, or a map of these by domain and name."""


class CelError(Exception):
    """A runtime error of CEL."""


class CelPanic(Exception):
    """A crash of CEL's own code: the whole selector ends in an error, whatever stands beside it."""


class Unsupported(Exception):
    """Text that is not among what is evaluated here; it says which."""


class View(NamedTuple):
    """What a selector sees of a device."""

    driver: str
    allows_multiple: bool
    attributes: Mapping[str, Mapping[str, Value]]
    capacity: Mapping[str, Mapping[str, Quantity]]


def no_overload(name: str) -> CelError:
    return CelError(f"no such overload: {name}")


def is_same(left: Value, right: Value) -> bool:
    """Values of different types are not the same."""
    return type(left) is type(right) and bool(left == right)


def is_equal(left: Value, right: Value) -> bool:
    """As `is_same`, but a version or quantity can only be compared with its like."""
    if type(left) in (Quantity, Semver) and type(right) is not type(left):
        raise no_overload("==")
    return is_same(left, right)


def in_constants(value: Value, items: list[Value]) -> bool:
    """Whether a value is among constants, which are kept in a hash table: a version cannot be looked up there."""
    if type(value) is Semver:
        raise CelPanic("internal error: hash of unhashable type")
    return any(is_same(value, each) for each in items)


ORDER: Final[Mapping[str, Callable[[Value, Value], bool]]] = {
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}
ORDERED: Final = (int, str, bool)


def compare(operator: str, left: Value, right: Value) -> bool:
    if type(left) is not type(right) or type(left) not in ORDERED:
        raise no_overload(operator)
    return ORDER[operator](left, right)


def _compare(left: Value, right: Value) -> int:
    if type(left) is not type(right) or type(left) not in (Quantity, Semver):
        raise no_overload("compareTo")
    return int(left > right) - int(left < right)


def _only(kind: type, name: str, function: Callable[..., Value]) -> Callable[..., Value]:
    """The function for values of one type; other values have no such function."""

    def apply(*given: Value) -> Value:
        if any(type(each) is not kind for each in given):
            raise no_overload(name)
        return function(*given)

    return apply


def pattern(text: str) -> Pattern:
    try:
        return patterns.pattern(text)
    except patterns.NotEvaluated:
        raise Unsupported(f"the pattern {text!r}") from None


def _matches(text: str, expression: str) -> bool:
    if "\n" in text:
        raise Unsupported("a pattern over several lines")
    try:
        return pattern(expression).is_in(text)
    except TooLarge as reason:
        raise Unsupported(str(reason)) from None


class Method(NamedTuple):
    """A function called on a value: the types it may have, that of its argument (if any) and of its answer."""

    receivers: tuple[str, ...]
    takes: bool
    gives: str
    run: Callable[..., Value]


def _change_ascii(change: Callable[[str], str], text: str) -> str:
    return "".join(change(each) if each.isascii() else each for each in text)


AMOUNTS: Final = ("quantity", "semver")
TEXTS: Final = ("string",)
BOTH_TEXTS: Final = "a function of strings"
METHODS: Final[Mapping[str, Method]] = {
    "compareTo": Method(AMOUNTS, True, "int", _compare),
    "isGreaterThan": Method(AMOUNTS, True, "bool", lambda left, right: _compare(left, right) == 1),
    "isLessThan": Method(AMOUNTS, True, "bool", lambda left, right: _compare(left, right) == -1),
    "startsWith": Method(TEXTS, True, "bool", _only(str, BOTH_TEXTS, str.startswith)),
    "endsWith": Method(TEXTS, True, "bool", _only(str, BOTH_TEXTS, str.endswith)),
    "contains": Method(TEXTS, True, "bool", _only(str, BOTH_TEXTS, str.__contains__)),
    "matches": Method(TEXTS, True, "bool", _only(str, BOTH_TEXTS, _matches)),
    "major": Method(("semver",), False, "int", _only(Semver, "major", attrgetter("major"))),
    "minor": Method(("semver",), False, "int", _only(Semver, "minor", attrgetter("minor"))),
    "patch": Method(("semver",), False, "int", _only(Semver, "patch", attrgetter("patch"))),
    "lowerAscii": Method(TEXTS, False, "string", _only(str, "lowerAscii", partial(_change_ascii, str.lower))),
    "upperAscii": Method(TEXTS, False, "string", _only(str, "upperAscii", partial(_change_ascii, str.upper))),
}


def to_quantity(text: Value) -> Quantity:
    if type(text) is not str:
        raise no_overload("quantity")
    try:
        return Quantity(text)
    except ValueError as error:
        raise CelError(str(error)) from None


def to_semver(text: Value, tolerant: Value = False) -> Semver:
    if type(text) is not str or type(tolerant) is not bool:
        raise no_overload("semver")
    try:
        return parse_short_semver(text) if tolerant else parse_semver(text)
    except ValueError as error:
        raise CelError(str(error)) from None


def is_readable(read: Callable[..., Value]) -> Callable[..., bool]:
    """Whether a text can be read as a quantity or version; another value than a text stays an error."""

    def check(text: Value, *more: Value) -> bool:
        if type(text) is not str or any(type(each) is not bool for each in more):
            raise no_overload("is")
        try:
            read(text, *more)
        except CelError:
            return False
        return True

    return check


class Function(NamedTuple):
    """A function: the types of its arguments, the last of which may be left out where `optional`."""

    arguments: tuple[str, ...]
    optional: bool
    gives: str
    run: Callable[..., Value]


FUNCTIONS: Final[Mapping[str, Function]] = {
    "quantity": Function(("string",), False, "quantity", to_quantity),
    "isQuantity": Function(("string",), False, "bool", is_readable(to_quantity)),
    "semver": Function(("string", "bool"), True, "semver", to_semver),
    "isSemver": Function(("string", "bool"), True, "bool", is_readable(to_semver)),
}
