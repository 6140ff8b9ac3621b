"""A memory need is met by what a process really gets, never by a name."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuflow import catalog

needs = st.floats(0, 300, allow_nan=False)


def test_the_number_in_the_name_is_not_enough() -> None:
    assert str(catalog.fit(16, of="h200").offers[0]) == "h200-141gb 1g.18gb"
    assert str(catalog.fit(16.01, of="h200").offers[0]) == "h200-141gb 1g.35gb"
    assert catalog.fit(24, of="l4").offers == ()


def test_the_smaller_of_two_figures_decides() -> None:
    assert str(catalog.fit(9.5, of="a100-80gb").offers[0]) == "a100-80gb 1g.10gb"
    assert str(catalog.fit(9.6, of="a100-80gb").offers[0]) == "a100-80gb 1g.20gb"


@settings(deadline=None)
@given(needs)
def test_every_offer_has_the_memory_and_unknown_ones_are_apart(need: float) -> None:
    answer = catalog.fit(need, every=True)
    assert all(offer.usable_gib is not None and offer.usable_gib >= need for offer in answer.offers)
    assert all(offer.usable_gib is None for offer in answer.unknown)
    sizes = [offer.usable_gib for offer in answer.offers]
    assert sizes == sorted(sizes, key=lambda size: size or 0)


@settings(deadline=None)
@given(needs)
def test_one_answer_per_model_and_none_smaller_was_left_out(need: float) -> None:
    short, full = catalog.fit(need), catalog.fit(need, every=True)
    ids = [offer.model.id for offer in short.offers]
    assert len(ids) == len(set(ids))
    assert set(ids) == {offer.model.id for offer in full.offers}
    for offer in short.offers:
        sizes = [other.usable_gib for other in full.offers if other.model.id == offer.model.id]
        assert offer.usable_gib == min(size for size in sizes if size is not None)


def test_of_equal_slices_the_one_with_less_compute_and_no_extras_is_offered() -> None:
    assert str(catalog.fit(30, of="h200").offers[0]) == "h200-141gb 1g.35gb"
    assert str(catalog.fit(20, of="rtx-pro-6000").offers[0]) == "rtx-pro-6000-96gb 1g.24gb"


def test_whole_gpus_or_slices_can_be_asked_for_alone() -> None:
    assert all(offer.profile is None for offer in catalog.fit(20, mig=False).offers)
    assert all(offer.profile is not None for offer in catalog.fit(20, mig=True).offers)


def test_an_unknown_slice_is_mentioned_only_where_it_would_be_smaller() -> None:
    answer = catalog.fit(24)
    assert "h100-94gb 1g.24gb" in map(str, answer.unknown)
    assert not any(offer.model.id == "b200-180gb" for offer in answer.unknown)


def test_a_slice_says_how_many_one_gpu_gives() -> None:
    assert catalog.fit(16, of="h200").offers[0].per_gpu == 7
    assert catalog.fit(139, of="h200", mig=False).offers[0].per_gpu == 1
