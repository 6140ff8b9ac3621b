"""Profile names are read as the driver writes them, and everything else is refused with what to write."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuflow import catalog
from gpuflow.catalog.profile_name import ATTRIBUTES, ProfileName, dotted_name, profile_of_dotted

CATALOG_NAMES = sorted({profile.name for model in catalog.models() for profile in model.profiles})

attributes = st.lists(st.sampled_from(ATTRIBUTES), unique=True, min_size=1, max_size=3).map(tuple)
names = st.builds(
    lambda g, gb, sign, chosen: ProfileName(g, gb, chosen if sign == "+" else (), chosen if sign == "-" else ()),
    st.integers(1, 12),
    st.integers(1, 999),
    st.sampled_from(["", "+", "-"]),
    attributes,
)


def read(text: str) -> ProfileName | catalog.BadProfileName:
    try:
        return catalog.parse_profile(text)
    except catalog.BadProfileName as error:
        return error


@settings(deadline=None)
@given(names)
def test_a_name_reads_back_as_it_was_written(name: ProfileName) -> None:
    assert catalog.parse_profile(str(name)) == name


@pytest.mark.parametrize("name", CATALOG_NAMES)
def test_every_name_of_the_catalog_is_grammatical(name: str) -> None:
    assert str(catalog.parse_profile(name)) == name


@pytest.mark.parametrize("name", CATALOG_NAMES)
def test_the_dotted_form_of_resources_leads_back(name: str) -> None:
    assert profile_of_dotted(dotted_name(name)) == name


@settings(deadline=None)
@given(st.text(max_size=12))
def test_any_other_text_is_refused_and_named(text: str) -> None:
    outcome = read(text)
    if isinstance(outcome, catalog.BadProfileName):
        assert outcome.text == text
    assert text in str(outcome)


def test_a_compute_instance_is_refused_with_the_reason() -> None:
    with pytest.raises(catalog.BadProfileName, match=r"compute instance inside 3g\.20gb.*; write 3g\.20gb"):
        catalog.parse_profile("1c.3g.20gb")


@pytest.mark.parametrize(
    ("written", "advice"),
    [
        ("1g.10gb.me", "write 1g.10gb+me"),
        ("mig-1g.10gb", "write 1g.10gb"),
        ("nvidia.com/mig-1g.10gb.me", "write 1g.10gb+me"),
        ("1G.10GB", "write 1g.10gb"),
        (" 1g.10gb", "write 1g.10gb"),
        ("1g.10gb+foo", "after 1g.10gb only"),
        ("1g.10gb+me-gfx", "after 1g.10gb only"),
        ("1g.10", "such as 1g.10gb"),
        ("0g.10gb", "such as 1g.10gb"),
        ("", "such as 1g.10gb"),
    ],
)
def test_a_near_miss_says_what_to_write(written: str, advice: str) -> None:
    with pytest.raises(catalog.BadProfileName) as caught:
        catalog.parse_profile(written)
    assert advice in str(caught.value)


def test_slices_are_counted_as_people_list_them() -> None:
    assert catalog.read_slices(["3g.40gb", "2x1g.10gb", "3 x 1g.10gb+me", "1g.10gb"]) == {
        "3g.40gb": 1,
        "1g.10gb": 3,
        "1g.10gb+me": 3,
    }
    assert catalog.read_slices(["0x1g.10gb"]) == {}
