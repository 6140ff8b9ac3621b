"""MIG geometry the slow and obvious way, sharing nothing with the code under test but the catalog's rows."""

from __future__ import annotations

from collections import Counter
from functools import cache

from gpuflow.catalog.catalog import Mig, Model, Profile

Multiset = frozenset[tuple[str, int]]


def multiset(names: list[str]) -> Multiset:
    return frozenset(Counter(names).items())


@cache
def placeable(model: Model) -> frozenset[Multiset]:
    """Every multiset that some picture of the memory grid shows, whatever the maxima and engines say."""
    mig = model.mig
    assert mig is not None
    found: set[Multiset] = set()
    seen: set[tuple[int, Multiset]] = set()

    def walk(position: int, names: list[str]) -> None:
        key = (position, multiset(names))
        if key in seen:
            return
        seen.add(key)
        if position == mig.grid:
            found.add(key[1])
            return
        walk(position + 1, names)
        for profile in mig.profiles:
            if position in profile.starts and position + profile.size <= mig.grid:
                walk(position + profile.size, [*names, profile.name])

    walk(0, [])
    return frozenset(found - {frozenset()})


@cache
def legal(model: Model) -> frozenset[Multiset]:
    """The placeable multisets within every maximum and every engine total."""
    mig = model.mig
    assert mig is not None
    profiles = {profile.name: profile for profile in mig.profiles}
    return frozenset(chosen for chosen in placeable(model) if _affordable(chosen, profiles, mig))


def maximal(sets: frozenset[Multiset]) -> frozenset[Multiset]:
    """The multisets that no other one of the family contains."""
    counted = [Counter(dict(chosen)) for chosen in sets]
    return frozenset(frozenset(chosen.items()) for chosen in counted if not any(chosen < other for other in counted))


def fewest_gpus(model: Model, names: list[str]) -> int:
    """The least number of GPUs, by trying every way to deal the slices out."""
    allowed = legal(model)
    best = len(names)

    def deal(index: int, gpus: list[list[str]]) -> None:
        nonlocal best
        if len(gpus) >= best:
            return
        if index == len(names):
            best = len(gpus)
            return
        for gpu in gpus:
            gpu.append(names[index])
            if multiset(gpu) in allowed:
                deal(index + 1, gpus)
            gpu.pop()
        deal(index + 1, [*gpus, [names[index]]])

    deal(0, [])
    return best


def _affordable(chosen: Multiset, profiles: dict[str, Profile], mig: Mig) -> bool:
    if any(count > profiles[name].max for name, count in chosen):
        return False
    return all(
        sum((getattr(profiles[name].engines, engine) or 0) * count for name, count in chosen) <= total
        for engine, total in mig.totals.known_counts().items()
    )
