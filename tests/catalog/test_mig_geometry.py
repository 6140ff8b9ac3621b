"""Which slices lie together on one GPU: checked against every picture of the grid."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuflow import catalog
from gpuflow.catalog import mig_geometry
from tests.catalog import brute_force

MIG_MODELS = catalog.find_models(mig=True)


@st.composite
def requests(draw: st.DrawFn, most: int = 9) -> tuple[catalog.Model, list[str]]:
    model = draw(st.sampled_from(MIG_MODELS))
    names = [profile.name for profile in model.profiles]
    return model, draw(st.lists(st.sampled_from(names), max_size=most))


def named(model: catalog.Model, counts: tuple[int, ...]) -> brute_force.Multiset:
    pairs = zip(model.profiles, counts, strict=True)
    return frozenset((profile.name, count) for profile, count in pairs if count)


@pytest.mark.parametrize(
    ("id", "placed", "legal", "maximal"),
    [
        ("a100-40gb", 203, 127, 44),
        ("a100-80gb", 203, 127, 44),
        ("h100-80gb", 203, 127, 44),
        ("h200-141gb", 203, 127, 44),
        ("a30-24gb", 30, 19, 8),
        ("rtx-pro-6000-96gb", 221, 114, 64),
    ],
)
def test_the_number_of_geometries_is_the_published_one(id: str, placed: int, legal: int, maximal: int) -> None:
    model = catalog.model(id)
    assert len(brute_force.placeable(model)) == placed
    assert len(brute_force.legal(model)) == legal
    assert len(brute_force.maximal(brute_force.legal(model))) == maximal


@pytest.mark.parametrize("model", MIG_MODELS, ids=lambda model: model.id)
def test_enumeration_finds_what_brute_force_finds(model: catalog.Model) -> None:
    legal = {named(model, counts) for counts in catalog.legal_multisets(model)}
    assert legal == brute_force.legal(model)
    maximal = {named(model, counts) for counts in catalog.maximal_multisets(model)}
    assert maximal == brute_force.maximal(brute_force.legal(model))


def test_the_base_profiles_of_an_a100_have_37_geometries_and_12_full_ones() -> None:
    base = ["1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"]
    assert len(catalog.legal_multisets("a100-40gb", base)) == 37
    assert set(catalog.maximal_multisets("a100-40gb", base)) == {
        (7, 0, 0, 0, 0), (5, 1, 0, 0, 0), (3, 2, 0, 0, 0), (1, 3, 0, 0, 0), (4, 0, 1, 0, 0), (2, 1, 1, 0, 0),
        (0, 2, 1, 0, 0), (0, 0, 2, 0, 0), (3, 0, 0, 1, 0), (1, 1, 0, 1, 0), (0, 0, 1, 1, 0), (0, 0, 0, 0, 1),
    }  # fmt: skip


@settings(deadline=None)
@given(requests())
def test_a_request_is_legal_exactly_when_some_picture_shows_it(request: tuple[catalog.Model, list[str]]) -> None:
    model, names = request
    arrangement = catalog.arrange(model, names)
    assert arrangement.legal == (not names or brute_force.multiset(names) in brute_force.legal(model))
    assert arrangement.legal != bool(arrangement.reasons)


@settings(deadline=None)
@given(requests())
def test_placed_slices_never_overlap(request: tuple[catalog.Model, list[str]]) -> None:
    model, names = request
    arrangement = catalog.arrange(model, names)
    if not arrangement.legal:
        assert arrangement.placements == ()
        return
    assert model.mig is not None
    assert sorted(placed.profile.name for placed in arrangement.placements) == sorted(names)
    units = [unit for placed in arrangement.placements for unit in range(placed.start, placed.end)]
    assert len(units) == len(set(units))
    assert all(unit < model.mig.grid for unit in units)
    assert all(placed.start in placed.profile.starts for placed in arrangement.placements)


@settings(deadline=None)
@given(st.data())
def test_the_order_of_the_request_does_not_matter(data: st.DataObject) -> None:
    model, names = data.draw(requests(most=6))
    shuffled = data.draw(st.permutations(names))
    assert catalog.arrange(model, names) == catalog.arrange(model, shuffled)


def test_a_3g_moves_aside_for_four_1g() -> None:
    arrangement = catalog.arrange("a100-40gb", ["3g.20gb"] + ["1g.5gb"] * 4)
    assert arrangement.legal
    assert {placed.start for placed in arrangement.placements if placed.profile.g == 3} == {4}


def test_counted_slices_mean_the_same_as_repeated_ones() -> None:
    assert catalog.arrange("a30", {"1g.6gb": 2, "2g.12gb": 1}) == catalog.arrange(
        "a30", ["2g.12gb", "1g.6gb", "1g.6gb"]
    )


@pytest.mark.parametrize(
    ("model", "names", "reason"),
    [
        ("a100-80gb", ["1g.10gb"] * 8, "8 x 1g.10gb asked, one a100-80gb holds at most 7"),
        ("a100-80gb", ["3g.40gb", "3g.40gb", "1g.10gb"], "they need 9 memory slices of 8"),
        ("a100-80gb", ["4g.40gb"] + ["1g.10gb"] * 4, "they need 8 compute slices of 7"),
        ("a30", ["1g.6gb+me", "2g.12gb+me"], "2g.12gb+me and 1g.6gb+me need 2 JPEG of 1, 2 OFA of 1"),
        ("rtx-pro-6000", ["1g.24gb+me.all", "1g.24gb"], "need 5 NVDEC of 4, 5 NVENC of 4, 5 JPEG of 4"),
    ],
)
def test_a_refusal_names_the_numbers(model: str, names: list[str], reason: str) -> None:
    arrangement = catalog.arrange(model, names)
    assert not arrangement.legal
    assert any(reason in said for said in arrangement.reasons), arrangement.reasons


def test_slices_that_add_up_but_clash_in_their_starts_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """No GPU of today's catalog has such a pair, so the sums are switched off to reach the starts."""
    monkeypatch.setattr(mig_geometry, "_conflicts", lambda *_: [])
    arrangement = catalog.arrange("a100-80gb", ["4g.40gb", "4g.40gb"])
    assert arrangement.reasons == ("no starts keep them apart: 4g.40gb may start at 0",)
    assert arrangement.placements == ()


def test_an_answer_is_as_sure_as_its_least_sure_profile() -> None:
    assert catalog.arrange("h200", ["1g.18gb"]).confidence == "run"
    assert catalog.arrange("a100-80gb", ["1g.10gb"]).confidence == "seen"
    assert catalog.arrange("a100-80gb", ["1g.10gb", "1g.20gb"]).confidence == "guess"


def test_a_gpu_without_mig_cannot_be_cut() -> None:
    with pytest.raises(catalog.UnknownProfile, match="l4-24gb has no MIG"):
        catalog.arrange("l4", [])
    with pytest.raises(catalog.UnknownProfile, match="l4-24gb has no MIG"):
        catalog.legal_multisets("l4")
