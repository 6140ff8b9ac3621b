"""The harness itself: cases that repeat, differences that shrink, bytes that stay."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.differential import tables
from tests.differential.comparison import Difference, Tally, compare
from tests.differential.expansion import environment, expanded
from tests.differential.kinds import KINDS
from tests.differential.oracle import Answer, Case, Oracle
from tests.differential.shrinking import deletions, shrink

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=1), inner, max_size=3),
    max_leaves=8,
)


def size(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(1 + size(inner) for inner in value.values())
    if isinstance(value, list):
        return 1 + sum(size(inner) for inner in value)
    return 1


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_seed_gives_the_same_cases_whatever_their_number(name: str) -> None:
    few, many = KINDS[name].cases(3, seed=5), KINDS[name].cases(20, seed=5)
    assert [*few] == [*many][:3]


@pytest.mark.parametrize("name", sorted(KINDS))
def test_another_seed_gives_other_cases(name: str) -> None:
    assert [*KINDS[name].cases(5, seed=1)] != [*KINDS[name].cases(5, seed=2)]


@given(JSON)
def test_every_deletion_is_smaller(value: Any) -> None:
    assert all(size(smaller) < size(value) for smaller in deletions(value))


@given(JSON, st.integers(0, 9))
def test_shrinking_keeps_what_shows_the_difference_and_nothing_else(value: Any, needle: int) -> None:
    def shows(cases: Any) -> list[bool]:
        return [f"{needle}" in repr(case) for case in cases]

    if shows([value])[0]:
        small = shrink(value, shows)
        assert shows([small])[0]
        assert not any(shows(list(deletions(small))))


def test_keys_to_keep_are_never_left_out() -> None:
    case = {"pod": {"name": "p", "labels": {"a": "b"}}, "items": [1, 2]}
    assert shrink(case, lambda cases: [True] * len(cases), frozenset({"pod", "name", "items"})) in (
        {"pod": {"name": "p"}, "items": [1]},
        {"pod": {"name": "p"}, "items": [2]},
    )


def test_a_difference_is_remembered_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "REGRESSIONS", tmp_path)
    kind = KINDS["quantity"]
    found = Difference({"a": "1"}, {"a": {"canonical": "one"}}, {"a": {"canonical": "1"}})
    assert tables.remember(kind, found)
    assert not tables.remember(kind, found)
    assert list(tables.regressions(kind)) == [({"a": "1"}, {"a": {"canonical": "1"}})]


def test_the_same_answers_are_recorded_as_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "RECORDED", tmp_path)
    kind = KINDS["quantity"]
    answered = [({"a": "1"}, {"a": {"canonical": "1"}})]
    first = tables.record(kind, 1, answered).read_bytes()
    assert tables.record(kind, 1, answered).read_bytes() == first
    assert list(tables.recorded(kind)) == answered


class Says:
    """An engine that answers from a list, over and over."""

    def __init__(self, *answers: str) -> None:
        self._answers = itertools.cycle(answers)

    def ask(self, cases: Sequence[Case]) -> list[Answer]:
        return [{"a": {"canonical": next(self._answers)}} for _ in cases]


@pytest.mark.parametrize(
    ("answers", "tally"),
    [
        (("1",), Tally(agreed=1)),
        (("2",), Tally(differed=1)),
        # Of these, the second time would have been the same by chance.
        (("2", "2", "1"), Tally(not_judged=1)),
        (("2", "2", "2", "2", "2", "2", "1"), Tally(not_judged=1)),
    ],
)
def test_only_what_the_engine_says_each_time_is_a_difference(answers: tuple[str, ...], tally: Tally) -> None:
    kind = replace(KINDS["quantity"], ours=lambda case: {"a": {"canonical": "1"}}, theirs=lambda answer: answer)
    counted = Tally()
    found = list(compare(kind, cast(Oracle, Says(*answers)), [{"a": "1"}], counted))
    assert counted == tally
    assert len(found) == tally.differed


@pytest.mark.parametrize(
    ("written", "seen"),
    [("$(A)", "1"), ("$$(A)", "$(A)"), ("$(B)", "$(B)"), ("$$$$", "$$"), ("$A ${A}", "$A ${A}"), ("$(A", "$(A")],
)
def test_variables_in_a_command_are_expanded_as_the_kubelet_does(written: str, seen: str) -> None:
    assert expanded(written, {"A": "1"}) == seen


def test_a_variable_may_use_those_before_it() -> None:
    entries = [{"name": "A", "value": "$(B)"}, {"name": "B", "value": "2"}, {"name": "C", "value": "$(B)3"}]
    assert environment(entries) == {"A": "$(B)", "B": "2", "C": "23"}
