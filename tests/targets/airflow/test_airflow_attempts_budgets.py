"""What is said when a budget is used up.

Tests gpuflow/airflow/attempts.py.
"""

from __future__ import annotations

import pytest

from gpuflow.airflow.attempts import Budgets, Ledger


@pytest.mark.parametrize(
    ("retries", "said"),
    [(0, "there is no retry"), (1, "the only retry is used up"), (2, "all 2 retries are used up")],
)
def test_the_end_of_a_budget_is_told_in_words_that_fit_its_number(retries: int, said: str) -> None:
    spent = Ledger(epoch=0, failures=retries + 1)
    assert Budgets(3, retries, 0).exhausted_text(spent, interrupted=False) == said
    assert Budgets(3, retries, 0).exhausted_text(Ledger(epoch=0, failures=retries), interrupted=False) is None


def test_interruptions_are_told_alike() -> None:
    budgets = [Budgets(3, 0, number) for number in (0, 1, 2)]
    assert [each.exhausted_text(Ledger(epoch=0, interruptions=3), interrupted=True) for each in budgets] == [
        "there is no budget for interruptions",
        "the only interruption of the budget is used up",
        "all 2 interruptions of the budget are used up",
    ]
