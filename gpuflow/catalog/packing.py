"""The fewest GPUs of one model that hold a list of MIG slices, with a placement for each GPU.

Two quick ways of filling give an answer; adding up memory, compute, engines and maxima gives a number of
GPUs that no answer can beat. Where the two differ, an exhaustive search over the ways to fill one GPU closes
the gap. It remembers what it has refuted and stops after `SEARCH_LIMIT` steps: then the quick answer stands,
`exact` is false, and the true number lies between `at_least` and the answer. A few dozen slices end far below
the limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gpuflow.catalog.catalog import Model, Profile
from gpuflow.catalog.geometry import ENGINE_NAMES, Arrangement, Slices, arrange, legal_multisets, read_profiles
from gpuflow.catalog.lookup import model as find_model

SEARCH_LIMIT: Final = 100_000
DEEPEST_SEARCH: Final = 200
"""GPUs beyond which only the quick ways are tried."""

Counts = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Packing:
    """GPUs that hold the slices, those with the largest slices first."""

    model: Model
    gpus: tuple[Arrangement, ...]
    at_least: int
    """No packing uses fewer GPUs than this."""

    @property
    def exact(self) -> bool:
        """Proven: no packing uses fewer GPUs."""
        return len(self.gpus) == self.at_least


def pack(of: str | Model, slices: Slices) -> Packing:
    """Pack slices onto the fewest GPUs of one model."""
    owner = find_model(of)
    asked = read_profiles(owner, slices)
    kinds = sorted(set(asked), key=lambda kind: (-kind.size, -kind.g, kind.name))
    demand = tuple(asked.count(kind) for kind in kinds)
    if not kinds:
        return Packing(owner, (), 0)
    legal = legal_multisets(owner, [kind.name for kind in kinds])
    filled, at_least = _fewest(kinds, legal, demand)
    names = [kind.name for kind in kinds]
    gpus = [arrange(owner, dict(zip(names, counts, strict=True))) for counts in sorted(filled, reverse=True)]
    return Packing(owner, tuple(gpus), at_least)


def _fewest(kinds: Sequence[Profile], legal: Sequence[Counts], demand: Counts) -> tuple[list[Counts], int]:
    weights = _weights(kinds, legal)
    fills = _fills(legal)
    quick = min(_first_fit(set(legal), demand), _fullest_first(fills, demand), key=len)
    at_least = _bound(weights, demand)
    if len(quick) > DEEPEST_SEARCH:
        return quick, at_least
    search = _Search(weights, fills)
    while at_least < len(quick):
        found = search.cover(demand, at_least)
        if found is not None:
            return found, at_least
        if search.spent:
            break
        at_least += 1
    return quick, at_least


def _weights(kinds: Sequence[Profile], legal: Sequence[Counts]) -> list[tuple[Counts, int]]:
    """What slices weigh, with the most that one legal GPU holds of it: each pair is a lower bound on GPUs."""
    engines = [kind.engines.known() for kind in kinds]
    rows = [
        tuple(kind.size for kind in kinds),
        tuple(kind.g for kind in kinds),
        *(tuple(counts.get(engine, 0) for counts in engines) for engine in ENGINE_NAMES),
        *(tuple(int(kind is other) for other in kinds) for kind in kinds),
    ]
    return [(row, max(_dot(row, counts) for counts in legal)) for row in rows if any(row)]


class _Search:
    """Depth-first search for `limit` GPUs that cover a demand, with a memory of what cannot be covered."""

    def __init__(self, weights: list[tuple[Counts, int]], fills: Sequence[Counts]) -> None:
        self.weights = weights
        self.fills = fills
        self.refuted: set[tuple[Counts, int]] = set()
        self.steps = 0

    @property
    def spent(self) -> bool:
        return self.steps > SEARCH_LIMIT

    def cover(self, demand: Counts, limit: int) -> list[Counts] | None:
        """At most `limit` GPUs that hold exactly `demand`; `None` when there are none, or no steps left."""
        if not any(demand):
            return []
        self.steps += 1
        if self.spent or _bound(self.weights, demand) > limit or (demand, limit) in self.refuted:
            return None
        for way in _ways(self.fills, demand):
            rest = self.cover(_minus(demand, way), limit - 1)
            if rest is not None:
                return [way, *rest]
        if not self.spent:
            self.refuted.add((demand, limit))
        return None


def _first_fit(legal: set[Counts], demand: Counts) -> list[Counts]:
    gpus: list[Counts] = []
    for index, count in enumerate(demand):
        first = 0
        for _ in range(count):
            # A GPU that refused this kind keeps refusing it, so the scan never goes back.
            while first < len(gpus) and _plus(gpus[first], index) not in legal:
                first += 1
            if first == len(gpus):
                gpus.append((0,) * len(demand))
            gpus[first] = _plus(gpus[first], index)
    return gpus


def _fullest_first(fills: Sequence[Counts], demand: Counts) -> list[Counts]:
    gpus: list[Counts] = []
    while any(demand):
        gpus.append(_ways(fills, demand)[0])
        demand = _minus(demand, gpus[-1])
    return gpus


def _ways(fills: Sequence[Counts], demand: Counts) -> list[Counts]:
    """How the GPU with the largest slice left can be filled, most slices first.

    Some GPU must hold that slice, so nothing is lost by deciding about that GPU next.
    """
    largest = next(index for index, count in enumerate(demand) if count)
    ways = {tuple(map(min, fill, demand)) for fill in fills if fill[largest]}
    return sorted(ways, key=lambda counts: (-sum(counts), counts))


def _fills(legal: Sequence[Counts]) -> list[Counts]:
    """The ways to fill a GPU to which nothing can be added; anything less is covered by one of them."""
    known = set(legal)
    return [counts for counts in legal if not any(_plus(counts, i) in known for i in range(len(counts)))]


def _bound(weights: list[tuple[Counts, int]], demand: Counts) -> int:
    return max(-(-_dot(row, demand) // most) for row, most in weights)


def _plus(counts: Counts, index: int) -> Counts:
    return (*counts[:index], counts[index] + 1, *counts[index + 1 :])


def _minus(left: Counts, right: Counts) -> Counts:
    return tuple(a - b for a, b in zip(left, right, strict=True))


def _dot(left: Counts, right: Counts) -> int:
    return sum(a * b for a, b in zip(left, right, strict=True))
