"""What lived at the same time, against what was said."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from gpuflow.demands.peaks import Bound
from gpuflow.quantity import Quantity
from tests.readers.live.watching import Place, Seen

Costs = Mapping[str, Quantity]


@dataclass
class Most:
    """The most of each key that lived at once, in one order of events."""

    counted: dict[str, Quantity] = field(default_factory=dict)
    """Without daemons that Argo had told to end."""
    with_ending: dict[str, Quantity] = field(default_factory=dict)


def most(place: Place, engine: str) -> Most:
    """The worst moment of a run, per quota key.

    Argo tells a daemon to end when the template around it is done, and starts what follows in the same pass, before it
    writes down either. So a daemon was told to end if the next state of the workflow says that it is over.
    """
    found, live = Most(), dict[str, tuple[Seen, Costs]]()
    over = frozenset[str]()
    for seen, following in _in_order(place):
        if seen.over is not None:
            over = seen.over
            continue
        if seen.lives and engine in seen.costs:
            live[seen.pod] = seen, seen.costs[engine]
        else:
            live.pop(seen.pod, None)
        told = over | following
        for into, chosen in (
            (found.counted, [costs for pod, costs in live.values() if not (pod.is_daemon and pod.node in told)]),
            (found.with_ending, [costs for _, costs in live.values()]),
        ):
            for key, amount in _sum(chosen).items():
                into[key] = max(into.get(key, Quantity.zero), amount)
    return found


def _in_order(place: Place) -> Iterator[tuple[Seen, frozenset[str]]]:
    """All changes, each with what is over in the next state of the workflow."""
    ordered = sorted(place.log, key=lambda seen: seen.version)
    following = frozenset[str]()
    found = []
    for seen in reversed(ordered):
        found.append((seen, following))
        if seen.over is not None:
            following = seen.over
    yield from reversed(found)


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
