"""Exact Kubernetes quantities.

A quantity is a number of nano-units and the notation it was written in. Kubernetes never uses floating point
for resources, rounds up whatever is finer than a nano, and prints a canonical form: `1024Ki` is `1Mi`,
`1.5Gi` is `1536Mi`, `0.5` is `500m`. Two quantities are equal when their amounts are, whatever the notation.

Reading follows `resource.ParseQuantity` of Kubernetes 1.36, oddities included: `E` alone is 10**18 while `E3`
is an exponent, an empty number such as `Ki` is zero, binary suffixes are capped at 2**63-1. Two things differ
on purpose. An exponent above 100 is refused (Kubernetes would spend minutes writing out its digits), and
amounts beyond the largest suffix are printed in full (`1000E`; Kubernetes drops the suffix and prints `1`).
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache
from typing import ClassVar, Final, NoReturn

__all__ = ["Format", "Quantity"]


class Format(Enum):
    """The notation a quantity keeps through arithmetic."""

    DECIMAL_SI = "DecimalSI"
    BINARY_SI = "BinarySI"
    DECIMAL_EXPONENT = "DecimalExponent"


NANO: Final = 10**9
MICRO: Final = 10**6
MAX_INT64: Final = 2**63 - 1
MAX_EXPONENT: Final = 100
MAX_LENGTH: Final = 1000
INT64_DIGITS: Final = 18

DECIMAL_SUFFIXES: Final = {
    "n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18,
}  # fmt: skip
BINARY_SUFFIXES: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
DECIMAL_NAMES: Final = {exponent: suffix for suffix, exponent in DECIMAL_SUFFIXES.items()}
BINARY_NAMES: Final = ("", *BINARY_SUFFIXES)

WRONG_FORMAT: Final = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
WRONG_NUMBER: Final = "unable to parse numeric part of quantity"
WRONG_SUFFIX: Final = "unable to parse quantity's suffix"

SHAPE: Final = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)", re.ASCII)
EXPONENT: Final = re.compile(r"[eE]([-+]?[0-9]+)", re.ASCII)


class Quantity:
    """An immutable Kubernetes quantity.

    Takes a string as Kubernetes reads it, an `int` (a JSON number), a `float` by its literal text (`0.1` is
    exactly a tenth, as in a manifest), or another quantity. Raises `ValueError` in Kubernetes' own words.
    """

    __slots__ = ("_canonical", "_text", "format", "nano")

    nano: int
    """The exact amount, in billionths."""
    format: Format
    """The notation it is printed in."""
    _text: str | None
    _canonical: str | None

    zero: ClassVar[Quantity]

    def __new__(cls, value: str | int | float | Quantity) -> Quantity:
        if isinstance(value, Quantity):
            return value
        if isinstance(value, str):
            return _parse(value)
        if isinstance(value, bool):
            return _parse("true" if value else "false")
        if isinstance(value, (int, float)):
            return _parse(repr(value))
        raise ValueError(f"{WRONG_FORMAT}, not a value of type {type(value).__name__}")

    @staticmethod
    def from_nano(nano: int, format: Format = Format.DECIMAL_SI) -> Quantity:
        """The quantity of so many nano-units, in the given notation."""
        return _make(nano, format)

    @staticmethod
    def from_units(units: int, format: Format = Format.DECIMAL_SI) -> Quantity:
        """The quantity of so many whole units, in the given notation."""
        return _make(units * NANO, format)

    @property
    def value(self) -> int:
        """Whole units, rounded away from zero."""
        return _round_up(self.nano, NANO)

    @property
    def milli(self) -> int:
        """Thousandths, rounded away from zero."""
        return _round_up(self.nano, MICRO)

    @property
    def text(self) -> str:
        """What the API server prints for a quantity that it only read.

        It repeats some spellings that are not canonical (`1.500`, `1E3`, `+1Ki`); after any arithmetic it
        prints the canonical form.
        """
        return self._text or str(self)

    def rounded_to_milli(self) -> Quantity:
        """What the API server stores in a resource list: nothing finer than a thousandth, rounded up."""
        if self.nano % MICRO == 0:
            return self
        return _make(_round_up(self.nano, MICRO) * MICRO, self.format)

    def __str__(self) -> str:
        canonical = self._canonical
        if canonical is None:
            canonical = _print(self.nano, self.format)
            _set_canonical(self, canonical)
        return canonical

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"

    def __hash__(self) -> int:
        return hash(self.nano)

    def __bool__(self) -> bool:
        return self.nano != 0

    def __eq__(self, other: object) -> bool:
        return self.nano == other.nano if isinstance(other, Quantity) else NotImplemented

    def __lt__(self, other: Quantity) -> bool:
        return self.nano < other.nano if isinstance(other, Quantity) else NotImplemented

    def __le__(self, other: Quantity) -> bool:
        return self.nano <= other.nano if isinstance(other, Quantity) else NotImplemented

    def __gt__(self, other: Quantity) -> bool:
        return self.nano > other.nano if isinstance(other, Quantity) else NotImplemented

    def __ge__(self, other: Quantity) -> bool:
        return self.nano >= other.nano if isinstance(other, Quantity) else NotImplemented

    def __add__(self, other: Quantity) -> Quantity:
        if not isinstance(other, Quantity):
            return NotImplemented
        return _make(self.nano + other.nano, self.format if self.nano else other.format)

    def __sub__(self, other: Quantity) -> Quantity:
        if not isinstance(other, Quantity):
            return NotImplemented
        return _make(self.nano - other.nano, self.format if self.nano else other.format)

    def __mul__(self, factor: int) -> Quantity:
        if not isinstance(factor, int):
            return NotImplemented
        return _make(self.nano * factor, self.format)

    __rmul__ = __mul__

    def __neg__(self) -> Quantity:
        return _make(-self.nano, self.format)

    def __reduce__(self) -> tuple[object, ...]:
        return _make, (self.nano, self.format, self._text)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a Quantity cannot be changed: {name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a Quantity cannot be changed: {name}")


# Quantity refuses attribute assignment; only the slots themselves still write.
_set_nano = Quantity.__dict__["nano"].__set__
_set_format = Quantity.__dict__["format"].__set__
_set_text = Quantity.__dict__["_text"].__set__
_set_canonical = Quantity.__dict__["_canonical"].__set__


def _make(nano: int, format: Format, text: str | None = None) -> Quantity:
    quantity = object.__new__(Quantity)
    _set_nano(quantity, nano)
    _set_format(quantity, format)
    _set_text(quantity, text)
    _set_canonical(quantity, None)
    return quantity


def _round_up(amount: int, unit: int) -> int:
    """`amount / unit`, rounded away from zero."""
    return -(-amount // unit) if amount >= 0 else amount // unit


@lru_cache(maxsize=65536)
def _parse(text: str) -> Quantity:
    if len(text) > MAX_LENGTH:
        raise ValueError(f"quantity of {len(text)} characters; the longest read is {MAX_LENGTH}")
    match = SHAPE.fullmatch(text)
    if not match or not text:
        raise ValueError(WRONG_FORMAT)
    sign, whole, fraction, suffix = match.groups("")
    empty = not (whole or fraction)
    whole = whole.lstrip("0") or "0"
    exponent = BINARY_SUFFIXES.get(suffix)
    if exponent is not None:
        if empty and exponent > BINARY_SUFFIXES["Ti"]:
            raise ValueError(WRONG_NUMBER)
        nano, format, kept = _binary(whole, fraction, exponent)
    else:
        exponent, format = _decimal_exponent(suffix)
        if empty and exponent < DECIMAL_SUFFIXES["n"]:
            raise ValueError(WRONG_NUMBER)
        nano, kept = _decimal(whole + fraction, exponent, exponent - len(fraction))
    return _make(-nano if sign == "-" else nano, format, text if kept or text == "0" else None)


def _binary(whole: str, fraction: str, exponent: int) -> tuple[int, Format, bool]:
    """Nano-units, notation, and whether Kubernetes keeps the spelling."""
    scaled = int(whole + fraction) << exponent
    nano = _round_up(scaled * NANO, 10 ** len(fraction))
    if 0 < nano < NANO:
        return nano, Format.DECIMAL_SI, False
    short = not fraction and len(whole) + int(exponent * 3 / 10) <= 14
    return min(nano, MAX_INT64 * NANO), Format.BINARY_SI, short and int(whole) & 7 != 0


def _decimal_exponent(suffix: str) -> tuple[int, Format]:
    exponent = DECIMAL_SUFFIXES.get(suffix)
    if exponent is not None:
        return exponent, Format.DECIMAL_SI
    match = EXPONENT.fullmatch(suffix)
    if not match or abs(int(match[1])) > MAX_INT64:
        raise ValueError(WRONG_SUFFIX)
    return int(match[1]), Format.DECIMAL_EXPONENT


def _decimal(digits: str, exponent: int, scale: int) -> tuple[int, bool]:
    """Nano-units of `digits` * 10**`scale`, and whether Kubernetes keeps the spelling."""
    number = int(digits)
    if number == 0:
        return 0, False
    if exponent > MAX_EXPONENT:
        raise ValueError(f"{WRONG_SUFFIX}: exponent {exponent} is above {MAX_EXPONENT}")
    if scale < -9:
        unit = min(-scale - 9, len(digits))
        return _round_up(number, 10**unit), False
    kept = len(digits) <= INT64_DIGITS and scale % 3 == 0 and not digits.endswith("000") and digits[0] != "0"
    return number * 10 ** (scale + 9), kept


def _print(nano: int, format: Format) -> str:
    if nano == 0:
        return "0"
    if format is Format.BINARY_SI:
        if abs(nano) >= 1024 * NANO and nano % NANO == 0:
            return _print_binary(nano // NANO)
        format = Format.DECIMAL_SI
    mantissa, exponent = nano, -9
    while mantissa % 1000 == 0 and not (format is Format.DECIMAL_SI and exponent == 18):
        mantissa //= 1000
        exponent += 3
    if format is Format.DECIMAL_SI:
        return f"{mantissa}{DECIMAL_NAMES[exponent]}"
    return f"{mantissa}e{exponent}" if exponent else str(mantissa)


def _print_binary(units: int) -> str:
    power = 0
    while power < len(BINARY_NAMES) - 1 and units % 1024 == 0:
        units //= 1024
        power += 1
    return f"{units}{BINARY_NAMES[power]}"


Quantity.zero = _parse("0")
