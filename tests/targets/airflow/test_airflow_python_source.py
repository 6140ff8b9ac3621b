"""Python source that is written from data says exactly that data."""

from __future__ import annotations

import ast

from hypothesis import given
from hypothesis import strategies as st

from gpuflow.targets.airflow.python_source import (
    Call,
    Infix,
    Invert,
    MergedDict,
    Method,
    Name,
    source_text,
    string_literal,
)

TEXT = st.text(alphabet=st.characters(), max_size=200)
DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5) | st.lists(inner).map(tuple),
    max_leaves=20,
)


@given(TEXT)
def test_a_text_is_read_back_as_it_was(text: str) -> None:
    assert ast.literal_eval(string_literal(text)) == text


@given(DATA, st.sampled_from(["", "    ", " " * 60]))
def test_any_data_is_read_back_as_it_was_however_it_is_laid_out(data: object, indent: str) -> None:
    assert ast.literal_eval(source_text(data, indent)) == data


@given(DATA)
def test_written_lines_never_hold_invisible_characters(data: object) -> None:
    text = source_text(data)
    assert not set(text) & set("\u200b\u202e\u2066\ufeff\x7f\x85")


def test_calls_conditions_and_merges_read_as_a_person_writes_them() -> None:
    condition = Infix("&", Infix(">", Call("output", ("a", "b")), 0.9), Invert(Call("param", ("dry",))))
    assert source_text(condition) == '(output("a", "b") > 0.9) & ~param("dry")'
    assert source_text(Method(Name("x"), "is_in", (["a"],))) == 'x.is_in(["a"])'
    assert source_text(MergedDict(Name("LABELS"), {"a": "b"})) == '{**LABELS, "a": "b"}'


def test_a_long_text_is_cut_at_its_lines_and_at_spaces() -> None:
    text = source_text("one line\n" + "many words " * 20)
    assert text.startswith("(\n")
    assert all(len(line) <= 120 for line in text.splitlines())
    assert ast.literal_eval(text) == "one line\n" + "many words " * 20
