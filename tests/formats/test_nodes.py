"""Values of a document as they are written."""

from __future__ import annotations

from typing import Any

import pytest

from gpuflow.core import yaml_tree
from gpuflow.formats.nodes import as_plain, maps, number_of, plain_value, text_of

WRITTEN = yaml_tree.parse("{n: 1e-3, i: 0x10, none: null, l: [1.50, {a: null}], b: true, t: x}", "x.yaml")


def test_plain_values_have_numbers_and_nulls_or_spellings_and_no_nulls() -> None:
    assert plain_value(WRITTEN) == {"n": 0.001, "i": 16, "none": None, "l": [1.5, {"a": None}], "b": True, "t": "x"}
    assert as_plain(WRITTEN) == {"n": "1e-3", "i": 16, "l": ["1.50", {}], "b": True, "t": "x"}
    assert as_plain(WRITTEN, nulls=True)["none"] is None
    for plain in (plain_value(WRITTEN), as_plain(WRITTEN)):
        assert {type(each) for each in (plain, plain["i"], plain["l"])} == {dict, int, list}


@pytest.mark.parametrize(
    ("value", "text", "number"),
    [
        (None, None, None),
        (True, "true", None),
        (WRITTEN["n"], "1e-3", None),
        (7, "7", 7),
        ("+7", "+7", 7),
        ("٣", "٣", None),
        (2**63, str(2**63), None),
        (-(2**63), str(-(2**63)), -(2**63)),
        ([], None, None),
        ({}, None, None),
    ],
)
def test_a_scalar_is_the_text_that_go_makes_of_it_and_a_number_what_go_can_hold(
    value: Any, text: str | None, number: int | None
) -> None:
    assert (text_of(value), number_of(value)) == (text, number)


def test_what_is_no_map_in_a_list_counts_as_absent() -> None:
    assert maps([{"a": 1}, None, 3, [{}], {}]) == [{"a": 1}, {}]
    assert maps({"a": {}}) == maps(None) == []
