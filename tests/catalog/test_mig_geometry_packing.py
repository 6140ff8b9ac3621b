"""Packing uses as few GPUs as brute force does, and every GPU it shows is legal."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuflow import catalog
from tests.catalog import brute_force

MIG_MODELS = catalog.find_models(mig=True)


@st.composite
def requests(draw: st.DrawFn, most: int) -> tuple[catalog.Model, list[str]]:
    model = draw(st.sampled_from(MIG_MODELS))
    names = [profile.name for profile in model.profiles]
    return model, draw(st.lists(st.sampled_from(names), max_size=most))


@settings(deadline=None)
@given(requests(most=7))
def test_no_way_of_dealing_out_the_slices_uses_fewer_gpus(request: tuple[catalog.Model, list[str]]) -> None:
    model, names = request
    packing = catalog.pack(model, names)
    assert packing.exact
    assert len(packing.gpus) == brute_force.fewest_gpus(model, names)


@settings(deadline=None, max_examples=60)
@given(requests(most=36))
def test_three_dozen_slices_are_packed_exactly_and_completely(request: tuple[catalog.Model, list[str]]) -> None:
    model, names = request
    packing = catalog.pack(model, names)
    assert packing.exact
    assert all(arrangement.legal for arrangement in packing.gpus)
    held = [placed.profile.name for arrangement in packing.gpus for placed in arrangement.placements]
    assert Counter(held) == Counter(names)


def test_first_fit_alone_would_waste_a_gpu() -> None:
    """Two 3g on one GPU look full, but one 3g beside four 1g on each of two GPUs holds everything."""
    packing = catalog.pack("a100-80gb", {"3g.40gb": 2, "1g.10gb": 8})
    assert [arrangement.counts for arrangement in packing.gpus] == [{"3g.40gb": 1, "1g.10gb": 4}] * 2


def test_seven_1g_leave_an_eighth_of_the_memory_unused() -> None:
    assert len(catalog.pack("a100-80gb", {"1g.10gb": 7}).gpus) == 1
    assert len(catalog.pack("a100-80gb", {"1g.10gb": 8}).gpus) == 2


@pytest.mark.parametrize(
    ("model", "request_", "gpus"),
    [
        # A 7g shares with nothing, and two 4g never share: 2 + 5, though memory alone would allow 5.
        ("a100-80gb", {"4g.40gb": 5, "7g.80gb": 2}, 7),
        # Only -me may join me.all: six GPUs take 6 of the 8 2g-me, the other two and the four +gfx fill three.
        ("rtx-pro-6000", {"2g.48gb-me": 8, "2g.48gb+me.all": 2, "1g.24gb+me.all": 4, "2g.48gb+gfx": 4}, 9),
        # One 4g; each of four 2g+gfx takes a 1g+me and a 1g-me along.
        ("rtx-pro-6000", {"1g.24gb+me": 4, "2g.48gb+gfx": 4, "1g.24gb-me": 4, "4g.96gb": 1}, 5),
    ],
)
def test_the_search_closes_a_gap_of_two(model: str, request_: dict[str, int], gpus: int) -> None:
    packing = catalog.pack(model, request_)
    assert len(packing.gpus) == gpus
    assert packing.exact


def test_media_slices_need_a_gpu_each() -> None:
    assert len(catalog.pack("h100", {"1g.10gb+me": 3, "1g.10gb": 18}).gpus) == 3


def test_thousands_of_slices_are_packed_without_search() -> None:
    packing = catalog.pack("a100-80gb", {"3g.40gb": 700, "1g.10gb": 3000})
    assert len(packing.gpus) == packing.at_least == 729


def test_a_search_that_runs_out_of_steps_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    request = {"4g.40gb": 1, "3g.40gb": 3, "2g.20gb": 3, "1g.20gb": 3, "1g.10gb": 4}
    proven = catalog.pack("a100-80gb", request)
    monkeypatch.setattr("gpuflow.catalog.mig_geometry.SEARCH_LIMIT", 0)
    stopped = catalog.pack("a100-80gb", request)
    assert proven.exact
    assert stopped.at_least <= len(proven.gpus) <= len(stopped.gpus)
    assert stopped.exact == (stopped.at_least == len(stopped.gpus))


def test_nothing_needs_no_gpu() -> None:
    packing = catalog.pack("a100-80gb", [])
    assert packing.gpus == ()
    assert packing.exact


def test_an_unknown_slice_is_refused() -> None:
    with pytest.raises(catalog.UnknownProfile):
        catalog.pack("a100-80gb", ["1g.5gb"])
