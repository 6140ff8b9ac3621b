"""What is emitted is read back as the same data, by our reader (YAML 1.2) and by PyYAML (YAML 1.1) alike."""

import math
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from gpuflow.core import yaml_tree
from gpuflow.core.emit import emit, emit_all

texts = st.text(st.characters(blacklist_categories=("Cs",)))
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**40), 10**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
    | st.text("ab01 \n\t:-#'\"|>&*!%@`{}[],?\\.~=<", max_size=12)
)
documents = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=12
)


def plain(value: Any) -> Any:
    """Without the reader's own classes, so that the types can be compared."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, bool) or value is None:
        return value
    for kind in (int, float, str):
        if isinstance(value, kind):
            return kind(value)
    raise AssertionError(value)


def same(one: Any, other: Any) -> bool:
    """Equal, and of equal types all the way down: 1 is not 1.0 and not True."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other) and (not isinstance(one, float) or math.copysign(1, one) == math.copysign(1, other))


@given(documents)
@example({"x" * 2000: {"y": [1]}, "z" * 1500: []})
@example([{"x" * 2000: ["\n", "a\n", "a\n\n\n", " a\nb", "a\n  \n"]}])
@example({"on": "off", "y": "n", "1": "1e3", "0o7": "0x1F", "~": "null", "1:30": "12:30:45", "=": "<<"})
def test_what_is_emitted_is_read_back_the_same_by_both_readers(data: Any) -> None:
    text = emit(data)
    assert same(plain(yaml_tree.parse(text, "x.yaml")), data)
    assert same(yaml.safe_load(text), data)


@given(documents)
def test_the_same_data_always_gives_the_same_bytes_and_ends_with_one_newline(data: Any) -> None:
    text = emit(data)
    assert text == emit(data)
    assert text.endswith("\n")
    text.encode("utf-8")


@given(st.lists(documents, min_size=1, max_size=4))
def test_several_documents_stay_several(data: list[Any]) -> None:
    assert same(list(yaml.safe_load_all(emit_all(data))), data)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a100-80gb x 2", "a100-80gb x 2"),
        ("16Gi", "16Gi"),
        ("1h30m", "1h30m"),
        ("1g.10gb", "1g.10gb"),
        ("--lr", "--lr"),
        ("s3://models/run", "s3://models/run"),
        ("yes", '"yes"'),
        ("1e3", '"1e3"'),
        ("2", '"2"'),
        ("", '""'),
        ("a: b", '"a: b"'),
        (2e-5, "2.0e-05"),
        ([], "[]"),
        ({}, "{}"),
        ("one\ntwo\n", "|\n  one\n  two"),
    ],
)
def test_text_is_bare_where_every_reader_agrees_and_quoted_where_not(value: Any, text: str) -> None:
    assert emit({"key": value}) == f"key: {text}\n"


def test_lists_stand_at_the_column_of_their_key_as_in_hand_written_manifests() -> None:
    assert emit({"a": [{"b": ["c"]}]}) == "a:\n- b:\n  - c\n"


def test_no_anchor_is_written_for_values_that_are_shared() -> None:
    shared = {"image": "x"}
    assert emit([shared, shared]) == "- image: x\n- image: x\n"


def test_something_that_is_not_data_is_refused() -> None:
    with pytest.raises(TypeError, match="object cannot be written as YAML"):
        emit({"key": object()})


@given(documents)
def test_what_stands_in_several_places_is_written_as_if_each_had_its_own(part: Any) -> None:
    def everywhere(make: Callable[[], Any]) -> Any:
        return {"a": make(), "b": {"c": make(), "d": [make(), make(), [make(), [make()]]]}, "e": [[make()], make()]}

    assert emit(everywhere(lambda: part)) == emit(everywhere(lambda: deepcopy(part)))


class _MadeAnew(Mapping[str, Any]):
    """Makes its values when it is asked for them, so that one may lie in memory where another was."""

    def __getitem__(self, key: str) -> Any:
        return {"name": key}

    def __iter__(self) -> Iterator[str]:
        return iter("abcdefgh")

    def __len__(self) -> int:
        return 8


def test_values_that_are_made_anew_are_not_taken_for_each_other() -> None:
    assert yaml.safe_load(emit(_MadeAnew())) == {key: {"name": key} for key in "abcdefgh"}
