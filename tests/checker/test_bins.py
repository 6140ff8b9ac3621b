"""Can the rest of a pipeline close every bin to one more pod? Against every placement of small scenes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from gpuflow.checker.contention.bins import Bin, Cover, DistinctPods, Question, refusing_resources

Vector = tuple[int, ...]
NAMES = ("gpu", "cpu")


def question(pod: Vector, bins: Sequence[Vector], others: Sequence[Vector]) -> Question:
    """The question that is asked about a crowd: its kinds, and what it weighs altogether."""

    def amounts(vector: Vector) -> dict[str, int]:
        return {**dict(zip(NAMES, vector, strict=True)), "pods": 1}

    kinds = [amounts(other) for other in dict.fromkeys(others)]
    budgets = {name: sum(amounts(other)[name] for other in others) for name in (*NAMES, "pods")}
    asked = {name: amount for name, amount in zip(NAMES, pod, strict=True) if amount}
    free = [Bin(dict(zip(NAMES, each, strict=True))) for each in bins]
    return Question(asked, free, DistinctPods(kinds), dict(budgets))


def placements(bins: Sequence[Vector], others: Sequence[Vector]) -> Iterator[list[Vector]]:
    """What is free after every way in which the others, or some of them, can lie in the bins."""
    for places in product(range(-1, len(bins)), repeat=len(others)):
        left = [list(each) for each in bins]
        for place, other in zip(places, others, strict=True):
            if place >= 0:
                left[place] = [have - take for have, take in zip(left[place], other, strict=True)]
        if all(have >= 0 for each in left for have in each):
            yield [tuple(each) for each in left]


def is_refused(pod: Vector, bins: Sequence[Vector]) -> bool:
    return all(any(have < take for have, take in zip(each, pod, strict=True)) for each in bins)


def can_be_refused(pod: Vector, bins: Sequence[Vector], others: Sequence[Vector]) -> bool:
    return any(is_refused(pod, left) for left in placements(bins, others))


VECTORS = st.tuples(st.integers(0, 4), st.integers(0, 4))


@settings(max_examples=400, deadline=None)
@given(
    st.tuples(st.integers(1, 4), st.integers(0, 4)),
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=3),
    st.lists(VECTORS, max_size=5),
)
def test_no_is_never_wrong(pod: Vector, bins: list[Vector], others: list[Vector]) -> None:
    text_of = refusing_resources(question(pod, bins, others)) is not None
    truth = can_be_refused(pod, bins, others)
    event(f"said {text_of}, true {truth}")
    assert text_of or not truth


@settings(max_examples=300, deadline=None)
@given(
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=3),
    st.integers(0, 5),
)
@example((1, 1), [(8, 8), (8, 8)], 5)
def test_for_copies_of_one_pod_the_answer_is_exact(pod: Vector, bins: list[Vector], others: int) -> None:
    text_of = refusing_resources(question(pod, bins, [pod] * others)) is not None
    assert text_of == can_be_refused(pod, bins, [pod] * others)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 4), st.lists(st.integers(0, 8), max_size=3), st.lists(st.integers(1, 4), max_size=5))
def test_with_one_resource_no_is_never_wrong_and_one_kind_of_company_is_exact(
    pod: int, bins: list[int], others: list[int]
) -> None:
    text_of = (
        refusing_resources(question((pod, 0), [(each, 9) for each in bins], [(each, 0) for each in others])) is not None
    )
    truth = can_be_refused((pod, 0), [(each, 9) for each in bins], [(each, 0) for each in others])
    assert text_of == truth if len(set(others)) <= 1 else text_of or not truth


@pytest.mark.parametrize(
    ("copies", "free", "gpus", "waits"),
    [(16, (8, 8), 1, False), (17, (8, 8), 1, True), (2, (3, 3), 2, False), (3, (3, 3), 2, True), (1, (7, 7), 8, True)],
)
def test_copies_on_nodes_of_whole_gpus(copies: int, free: tuple[int, ...], gpus: int, waits: bool) -> None:
    asked = question((gpus, 0), [(each, 99) for each in free], [(gpus, 0)] * (copies - 1))
    assert (refusing_resources(asked) is not None) is waits


def test_a_crowd_without_bound_closes_what_its_pods_can_close() -> None:
    unbounded = Question({"gpu": 2}, [Bin({"gpu": 8}, 4)], DistinctPods([{"gpu": 1}]), {"gpu": None})
    assert refusing_resources(unbounded) == ("gpu",)
    assert (
        refusing_resources(Question({"gpu": 2}, [Bin({"gpu": 8}, 4)], DistinctPods([{"cpu": 1}]), {"gpu": None}))
        is None
    )


def test_pods_of_eight_cannot_close_a_node_that_has_nine_to_one_gpu() -> None:
    """Only whole pods lie on a node: eight of nine taken leaves one, and sixteen do not fit."""
    assert refusing_resources(Question({"gpu": 1}, [Bin({"gpu": 9})], DistinctPods([{"gpu": 8}]), {"gpu": 80})) is None
    assert refusing_resources(Question({"gpu": 2}, [Bin({"gpu": 9})], DistinctPods([{"gpu": 8}]), {"gpu": 80})) == (
        "gpu",
    )


def test_alike_bins_are_counted_not_repeated() -> None:
    many = Question({"gpu": 1}, [Bin({"gpu": 8}, 5000)], DistinctPods([{"gpu": 1}]), {"gpu": 39_999})
    assert refusing_resources(many) is None
    assert refusing_resources(Question({"gpu": 1}, many.bins, many.others, {"gpu": 40_000})) == ("gpu",)


@settings(deadline=None)
@given(
    st.dictionaries(st.integers(1, 6), st.integers(0, 5), min_size=1, max_size=3),
    st.integers(0, 14),
    st.integers(0, 14),
)
def test_the_lightest_cover_is_what_trying_all_sums_finds(coins: dict[int, int], low: int, high: int) -> None:
    weights: list[int | None] = [0]
    for load in range(1, 15):
        before = [weights[load - coin] for coin in coins if coin <= load]
        ways = [
            least + coins[coin]
            for coin, least in zip([coin for coin in coins if coin <= load], before, strict=True)
            if least is not None
        ]
        weights.append(min(ways, default=None))
    reached = [weight for weight in weights[low : high + 1] if weight is not None]
    assert Cover(coins).least_weight(low, high) == min(reached, default=None)


def test_large_amounts_are_bounded_by_the_cheapest_pod() -> None:
    gib = 2**30
    cover = Cover({3 * gib + 1: 3, 5 * gib: 4})
    assert cover.least_weight(50 * gib, 60 * gib) == 40
    assert cover.least_weight(2, 1) is None
