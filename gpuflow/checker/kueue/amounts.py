"""Amounts as Kueue counts them: whole numbers of 64 bits, thousandths for cpu, the largest meaning "no limit"."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Final

from gpuflow.kubernetes.resources import is_hugepages
from gpuflow.quantity import MAX_INT64, MICRO, NANO, Format, Quantity

UNLIMITED: Final = MAX_INT64
LEAST: Final = -MAX_INT64 - 1

FlavorResource = tuple[str, str]
"""The name of a flavor and of a resource: what quota is kept by."""

FNV_OFFSET: Final = 0xCBF29CE484222325
FNV_PRIME: Final = 0x100000001B3
WORD: Final = 2**64 - 1


def clamp(amount: int) -> int:
    return min(max(amount, LEAST), UNLIMITED)


def plus(left: int, right: int) -> int:
    """A sum that never wraps around; anything and no limit is no limit."""
    if left == UNLIMITED or right == UNLIMITED:
        return UNLIMITED
    total = left + right
    return total if LEAST < total < UNLIMITED else clamp(total)


def minus(left: int, right: int) -> int:
    """A difference; no limit less anything finite is no limit."""
    if left == UNLIMITED:
        return 0 if right == UNLIMITED else UNLIMITED
    if right == UNLIMITED:
        return LEAST
    left -= right
    return left if LEAST < left < UNLIMITED else clamp(left)


def quota_amount(resource: str, quantity: Quantity) -> int:
    """A quantity of quota; too large to be counted is no limit."""
    if resource == "cpu":
        return UNLIMITED if quantity.nano >= MAX_INT64 // 1000 * NANO else quantity.milli
    return clamp(quantity.value)


def request_amount(resource: str, quantity: Quantity) -> int:
    """A request, rounded up."""
    return clamp(quantity.milli if resource == "cpu" else quantity.value)


def amounts_of(resources: Mapping[str, Quantity]) -> dict[str, int]:
    """What a pod requests, or a node has, as whole numbers."""
    return {name: request_amount(name, quantity) for name, quantity in resources.items()}


def exact_amount(resource: str, nano: Fraction) -> int:
    """As `request_amount`, of a product that may be finer than a billionth."""
    units = abs(nano) / (MICRO if resource == "cpu" else NANO)
    rounded = -(-units.numerator // units.denominator)
    return clamp(rounded if nano >= 0 else -rounded)


def amount_text(resource: str, amount: int, *, is_quota: bool = True) -> str:
    """An amount as Kueue prints it."""
    if is_quota and amount == UNLIMITED:
        return "<unlimited>"
    if resource == "cpu":
        return str(Quantity.from_nano(amount * MICRO))
    if resource in ("memory", "ephemeral-storage") or is_hugepages(resource):
        # Kueue reads back what it printed: below 1Ki that changes the notation.
        return Quantity(str(Quantity.from_units(amount, Format.BINARY_SI))).text
    return str(Quantity.from_units(amount))


@lru_cache(maxsize=4096)
def visiting_key(resource: str) -> tuple[int, str]:
    """Kueue goes through resources in the order of the FNV-1a hash of their names."""
    value = FNV_OFFSET
    for byte in resource.encode():
        value = (value ^ byte) * FNV_PRIME & WORD
    return value, resource


def in_visiting_order(amounts: dict[str, int]) -> dict[str, int]:
    return {name: amounts[name] for name in sorted(amounts, key=visiting_key)}
