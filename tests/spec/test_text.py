"""Text with references in it, parameters and outputs: what they accept and how they are said back.

Tests gpuflow/spec/params.py and gpuflow/spec/text.py.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError

from gpuflow import GpuflowError, loads
from gpuflow.core.yaml_tree import parse_plain
from gpuflow.spec.params import Param, text_of
from gpuflow.spec.text import (
    RUN_DATES,
    ItemRef,
    Join,
    OutputRef,
    ParamRef,
    RunRef,
    Text,
    join,
    parse_text,
    parts_of,
    refs_of,
)
from tests.spec.generated import json_values

refs = st.one_of(
    st.builds(ParamRef, st.just("lr")),
    st.builds(OutputRef, st.just("a"), st.just("x")),
    st.just(ItemRef("i")),
    st.just(RunRef("id")),
    st.builds(
        RunRef, st.sampled_from(sorted(RUN_DATES)), st.none() | st.just("%Y/%m"), st.none() | st.just("Asia/Tokyo")
    ),
)
pieces = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), max_size=6) | refs


def data(text: Text) -> Any:
    return text if isinstance(text, str) else text.canonical()


@given(st.lists(pieces, max_size=6))
def test_a_text_is_read_back_from_what_it_says(parts: list[Any]) -> None:
    text = join(*parts)
    assert parse_text(data(text)) == text
    assert list(refs_of(text)) == [part for part in parts if not isinstance(part, str)]


@given(st.lists(pieces, max_size=6))
def test_joined_literals_are_merged_and_never_empty(parts: list[Any]) -> None:
    found = parts_of(join(*parts))
    if len(found) > 1:
        assert all(part != "" for part in found)
        assert not any(isinstance(a, str) and isinstance(b, str) for a, b in pairwise(found))


@pytest.mark.parametrize("word", ["1e-3", "1.50", "0x1F", "007", "1E5", "+4"])
def test_a_number_reaches_the_container_as_it_was_spelled(word: str) -> None:
    assert parse_text(parse_plain(word)) == word


@pytest.mark.parametrize("text", ["{{ x }}", "$(HOME)", "$$", "'quoted'", "a\nb", "{param: x}", "ünïcödé", "", " "])
def test_ordinary_text_needs_no_escaping(text: str) -> None:
    assert parse_text(text) == text


@pytest.mark.parametrize(
    "value",
    [None, True, [], ["a"], {}, {"param": "a", "item": "b"}, {"parm": "a"}, {"output": "a"}, {"output": "a.b.c"},
     {"output": ".b"}, {"param": ""}, {"param": 5}, {"run": "color"}, {"run": "id", "format": "%Y"},
     {"run": "date", "format": "%V"}, {"run": "date", "format": ""}, {"run": "date", "timezone": "Mars"},
     {"run": "date", "form": "%Y"}, {"run": "date", "param": "x"}, {"join": "ab"}, {"join": [None]}, "\0", "a\ud800"],
)  # fmt: skip
def test_what_is_neither_text_nor_a_reference_is_refused(value: Any) -> None:
    with pytest.raises(PydanticCustomError) as caught:
        parse_text(value)
    assert caught.value.type in ("GF126", "GF141", "GF142", "GF168", "GF331")


def test_a_join_of_one_part_is_that_part() -> None:
    assert parse_text({"join": [{"param": "x"}]}) == ParamRef("x")
    assert parse_text({"join": ["a", {"param": "x"}, "b"]}) == Join(("a", ParamRef("x"), "b"))


@given(json_values)
def test_a_json_parameter_takes_any_json_and_gives_it_back(value: Any) -> None:
    param = Param.model_validate({"type": "json", "default": value})
    assert param.default == value
    assert not param.required


@pytest.mark.parametrize(
    ("short", "kind"),
    [("text", "string"), (5, "int"), (0.5, "float"), (True, "bool"), ([1], "json"), (["a", {}], "json")],
)
def test_a_plain_value_is_a_parameter_with_that_default(short: Any, kind: str) -> None:
    param = Param.model_validate(short)
    assert (param.type, param.default, param.required) == (kind, short, False)


def test_a_parameter_without_a_default_is_required() -> None:
    assert Param.model_validate({"type": "int"}).required
    assert not Param.model_validate({"type": "json", "default": None}).required


@pytest.mark.parametrize(
    ("param", "good", "bad"),
    [
        ({"type": "int", "min": 1, "max": 9}, [1, 9], [0, 10, 1.5, "1", True, None]),
        ({"type": "float"}, [1, 1.5, -3], ["1", True, None]),
        ({"type": "bool"}, [True, False], [0, 1, "true", None]),
        ({"type": "string", "enum": ["a", "b"]}, ["a"], ["c", 1, None]),
        ({"type": "int", "enum": [1, 2]}, [2], [3, True]),
    ],
)
def test_a_parameter_accepts_its_type_enum_and_range_only(
    param: dict[str, Any], good: list[Any], bad: list[Any]
) -> None:
    declared = Param.model_validate(param)
    assert [declared.accept(value) for value in good] == good
    for value in bad:
        with pytest.raises(PydanticCustomError):
            declared.accept(value)


@pytest.mark.parametrize(
    ("value", "text"), [("a", "a"), (5, "5"), (True, "true"), ([1, "ä"], '[1,"ä"]'), (None, "null")]
)
def test_a_container_receives_text_as_it_is_and_the_rest_as_compact_json(value: Any, text: str) -> None:
    assert text_of(value) == text


def test_a_sub_pipelines_parameters_are_checked_against_what_is_given() -> None:
    head = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\n"
    inner = "{name: q, params: {n: {type: int, max: 5}}, steps: {s: {image: i, command: [x]}}}"

    def load(given: str) -> list[str]:
        try:
            loads(f"{head}steps:\n  a: {{pipeline: {inner}, params: {given}}}\n")
        except GpuflowError as refusal:
            return [f"{finding.code} {finding.where.line}:{finding.where.column}" for finding in refusal.findings]
        return []

    assert load("{n: 3}") == []
    assert load("{n: 9}") == ["GF146 5:112"]
    assert load("{n: five}") == ["GF144 5:112"]
    assert load("{}") == ["GF188 5:108"]
    assert load("{m: 3, n: 1}") == ["GF188 5:109"]
