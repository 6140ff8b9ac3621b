"""The YAML reader: what unquoted words mean, where things stand, and what is refused with which code."""

from __future__ import annotations

import gc
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuflow.core import yaml_tree
from gpuflow.core.errors import GpuflowError
from gpuflow.core.yaml_tree import parse, parse_all, where_of


def refused(text: str | bytes) -> tuple[str, int | None, int | None]:
    """Code, line and column of the refusal."""
    with pytest.raises(GpuflowError) as caught:
        parse(text, "x.yaml")
    (finding,) = caught.value.findings
    assert finding.where.file == "x.yaml"
    return finding.code, finding.where.line, finding.where.column


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"),
        ("on", "on"),
        ("n", "n"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("", None),
        ("null", None),
        ("12", 12),
        ("-7", -7),
        ("017", 17),
        ("0o17", 15),
        ("0x1F", 31),
        ("1e3", 1000.0),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1:30", "1:30"),
        ("2024-01-02", "2024-01-02"),
        ("1_000", "1_000"),
        ("9" * 400, "9" * 400),
        ("'12'", "12"),
        ("! 12", "12"),
        ("!!str 12", "12"),
        ("!!int 12", 12),
    ],
)
def test_unquoted_words_mean_what_yaml_1_2_says(text: str, value: Any) -> None:
    found = parse(f"key: {text}\n", "x.yaml")["key"]
    assert found == value
    assert isinstance(found, bool) == isinstance(value, bool)


@pytest.mark.parametrize("text", ["1e-3", "1.50", "+4", "0x1F", "017", "1E5"])
def test_numbers_keep_their_spelling(text: str) -> None:
    assert parse(f"[{text}]", "x.yaml")[0].text == text


def test_infinity_and_not_a_number_are_read() -> None:
    assert parse("[.inf, -.Inf, +.INF]", "x.yaml") == [float("inf"), float("-inf"), float("inf")]
    assert str(parse("[.nan]", "x.yaml")[0]) == "nan"


json_data = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(blacklist_categories=("Cs", "Cc"))),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(st.characters(blacklist_categories=("Cs", "Cc"), max_codepoint=0x7E)), inner, max_size=4
        )
    ),
    max_leaves=10,
)


@given(json_data)
def test_json_is_read_as_json(data: Any) -> None:
    assert parse(json.dumps(data), "x.json") == data


def test_escapes_that_a_yaml_text_quotes_stay_as_they_are() -> None:
    assert parse(r"a: '\ud83d\ude00'", "x.yaml") == {"a": r"\ud83d\ude00"}


@given(st.dictionaries(st.from_regex("[a-z]{1,8}", fullmatch=True), st.lists(st.integers(0, 99)), min_size=1))
def test_every_key_and_item_knows_where_it_stands(data: dict[str, list[int]]) -> None:
    text, places, line = "", {}, 1
    for key, items in data.items():
        places[key,] = (line, 1)
        text += f"{key}:{'' if items else ' []'}\n"
        line += 1
        for index, item in enumerate(items):
            places[key, index] = (line, 5)
            text += f"  - {item}\n"
            line += 1
    tree = parse(text, "x.yaml")
    for path, place in places.items():
        found = where_of(tree, path, key=len(path) == 1)
        assert (found.line, found.column) == place


def test_a_path_that_leads_nowhere_gives_the_nearest_place_above() -> None:
    tree = parse("a:\n  b: 1\n", "x.yaml")
    found = where_of(tree, ("a", "missing", 3))
    assert (found.file, found.line, found.column) == ("x.yaml", 2, 3)


def test_merged_keys_do_not_win_over_own_ones_and_keep_their_place() -> None:
    tree = parse("base: &b {x: 1, y: 2}\nown: {<<: *b, x: 3}\n", "x.yaml")
    assert tree["own"] == {"x": 3, "y": 2}
    assert where_of(tree, ("own", "y")).line == 1


def test_in_quotes_a_merge_is_a_key_like_any_other() -> None:
    tree = parse("""a: {"<<": {x: 1}, y: 2}\nb: {'<<': 1, <<: {y: 3}}\n""", "x.yaml")
    assert tree == {"a": {"<<": {"x": 1}, "y": 2}, "b": {"<<": 1, "y": 3}}


def test_several_documents_are_read_when_asked_for() -> None:
    assert parse_all("a: 1\n---\nb: 2\n", "x.yaml") == [{"a": 1}, {"b": 2}]
    assert parse("", "x.yaml") is None


BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join([f'*{chr(97 + i)}'] * 10)}]\n" for i in range(8)
)
REDEFINED = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"k{i}: &a [{', '.join(['*a'] * 10)}]\n" for i in range(8)
)
STAIRS = "k0: &k0 [x]\n" + "".join(f"k{i + 1}: &k{i + 1} [*k{i}]\n" for i in range(300))


@pytest.mark.parametrize(
    ("text", "code", "line", "column"),
    [
        pytest.param("a: [1, 2\n", "GF101", 2, 1, id="bracket"),
        pytest.param("a: 'b\n", "GF101", 2, 1, id="quote"),
        pytest.param("a: 1\n b: 2\n", "GF101", 2, 3, id="indentation"),
        pytest.param("a: b: c\n", "GF101", 1, 5, id="two colons"),
        pytest.param("a:\n\t- b\n", "GF104", 2, 1, id="tab"),
        pytest.param(b"a: \xff\n", "GF103", 1, 4, id="not utf-8"),
        pytest.param("a: 1\nb: \x01\n", "GF103", 2, 4, id="control character"),
        pytest.param("a: \0\n", "GF103", 1, 4, id="nul"),
        pytest.param("[" * 200 + "]" * 200, "GF105", 1, 101, id="deep"),
        pytest.param(STAIRS, "GF105", 100, 12, id="deep by aliases"),
        pytest.param("a: !!python/object:os.system x\n", "GF106", 1, 4, id="python tag"),
        pytest.param("a: !Ref x\n", "GF106", 1, 4, id="tag"),
        pytest.param("a: !!set {b}\n", "GF106", 1, 4, id="tag of a mapping"),
        pytest.param("? [a, b]\n: 1\n", "GF107", 1, 3, id="list as key"),
        pytest.param("a: &x [1]\n*x : 2\n", "GF107", 2, 1, id="alias of a list as key"),
        pytest.param("a: {<<: [1]}\n", "GF107", 1, 9, id="merge of a number"),
        pytest.param("a: 1\n---\nb: 2\n", "GF108", 2, 1, id="two documents"),
        pytest.param("a: 1\nb: 2\na: 3\n", "GF109", 3, 1, id="key twice"),
        pytest.param("{1: a, '1': b}", "GF109", 1, 8, id="key twice in two spellings"),
        pytest.param("a: *nowhere\n", "GF110", 1, 4, id="alias"),
        pytest.param("a: &a [*a]\n", "GF110", 1, 8, id="alias of itself"),
        pytest.param(BOMB, "GF111", 6, 8, id="alias bomb"),
        pytest.param(REDEFINED, "GF111", 6, 9, id="alias bomb with one anchor"),
    ],
)
def test_what_is_not_a_document_is_refused_at_its_place(text: str | bytes, code: str, line: int, column: int) -> None:
    assert refused(text) == (code, line, column)


def test_a_document_over_the_size_limit_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_tree, "MAX_BYTES", 1000)
    assert refused(b"a: " + b"x" * 1000) == ("GF102", 1, 1)


@given(st.binary(max_size=200))
def test_random_bytes_are_read_or_refused_with_a_place(raw: bytes) -> None:
    try:
        parse(raw, "x.yaml")
    except GpuflowError as refusal:
        (finding,) = refusal.findings
        assert finding.where.line is not None and finding.where.line >= 1
        assert finding.where.column is not None and finding.where.column >= 1


@given(st.text("ab:-[]{},&*!|>'\"#%@`? \n\t0", max_size=60))
def test_random_yaml_is_read_or_refused_with_a_place_inside_the_text(text: str) -> None:
    try:
        parse(text, "x.yaml")
    except GpuflowError as refusal:
        (finding,) = refusal.findings
        assert finding.where.line is not None
        assert 1 <= finding.where.line <= text.count("\n") + 2


def test_what_was_read_is_gone_when_nobody_holds_it() -> None:
    text = "steps:\n" + "".join(f"  s{number}: {{command: [work, {number}]}}\n" for number in range(50))
    yaml_tree.parse(text, "p.yaml")
    gc.collect()
    gc.disable()
    try:
        yaml_tree.parse(text, "p.yaml")
        assert gc.collect() < 50, "the tree waits for the collector"
    finally:
        gc.enable()
