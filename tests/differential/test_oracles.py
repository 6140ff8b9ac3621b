"""The engines' own code, asked again: it repeats itself, and it agrees with us."""

from __future__ import annotations

import pytest

from tests.differential.comparison import Tally, compare
from tests.differential.conftest import Ask
from tests.differential.kinds import ANSWERED, KINDS
from tests.differential.tables import recorded

pytestmark = pytest.mark.go


@pytest.mark.parametrize("name", sorted(KINDS))
def test_an_oracle_repeats_its_recorded_answers(name: str, oracle: Ask) -> None:
    kind = KINDS[name]
    cases, answers = zip(*recorded(kind), strict=True)
    for number, (now, then) in enumerate(zip(oracle(kind.engine, kind.mode).ask(cases), answers, strict=True)):
        assert kind.theirs(now) == kind.theirs(then), f"case {number}"


@pytest.mark.parametrize("name", ANSWERED)
def test_cases_that_are_not_on_file_get_the_same_answer(name: str, oracle: Ask) -> None:
    kind = KINDS[name]
    tally = Tally()
    differences = list(compare(kind, oracle(kind.engine, kind.mode), list(kind.cases(500, seed=101)), tally))
    assert differences == []
    assert tally.agreed > 400
