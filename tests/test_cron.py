"""The times of a cron expression in a time zone, and dates as text.

Tests gpuflow/core/cron.py and gpuflow/core/date_format.py.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuflow.core.cron import least_gap, next_time, previous_time
from gpuflow.core.date_format import DIRECTIVES, TIMESTAMP, format_date, pieces

ZONES = (
    "UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "America/St_Johns",
    "Asia/Beirut", "Pacific/Apia",
)  # fmt: skip


def field(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    span = st.tuples(number, number).map(lambda pair: f"{min(pair)}-{max(pair)}")
    step = st.integers(1, 7).map(lambda size: f"*/{size}")
    return st.one_of(st.just("*"), number.map(str), span, step, st.lists(number.map(str), min_size=2).map(",".join))


crons = st.tuples(field(0, 59), field(0, 23), field(1, 28), field(1, 12), field(0, 6)).map(" ".join)
moments = st.datetimes(datetime(2005, 1, 1), datetime(2035, 1, 1), timezones=st.just(UTC))


def matches(cron: str, moment: datetime) -> bool:
    """The rule, written down once more: what the wall clock shows is named by each field."""
    minute, hour, day, month, weekday = cron.split()
    by_day = named(day, moment.day, 1, 31), named(weekday, moment.isoweekday() % 7, 0, 6)
    either = not any(part in ("*", "*/1") for part in (*day.split(","), *weekday.split(",")))
    return (
        named(minute, moment.minute, 0, 59)
        and named(hour, moment.hour, 0, 23)
        and named(month, moment.month, 1, 12)
        and (any(by_day) if either else all(by_day))
    )


def named(word: str, value: int, low: int, high: int) -> bool:
    for part in word.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        start, end = (low, high) if first == "*" else (int(first), int(last or first))
        if start <= value <= end and (value - start) % int(step or 1) == 0:
            return True
    return False


@given(crons, st.sampled_from(ZONES), moments)
def test_the_time_before_and_the_time_after_lead_back_to_each_other(cron: str, zone: str, moment: datetime) -> None:
    before = previous_time(cron, zone, moment)
    assert before is not None and before < moment
    assert matches(cron, before)
    after = next_time(cron, zone, before)
    assert after is not None and after >= moment
    assert previous_time(cron, zone, after) == before


@given(st.tuples(field(0, 59), field(0, 23)), st.sampled_from(ZONES), st.data())
def test_no_time_between_is_passed_over(times: tuple[str, str], zone: str, data: st.DataObject) -> None:
    """Around the days when clocks are set, minute by minute."""
    changes = [datetime(2025, 3, 30), datetime(2025, 11, 2), datetime(2011, 12, 30), datetime(2010, 11, 7)]
    changes += [datetime(2025, 10, 26), datetime(2025, 4, 6), datetime(2025, 3, 9)]
    start = data.draw(st.sampled_from(changes)).replace(tzinfo=UTC) - timedelta(hours=20)
    cron = f"{times[0]} {times[1]} * * *"
    end = start + timedelta(minutes=data.draw(st.integers(1, 60 * 40)))
    shown = ((end - timedelta(minutes=back)).astimezone(ZoneInfo(zone)) for back in range(1, 60 * 60))
    expected = next((moment for moment in shown if matches(cron, moment)), None)
    if expected is not None:
        assert previous_time(cron, zone, end) == expected


@pytest.mark.parametrize(
    ("cron", "zone", "at", "expected"),
    [
        ("0 3 * * *", "Europe/Berlin", "2026-03-29T03:00:00+02:00", "2026-03-28T03:00:00+01:00"),  # a day of 23 hours
        ("0 3 * * *", "Europe/Berlin", "2026-10-25T03:00:00+01:00", "2026-10-24T03:00:00+02:00"),  # a day of 25 hours
        (
            "30 2 * * *",
            "Europe/Berlin",
            "2026-03-30T02:30:00+02:00",
            "2026-03-28T02:30:00+01:00",
        ),  # skipped on the 29th
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T02:30:00+01:00", "2026-10-25T02:30:00+02:00"),  # shown twice
        ("0 * * * *", "Europe/Berlin", "2026-03-29T03:00:00+02:00", "2026-03-29T01:00:00+01:00"),
        ("0 0 1 * *", "UTC", "2026-03-01T00:00:00+00:00", "2026-02-01T00:00:00+00:00"),
        ("0 0 29 2 *", "UTC", "2104-02-29T00:00:00+00:00", "2096-02-29T00:00:00+00:00"),
        ("0 6 * * 7", "UTC", "2026-11-16T06:00:00+00:00", "2026-11-15T06:00:00+00:00"),
        ("0 6 13 * fri", "UTC", "2026-11-14T00:00:00+00:00", "2026-11-13T06:00:00+00:00"),
        ("5/20 6 * * *", "UTC", "2026-11-14T06:30:00+00:00", "2026-11-14T06:25:00+00:00"),
    ],
)
def test_the_time_before(cron: str, zone: str, at: str, expected: str) -> None:
    found = previous_time(cron, zone, datetime.fromisoformat(at))
    assert found is not None and format_date(found, TIMESTAMP) == expected


def test_a_day_that_never_comes_has_no_time() -> None:
    assert previous_time("0 0 31 2 *", "UTC", datetime(2026, 1, 1, tzinfo=UTC)) is None
    assert next_time("0 0 31 2 *", "UTC", datetime(2026, 1, 1, tzinfo=UTC)) is None


OWN = sorted(set(DIRECTIVES) - {"%:z"})


@given(
    st.lists(st.sampled_from(OWN) | st.text("abc/-T: {}'", max_size=3), min_size=1).map("".join).filter(bool), moments
)
def test_dates_are_written_as_strftime_does(form: str, moment: datetime) -> None:
    local = moment.astimezone(ZoneInfo("America/St_Johns"))
    assert format_date(local, form) == local.strftime(form)


@pytest.mark.parametrize("form", ["%V", "%F", "%", "%Y %", "%-d", "%c", "%É", "", "%:", "%s"])
def test_a_directive_that_an_engine_lacks_is_refused(form: str) -> None:
    with pytest.raises(ValueError, match=r"is not a directive|is empty"):
        pieces(form)


@given(st.lists(crons, min_size=1, max_size=2), st.sampled_from(ZONES), moments)
def test_no_two_times_are_nearer_than_the_least_gap(several: list[str], zone: str, moment: datetime) -> None:
    least, now = least_gap(several, zone), moment
    assert least is not None
    for _ in range(5):
        times = [each for cron in several if (each := next_time(cron, zone, now)) is not None]
        if not times:
            return
        one, now = now, min(times)
        assert one == moment or (now - one).total_seconds() >= least


@pytest.mark.parametrize(
    ("several", "zone", "least"),
    [
        (["0 3 * * *"], "UTC", 86400),
        (["0 3 * * *"], None, 82800),
        (["0 3 * * *"], "Europe/Berlin", 82800),
        (["30 2 * * *"], "Europe/Berlin", 3600),
        (["0,50 1,3 * * *"], None, 600),  # 1:50 and 3:00, where the clock skips what is between
        (["0 3 * * *", "45 3 * * 1"], "UTC", 2700),
        (["@daily"], "UTC", None),
        (["0 3 * * *"], "Nowhere/Else", None),
        ([], "UTC", None),
    ],
)
def test_the_least_gap(several: list[str], zone: str | None, least: int | None) -> None:
    assert least_gap(several, zone) == least
