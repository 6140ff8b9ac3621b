"""Cases drawn at random: a step with random budgets, and faults until they are spent or the program succeeds."""

from __future__ import annotations

import random
from collections.abc import Iterator

from .contract import Case, Engine, faults

OWN_ENDS = ("exit:1", "exit:3", "kill", "oom", "oomgroup", "oomgroup", "timeout:143", "timeout:never", "disk")
TAKEN = (
    "delete:143",
    "delete:0",
    "delete:never",
    "force:143",
    "evict:143",
    "evict:0",
    "taint:143",
    "crash",
    "supervisor",
)
BEFORE = ("init-evict", "init-delete")
OWN_ENDS_ALONE = ("exit:1", "kill", "oom", "oomgroup", "timeout:143", "timeout:never", "disk")
TAKEN_ALONE = ("delete:143", "evict:143", "taint:143")
FORCED_ALONE = ("force:143",)
DISKS = ("disk:volume", "disk:layer", "disk:pod")


def sequences(engines: tuple[Engine, ...], seed: int, count: int) -> Iterator[Case]:
    """Cases whose faults add up to at least `count`, in turns on each engine."""
    drawn, number = 0, 0
    while drawn < count:
        engine = engines[number % len(engines)]
        number += 1
        # One generator for each case: a case is the same whatever the engines and the count are.
        case = _drawn(random.Random(f"{seed}/{engine}/{number}"), f"seq-{seed}-{number}-{engine}", engine)
        drawn += faults(case)
        yield case


def _drawn(chance: random.Random, name: str, engine: Engine) -> Case:
    disk = chance.choice(DISKS)
    kind = chance.random()
    if kind < 0.7:
        failures, interruptions = chance.randint(0, 2), chance.randint(1, 3)
        final = (3,) if chance.random() < 0.3 else ()
        case = Case(name, engine, "supervised", failures, interruptions, (), final=final)
        pools = (OWN_ENDS, TAKEN, BEFORE)
    elif kind < 0.85 or engine == "argo":
        # What Argo alone can keep exactly is one number.
        case = Case(name, engine, "alone", chance.randint(1, 3), 0, (), plain=True)
        pools = (OWN_ENDS_ALONE, TAKEN_ALONE, ())
    else:
        case = Case(name, engine, "alone", chance.randint(0, 2), chance.randint(0, 2), ())
        pools = (OWN_ENDS_ALONE, (*TAKEN_ALONE, *FORCED_ALONE), BEFORE)
    return _with_acts(chance, case, pools, disk)


def _with_acts(chance: random.Random, case: Case, pools: tuple[tuple[str, ...], ...], disk: str) -> Case:
    own, taken, before = pools
    budget = case.failures + case.interruptions
    length = chance.randint(min(2, budget + 1), budget + 1)
    acts: list[str] = []
    while len(acts) < length:
        draw = chance.random()
        pool = own if draw < 0.5 else taken if draw < 0.9 or not before else before
        act = chance.choice(pool)
        acts.append(disk if act == "disk" else act)
    ended = Case(**{**vars(case), "acts": tuple(acts)})
    # What comes after its end never happens.
    return Case(**{**vars(ended), "acts": tuple(acts[: faults(ended)])})
