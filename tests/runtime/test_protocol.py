"""One outcome of many reports: a table, and the same whatever order they are looked at."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuflow.runtime.base.options import BadOption
from gpuflow.runtime.base.outcomes import FINAL, INTERRUPTED, OUT_OF_MEMORY, OUTCOMES, RETRYABLE, SUCCEEDED, TIMED_OUT
from gpuflow.runtime.gangs.ranks import protocol
from gpuflow.runtime.gangs.ranks.protocol import COLLATERAL, Report, Tally, agree

TIMES = protocol.Times(beat=2, lost=15, settle=20, linger=3)


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ((SUCCEEDED, SUCCEEDED), SUCCEEDED),
        ((SUCCEEDED, RETRYABLE), RETRYABLE),
        ((SUCCEEDED,), INTERRUPTED),  # nothing was heard from rank 1
        ((COLLATERAL, SUCCEEDED), INTERRUPTED),
        ((RETRYABLE, INTERRUPTED), INTERRUPTED),
        ((FINAL, INTERRUPTED), INTERRUPTED),
        ((RETRYABLE, FINAL), FINAL),
        ((TIMED_OUT, OUT_OF_MEMORY), OUT_OF_MEMORY),
        ((OUT_OF_MEMORY, FINAL), FINAL),
        ((RETRYABLE, TIMED_OUT), TIMED_OUT),
        ((TIMED_OUT, COLLATERAL), TIMED_OUT),
    ],
)
def test_the_strongest_outcome_is_the_gangs(outcomes: tuple[str, ...], expected: str) -> None:
    reports = [Report(rank, outcome, "", 1, order=rank) for rank, outcome in enumerate(outcomes)]
    assert agree(reports, 2).outcome == expected


reports = st.lists(
    st.builds(
        Report, st.integers(0, 3), st.sampled_from([*OUTCOMES[:7], COLLATERAL]), st.just("so"), st.integers(0, 255)
    ),
    max_size=8,
)


@given(reports, st.randoms(use_true_random=False))
def test_it_does_not_matter_in_which_order_reports_are_looked_at(found: list[Report], chance: object) -> None:
    for order, report in enumerate(found):
        report.order = order
    mixed = list(found)
    chance.shuffle(mixed)  # type: ignore[attr-defined]  # it is a random.Random
    one, other = agree(found, 4), agree(mixed, 4)
    assert (one.rank, one.outcome, one.code) == (other.rank, other.outcome, other.code)
    if one.outcome == SUCCEEDED:
        assert {report.rank for report in found if report.outcome == SUCCEEDED} == {0, 1, 2, 3}
    if any(report.outcome == INTERRUPTED for report in found):
        assert one.outcome == INTERRUPTED


def test_the_first_failure_that_came_is_the_cause() -> None:
    tally = Tally(3, TIMES)
    tally.report_end(2, RETRYABLE, "a real error", 17, 0.0)
    tally.report_end(0, RETRYABLE, "NCCL", 1, 0.5)
    tally.report_end(1, RETRYABLE, "NCCL", 1, 0.6)
    assert tally.decided is None  # someone may be told to stop yet
    tally.look(3.0)
    assert tally.decided is not None and (tally.decided.rank, tally.decided.code) == (2, 17)


def test_a_failure_waits_for_ranks_that_still_run() -> None:
    tally = Tally(2, TIMES)
    tally.report_end(1, RETRYABLE, "NCCL", 1, 0.0)
    tally.look(19.9)
    assert tally.decided is None
    tally.report_loss(0, "silent")
    assert tally.decided is not None and tally.decided.outcome == INTERRUPTED


def test_success_is_certain_once_all_have_it_and_not_before() -> None:
    tally = Tally(2, TIMES)
    tally.report_end(0, SUCCEEDED, "", 0, 0.0)
    tally.look(1e6)
    assert tally.decided is None
    tally.report_end(1, SUCCEEDED, "", 0, 1e6)
    tally.report_loss(0, "gone")
    assert tally.decided is not None and tally.decided.outcome == SUCCEEDED


def test_a_rank_that_is_lost_after_its_success_interrupts_those_that_still_run() -> None:
    tally = Tally(2, TIMES)
    tally.report_end(0, SUCCEEDED, "", 0, 0.0)
    tally.report_loss(0, "gone")
    assert tally.decided is not None and tally.decided.outcome == INTERRUPTED


@pytest.mark.parametrize("given", ["beat", "beat=x", "lost=1", "settle=10", "quick=1", "beat=0"])
def test_waits_that_would_break_the_order_are_refused(given: str) -> None:
    with pytest.raises(BadOption, match="GPUFLOW_GANG_TIMES"):
        protocol.times(given)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_garbage(data: bytes) -> None:
    try:
        said = protocol.unpack(data)["say"]
    except protocol.BadMessage:
        return
    assert isinstance(said, str)


@given(st.text(max_size=5000))
def test_what_is_packed_is_one_line_within_the_limit(because: str) -> None:
    line = protocol.pack("stop", because=because)
    assert line.count(b"\n") == 1 and len(line) <= protocol.LONGEST
    assert protocol.unpack(line)["because"] == because[:2000]


def test_outcomes_that_mean_nothing_for_a_gang_are_not_in_its_order() -> None:
    assert set(protocol.STRONGEST_FIRST) <= set(OUTCOMES)
