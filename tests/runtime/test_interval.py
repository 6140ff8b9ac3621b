"""Intervals: against the expected time of a run, and against figures worked out for it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuflow.runtime.checkpoints import interval


def expected_wall(tau: float, save: float, between: float, restart: float = 180.0) -> float:
    """Expected time per second of work with a save every tau seconds (Daly 2006)."""
    return between * math.exp(restart / between) * math.expm1((tau + save) / between) / tau


@pytest.mark.parametrize(
    ("save", "hours", "daly"),
    [(10, 4, 8.8), (60, 1, 10.3), (60, 24, 53.0), (300, 4, 45.7), (900, 1, 33.0)],
)
def test_published_cases(save: float, hours: float, daly: float) -> None:
    between = hours * 3600
    assert interval.daly_interval(save, between) / 60 == pytest.approx(daly, abs=0.06)


@given(st.floats(0.5, 600), st.floats(1800, 1e6))
def test_dalys_interval_is_within_two_percent_of_the_best(save: float, between: float) -> None:
    chosen = interval.daly_interval(save, between)
    best = min(expected_wall(chosen * 1.05**power, save, between) for power in range(-60, 61))
    assert expected_wall(chosen, save, between) <= 1.02 * best


@given(st.floats(0.01, 1e5), st.floats(1, 1e6))
def test_the_interval_is_positive_however_slow_the_save(save: float, between: float) -> None:
    assert interval.choose_interval("auto", save, between) >= interval.SHORTEST


def test_a_given_interval_is_taken_as_it_is() -> None:
    assert interval.choose_interval(600.0, 1.0, 1.0) == 600.0


def test_more_interruptions_and_slower_saves_move_the_interval_the_right_way() -> None:
    calm = interval.mean_time_between(14400, 36000, 0)
    rough = interval.mean_time_between(14400, 36000, 9)
    assert interval.choose_interval("auto", 30.0, rough) < interval.choose_interval("auto", 30.0, calm)
    assert interval.choose_interval("auto", 3.0, calm) < interval.choose_interval("auto", 30.0, calm)


@given(st.floats(0.1, 600), st.none() | st.floats(0, 1000))
def test_the_program_always_gets_at_least_half_of_the_grace(grace: float, upload: float | None) -> None:
    assert 0 <= interval.upload_reserve(grace, upload) <= grace / 2


def test_nothing_is_kept_of_the_grace_for_an_upload_that_would_take_more_than_half_of_it() -> None:
    assert interval.upload_reserve(20, 3) == 5.5
    assert interval.upload_reserve(20, 6) == 10
    assert interval.upload_reserve(20, 7) == 0
    assert interval.upload_reserve(30, None) == 3
