"""What lived at the same time, against what was said."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpuflow.demands.peaks import Bound
from gpuflow.quantity import Quantity
from proofs.readers.watching import Place

Costs = Mapping[str, Quantity]


def most(place: Place, engine: str) -> dict[str, Quantity]:
    """The most of each quota key that lived at once. Daemons count until they are gone, as they do on a quota."""
    found: dict[str, Quantity] = {}
    live: dict[str, Costs] = {}
    for seen in sorted(place.log, key=lambda each: each.version):
        if seen.over is not None:
            continue
        if seen.lives and engine in seen.costs:
            live[seen.pod] = seen.costs[engine]
        else:
            live.pop(seen.pod, None)
        for key, amount in _sum(live.values()).items():
            found[key] = max(found.get(key, Quantity.zero), amount)
    return found


def _sum(costs: Iterable[Costs]) -> dict[str, Quantity]:
    total: dict[str, Quantity] = {}
    for each in costs:
        for key, amount in each.items():
            total[key] = total.get(key, Quantity.zero) + amount
    return total


def exceeded(seen: Costs, bounds: Mapping[str, Bound]) -> dict[str, tuple[Quantity, Quantity]]:
    """The keys of which more lived at once than was said, with both amounts. A key that was not named is nothing."""
    found = {}
    for key, amount in seen.items():
        bound = bounds.get(key)
        stated = Quantity.zero if bound is None else bound.value
        if stated is not None and amount > stated:
            found[key] = amount, stated
    return found


def reached(seen: Costs, bounds: Mapping[str, Bound]) -> dict[str, bool]:
    """Of the keys whose peak is exact, whether it was seen."""
    return {
        key: seen.get(key, Quantity.zero) == bound.value
        for key, bound in bounds.items()
        if bound.bound == "exact" and bound.value
    }
