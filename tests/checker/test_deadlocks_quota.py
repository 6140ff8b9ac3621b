"""Gangs and quota: what never fits whole, and what can block itself forever."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuflow.checker.rules.deadlocks import Part, may_block
from gpuflow.quantity import Quantity
from tests.checker.advice_scenes import of, only, quota, told

GPUS = "requests.nvidia.com/gpu"
GANG = "{command: [x], gpu: a100-80gb x 2, gang: 3}"
ALONE = f"steps: {{a: {GANG}}}"
BESIDE = f"steps: {{a: {GANG}, b: {GANG}}}"
AFTER = f"steps: {{a: {GANG}, b: {{needs: [a], {GANG[1:]}}}"


def test_a_gang_that_is_more_than_the_whole_quota_is_never_admitted() -> None:
    report = told(ALONE, quota({GPUS: "5"}))
    assert report.verdict == "never"
    finding = only(report, "GF501")
    assert f"a gang of 3 pods asks for 6 of {GPUS}, and quota q allows at most 5" in finding.message
    assert finding.hint == "that is 2 such pods: ask for less in it; or have the quota raised"


def test_a_gang_that_fits_is_admitted() -> None:
    assert told(ALONE, quota({GPUS: "6"})).verdict == "always"


def test_two_gangs_that_can_hold_a_part_each_are_warned_about() -> None:
    report = told(BESIDE, quota({GPUS: "8"}))
    finding = only(report, "GF555")
    assert (report.verdict, finding.severity, report.fails({"never"})) == ("may-queue", "error", True)
    assert "gangs a, b: when they run at once, each can take a part of the 8" in finding.message
    assert f"leave 10 of {GPUS} free" in (finding.hint or "")


def test_room_for_all_but_the_last_pods_and_one_more_is_enough() -> None:
    assert of(told(BESIDE, quota({GPUS: "9"})), "GF555") != []
    assert of(told(BESIDE, quota({GPUS: "10"})), "GF555") == []


def test_gangs_one_after_the_other_or_under_a_cap_do_not_block_each_other() -> None:
    assert of(told(AFTER, quota({GPUS: "8"})), "GF555") == []
    assert of(told("parallel: 3\n" + BESIDE, quota({GPUS: "8"})), "GF555") == []


def test_copies_and_runs_of_one_gang_block_each_other_too() -> None:
    fan = f"steps: {{a: {{for_each: {{i: {{range: 2}}}}, {GANG[1:]}}}"
    assert of(told(fan, quota({GPUS: "8"})), "GF555") != []
    assert of(told(ALONE, quota({GPUS: "8"}), runs=2), "GF555") != []
    assert of(told(ALONE, quota({GPUS: "8"})), "GF555") == []


def test_single_pods_never_block_each_other() -> None:
    plain = "steps: {a: {command: [x], gpu: a100-80gb x 2}, b: {command: [x], gpu: a100-80gb x 2}}"
    assert of(told(plain, quota({GPUS: "2"})), "GF555") == []


def _holdings(gangs: list[tuple[int, int]], free: int) -> Iterator[tuple[int, ...]]:
    """Every way in which gangs, given as weight and pods, can have taken some of their pods."""
    if not gangs:
        yield ()
        return
    (weight, pods), *rest = gangs
    for taken in range(min(pods, free // weight) + 1):
        for others in _holdings(rest, free - taken * weight):
            yield (taken, *others)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(2, 4), st.integers(1, 2)), min_size=1, max_size=3),
    st.integers(0, 14),
)
def test_blocking_is_what_brute_force_finds(parts: list[tuple[int, int, int]], free: int) -> None:
    gangs = [(weight, pods) for weight, pods, copies in parts for _ in range(copies)]
    smallest = min(weight for weight, _ in gangs)
    stuck = any(
        all(count < pods for count, (_, pods) in zip(taken, gangs, strict=True))
        and free - sum(count * weight for count, (weight, _) in zip(taken, gangs, strict=True)) < smallest
        for taken in _holdings(gangs, free)
    )
    asked = [Part(Quantity.from_units(weight), pods, copies) for weight, pods, copies in parts]
    assert may_block(asked, Quantity.from_units(free)) == (stuck and len(gangs) > 1 and free >= smallest)
