"""Which MIG slices one GPU can hold at the same time, and the fewest GPUs that hold a list of slices.

A multiset of profiles is legal when

1. no profile is there more often than its maximum,
2. every instance can be given one of its starts so that the memory intervals do not overlap,
3. the engines (SM, NVDEC, NVENC, JPEG, OFA) of the instances do not add up to more than the GPU has.

The order in which instances are created matters on hardware (a 3g at 0 leaves room for three 1g, at 4 for four),
so a legal answer always comes with a placement that works.

`pack` first fills GPUs in two quick ways, and adds up memory, compute, engines and maxima to a number of GPUs that no
answer can beat. Where the two differ, an exhaustive search over the ways to fill one GPU closes the gap. It remembers
what it has refuted and stops after `SEARCH_LIMIT` steps: then the quick answer stands, `exact` is false, and the true
number lies between `at_least` and the answer. A few dozen slices end far below the limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from gpuflow.catalog.catalog import Confidence, Mig, Model, Profile, UnknownProfile, lowest_confidence
from gpuflow.catalog.catalog import model as find_model
from gpuflow.catalog.catalog import profile as find_profile

ENGINE_NAMES: Final = {"sm": "SM", "ce": "CE", "dec": "NVDEC", "enc": "NVENC", "jpeg": "JPEG", "ofa": "OFA"}

Slices = Iterable[str] | Mapping[str, int]
"""Profile names, repeated or counted."""


@dataclass(frozen=True, slots=True)
class Placement:
    """One instance on the memory grid: slices `start` up to, not including, `end`."""

    profile: Profile
    start: int

    @property
    def end(self) -> int:
        return self.start + self.profile.size


@dataclass(frozen=True, slots=True)
class Arrangement:
    """The answer for one GPU: where each slice lies, or every reason why they cannot lie together."""

    model: Model
    profiles: tuple[Profile, ...]
    """What was asked, largest first."""
    placements: tuple[Placement, ...]
    """By start; empty when it is not legal."""
    reasons: tuple[str, ...]

    @property
    def legal(self) -> bool:
        return not self.reasons

    @property
    def counts(self) -> dict[str, int]:
        """What was asked, counted by profile name."""
        return dict(Counter(profile.name for profile in self.profiles))

    @property
    def compute(self) -> int:
        """Compute slices asked for."""
        return sum(profile.g for profile in self.profiles)

    @property
    def memory(self) -> int:
        """Memory slices asked for."""
        return sum(profile.size for profile in self.profiles)

    @property
    def confidence(self) -> Confidence:
        """The answer is no surer than the least sure profile in it."""
        return lowest_confidence(profile.confidence for profile in self.profiles)


def arrange(of: str | Model, slices: Slices) -> Arrangement:
    """Whether one GPU can hold these slices, where they lie, or why not.

    Raises `UnknownProfile` for a profile the model does not have, or a model without MIG.
    """
    owner = find_model(of)
    mig = mig_of(owner)
    asked = tuple(sorted(read_profiles(owner, slices), key=_largest_first))
    reasons = tuple(_conflicts(owner, mig, asked))
    starts = None if reasons else find_starts([(profile.size, profile.starts) for profile in asked])
    if not reasons and starts is None:
        rules = {profile.name: ", ".join(map(str, profile.starts)) for profile in asked}
        places = "; ".join(f"{name} may start at {starts}" for name, starts in rules.items())
        reasons = (f"no starts keep them apart: {places}",)
    placements = [Placement(profile, start) for profile, start in zip(asked, starts or (), strict=False)]
    return Arrangement(owner, asked, tuple(sorted(placements, key=lambda placed: placed.start)), reasons)


def legal_multisets(of: str | Model, among: Iterable[str] | None = None) -> tuple[tuple[int, ...], ...]:
    """Every legal multiset but the empty one, as counts in the order of `among` (default: all profiles)."""
    owner = find_model(of)
    mig_of(owner)
    names = [profile.name for profile in owner.profiles] if among is None else list(among)
    return _legal_multisets(owner, tuple(find_profile(owner, name) for name in names))


def maximal_multisets(of: str | Model, among: Iterable[str] | None = None) -> tuple[tuple[int, ...], ...]:
    """The legal multisets to which no further slice (of `among`) can be added."""
    return tuple(_maximal_fills(legal_multisets(of, among)))


def mig_of(owner: Model) -> Mig:
    """The MIG geometry of a model; a model without MIG is an error with a hint."""
    if owner.mig is None:
        message = f"{owner.id} has no MIG and cannot be cut; ask for the whole GPU or a share of it"
        raise UnknownProfile("", owner.id, (), message)
    return owner.mig


def read_profiles(owner: Model, slices: Slices) -> list[Profile]:
    """The profiles asked for, one entry per slice, in the order given."""
    if isinstance(slices, Mapping):
        return [find_profile(owner, name) for name, count in slices.items() for _ in range(count)]
    return [find_profile(owner, name) for name in slices]


def find_starts(shapes: Sequence[tuple[int, tuple[int, ...]]]) -> tuple[int, ...] | None:
    """One start for each `(size, starts)` so that nothing overlaps, or `None`."""
    chosen: list[int] = []

    def fits(index: int, taken: int) -> bool:
        if index == len(shapes):
            return True
        size, starts = shapes[index]
        # Equal neighbors take rising starts: swapping them would be the same picture.
        floor = chosen[-1] if index and shapes[index - 1] == shapes[index] else -1
        for start in starts:
            mask = ((1 << size) - 1) << start
            if start > floor and not taken & mask:
                chosen.append(start)
                if fits(index + 1, taken | mask):
                    return True
                chosen.pop()
        return False

    return tuple(chosen) if fits(0, 0) else None


@cache
def _legal_multisets(owner: Model, profiles: tuple[Profile, ...]) -> tuple[tuple[int, ...], ...]:
    mig = mig_of(owner)
    found: list[tuple[int, ...]] = []

    def legal(counts: Sequence[int]) -> bool:
        pairs = zip(profiles, counts, strict=False)
        asked = sorted((profile for profile, count in pairs for _ in range(count)), key=_largest_first)
        fits = find_starts([(profile.size, profile.starts) for profile in asked]) is not None
        return fits and not _conflicts(owner, mig, asked)

    def extend(counts: tuple[int, ...]) -> None:
        if len(counts) == len(profiles):
            if any(counts):
                found.append(counts)
            return
        for count in range(profiles[len(counts)].max + 1):
            # A subset of a legal multiset is legal, so the first refusal ends the row.
            if not legal((*counts, count)):
                break
            extend((*counts, count))

    extend(())
    return tuple(found)


def _largest_first(profile: Profile) -> tuple[int, int, str]:
    return (-profile.size, -profile.g, profile.name)


def _conflicts(owner: Model, mig: Mig, asked: Sequence[Profile]) -> list[str]:
    """Everything that adds up to too much."""
    counts = Counter(profile.name for profile in asked)
    most = {profile.name: profile.max for profile in asked}
    said = [
        f"{count} x {name} asked, one {owner.id} holds at most {most[name]}"
        for name, count in counts.items()
        if count > most[name]
    ]
    memory, compute = sum(p.size for p in asked), sum(p.g for p in asked)
    if memory > mig.grid:
        said.append(f"they need {memory} memory slices of {mig.grid}")
    if compute > mig.slices:
        said.append(f"they need {compute} compute slices of {mig.slices}")
    # Where the slices do not add up their engines hardly can: saying so again helps nobody.
    return said or _engine_conflicts(mig, asked)


def _engine_conflicts(mig: Mig, asked: Sequence[Profile]) -> list[str]:
    short: list[str] = []
    users: dict[str, None] = {}
    for engine, total in mig.totals.known_counts().items():
        needs = {profile.name: profile.engines.known_counts().get(engine, 0) for profile in asked}
        needed = sum(needs[profile.name] for profile in asked)
        if needed > total:
            short.append(f"{needed} {ENGINE_NAMES[engine]} of {total}")
            users |= {name: None for name, count in needs.items() if count}
    return [f"{' and '.join(users)} need {', '.join(short)}"] if short else []


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
    kinds = sorted(set(asked), key=_largest_first)
    if not kinds:
        return Packing(owner, (), 0)
    names = [kind.name for kind in kinds]
    demand = tuple(asked.count(kind) for kind in kinds)
    filled, at_least = _fewest_gpus(kinds, legal_multisets(owner, names), demand)
    gpus = [arrange(owner, dict(zip(names, counts, strict=True))) for counts in sorted(filled, reverse=True)]
    return Packing(owner, tuple(gpus), at_least)


def _fewest_gpus(kinds: Sequence[Profile], legal: Sequence[Counts], demand: Counts) -> tuple[list[Counts], int]:
    weights = _weights(kinds, legal)
    fills = _maximal_fills(legal)
    quick = min(_first_fit(set(legal), demand), _fullest_first(fills, demand), key=len)
    at_least = _lower_bound(weights, demand)
    if len(quick) > DEEPEST_SEARCH:
        return quick, at_least
    search = _Search(weights, fills)
    while at_least < len(quick):
        found = search.find_cover(demand, at_least)
        if found is not None:
            return found, at_least
        if search.is_exhausted:
            break
        at_least += 1
    return quick, at_least


def _weights(kinds: Sequence[Profile], legal: Sequence[Counts]) -> list[tuple[Counts, int]]:
    """What slices weigh, with the most that one legal GPU holds of it: each pair is a lower bound on GPUs."""
    engines = [kind.engines.known_counts() for kind in kinds]
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
    def is_exhausted(self) -> bool:
        return self.steps > SEARCH_LIMIT

    def find_cover(self, demand: Counts, limit: int) -> list[Counts] | None:
        """At most `limit` GPUs that hold exactly `demand`; `None` when there are none, or no steps left."""
        if not any(demand):
            return []
        self.steps += 1
        if self.is_exhausted or _lower_bound(self.weights, demand) > limit or (demand, limit) in self.refuted:
            return None
        for way in _fills_for_demand(self.fills, demand):
            rest = self.find_cover(_minus(demand, way), limit - 1)
            if rest is not None:
                return [way, *rest]
        if not self.is_exhausted:
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
        gpus.append(_fills_for_demand(fills, demand)[0])
        demand = _minus(demand, gpus[-1])
    return gpus


def _fills_for_demand(fills: Sequence[Counts], demand: Counts) -> list[Counts]:
    """How the GPU with the largest slice left can be filled, most slices first. Some GPU must hold that slice, so
    nothing is lost by deciding about that GPU next."""
    largest = next(index for index, count in enumerate(demand) if count)
    ways = {tuple(map(min, fill, demand)) for fill in fills if fill[largest]}
    return sorted(ways, key=lambda counts: (-sum(counts), counts))


def _maximal_fills(legal: Sequence[Counts]) -> list[Counts]:
    """The ways to fill a GPU to which nothing can be added; anything less is covered by one of them."""
    known = set(legal)
    return [counts for counts in legal if not any(_plus(counts, i) in known for i in range(len(counts)))]


def _lower_bound(weights: list[tuple[Counts, int]], demand: Counts) -> int:
    return max(-(-_dot(row, demand) // most) for row, most in weights)


def _plus(counts: Counts, index: int) -> Counts:
    return (*counts[:index], counts[index] + 1, *counts[index + 1 :])


def _minus(left: Counts, right: Counts) -> Counts:
    return tuple(a - b for a, b in zip(left, right, strict=True))


def _dot(left: Counts, right: Counts) -> int:
    return sum(a * b for a, b in zip(left, right, strict=True))
