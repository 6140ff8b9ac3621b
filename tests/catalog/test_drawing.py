"""Every answer as text: no wider than 100 columns, no color codes, and the picture shows what was placed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuflow import catalog
from gpuflow.catalog import drawing

MIG_MODELS = catalog.find_models(mig=True)


def tidy(text: str) -> bool:
    lines = text.splitlines()
    return all(len(line) <= drawing.WIDTH and line == line.rstrip() for line in lines) and text.isprintable() is (
        len(lines) == 1
    )


@st.composite
def requests(draw: st.DrawFn) -> tuple[catalog.Model, list[str]]:
    model = draw(st.sampled_from(MIG_MODELS))
    names = [profile.name for profile in model.profiles]
    return model, draw(st.lists(st.sampled_from(names), min_size=1, max_size=9))


@pytest.mark.parametrize("model", catalog.models(), ids=lambda model: model.id)
def test_a_model_is_shown_with_its_label_memory_and_profiles(model: catalog.Model) -> None:
    text = drawing.draw_model(model)
    assert tidy(text)
    assert all(product in text for product in model.products)
    assert all(profile.name in text for profile in model.profiles)
    assert ("No MIG" in text) == (model.mig is None)


def test_the_list_has_a_line_for_every_model() -> None:
    text = drawing.draw_models(catalog.models())
    assert tidy(text)
    assert [line.split()[0] for line in text.splitlines()[1:]] == [model.id for model in catalog.models()]
    assert drawing.draw_models(()) == "no GPU model matches"


@settings(deadline=None)
@given(requests())
def test_the_picture_shows_every_slice_over_its_memory(request: tuple[catalog.Model, list[str]]) -> None:
    model, names = request
    arrangement = catalog.arrange(model, names)
    text = drawing.draw_arrangement(arrangement)
    assert tidy(text)
    if not arrangement.legal:
        assert "cannot hold" in text
        assert "the fewest possible" in text
        return
    assert model.mig is not None
    frame, body, _, scale = text.splitlines()[2:6]
    column = {int(number): scale.index(f" {number}") + 1 for number in scale.split()}
    for placed in arrangement.placements:
        left, right = column[placed.start], column[placed.end]
        assert frame[left] == frame[right] == "+"
        assert body[left:right].rstrip() == f"| {placed.profile.name}"
        assert body[right] == "|"
    free = model.mig.grid - arrangement.memory
    assert ("..." in body) == (free > 0)


def test_the_example_of_the_manual() -> None:
    text = drawing.draw_arrangement(catalog.arrange("a100-80gb", ["3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"]))
    assert text.splitlines() == [
        "a100-80gb holds 1 x 3g.40gb, 1 x 2g.20gb, 2 x 1g.10gb",
        "",
        "  +-----------------------+-----------+-----------+-----------------------------------------------+",
        "  | 2g.20gb               | 1g.10gb   | 1g.10gb   | 3g.40gb                                       |",
        "  +-----------------------+-----------+-----------+-----------------------------------------------+",
        "  0           1           2           3           4           5           6           7           8",
        "",
        "COUNT  SLICE    STARTS AT  USABLE EACH  SM EACH",
        "    1  3g.40gb  4            39.25 GiB       42",
        "    1  2g.20gb  0            19.50 GiB       28",
        "    2  1g.10gb  2 3           9.50 GiB       14",
        "",
        "uses 7 of 7 compute slices, 8 of 8 memory slices",
        "placement seen: lgipp of an 80 GB board, without 1g.20gb; same silicon as the 40 GB board",
    ]


def test_a_refusal_shows_the_reasons_and_how_many_gpus_it_takes() -> None:
    text = drawing.draw_arrangement(catalog.arrange("a100-80gb", {"1g.10gb": 8}))
    assert "  - 8 x 1g.10gb asked, one a100-80gb holds at most 7" in text
    assert "2 x a100-80gb: the fewest possible" in text


def test_gpus_cut_alike_are_drawn_once() -> None:
    text = drawing.draw_packing(catalog.pack("a100-80gb", {"1g.10gb": 21, "7g.80gb": 1}))
    assert tidy(text)
    assert "GPU 1: 1 x 7g.80gb" in text
    assert "GPU 2-4, each: 7 x 1g.10gb" in text
    assert text.count("| 1g.10gb") == 7


def test_a_packing_that_is_not_proven_says_so() -> None:
    packing = catalog.pack("a100-80gb", {"1g.10gb": 8})
    doubtful = catalog.Packing(packing.model, packing.gpus, at_least=1)
    assert "at least 1 are needed; not proven fewest" in drawing.draw_packing(doubtful)


@settings(deadline=None)
@given(st.floats(0, 400, allow_nan=False))
def test_a_fit_lists_its_offers_in_order(need: float) -> None:
    answer = catalog.fit(need)
    text = drawing.draw_fit(answer)
    assert tidy(text)
    if not answer.offers:
        assert text.startswith("nothing known has")
        return
    first = text.splitlines()[3].split()
    assert first[0] == answer.offers[0].model.id


def test_instances_are_listed_with_what_kubernetes_can_allocate() -> None:
    text = drawing.draw_instances(catalog.instances())
    assert tidy(text)
    assert len(text.splitlines()) == len(catalog.instances()) + 1
    assert "95690m  1082712Mi" in text
    assert drawing.draw_instances(()) == "no instance type matches"


def test_a_profile_name_is_shown_with_every_model_that_has_it() -> None:
    text = drawing.draw_owners("1g.24gb")
    assert tidy(text)
    assert [line.split()[0] for line in text.splitlines()[1:]] == [m.id for m in catalog.models_with_profile("1g.24gb")]
    assert "3/12" in text
    assert drawing.draw_owners("9g.9gb") == "no model has a MIG profile 9g.9gb"
