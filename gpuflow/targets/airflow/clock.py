"""Where Airflow's timetable and the wall clock part: schedules that a change of the clock concerns.

A CronTriggerTimetable runs a time that the clock skips later, and one that it shows twice once. With a schedule for
every hour it counts real hours instead, over days without any run too, and then is an hour off. By everybody else's
reading a skipped time does not come and a repeated one comes twice (`gpuflow.cron`). For other schedules both agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from gpuflow.cron import parse
from gpuflow.spec.zones import zone_of

YEARS = range(2020, 2041)
"""Zones change their rules; a fixed span keeps the answer the same from one day to the next."""
_MINUTE, _DAY = timedelta(minutes=1), timedelta(days=1)


@lru_cache(maxsize=64)
def clock_change(expression: str, zone: str) -> datetime | None:
    """When, on the wall, the clock changes in a way that Airflow and the schedule take differently."""
    cron = parse(expression)
    has_every_hour = len(cron.hours) == 24
    has_every_day = len(cron.months) == 12 and (len(cron.days) == 31 or len(cron.weekdays) == 7)
    for first, past in _changed(zone):
        if has_every_hour and not has_every_day:
            return first
        if has_every_hour and (past - first) % timedelta(hours=1) == timedelta(0):
            continue
        for clock in _minutes(first, past):
            if clock.hour in cron.hours and clock.minute in cron.minutes and cron.on(clock.date()):
                return clock
    return None


def _changed(zone: str) -> Iterator[tuple[datetime, datetime]]:
    """The spans of the wall clock that are skipped or repeated, without a time zone."""
    rules = zone_of(zone)

    def offset(moment: datetime) -> timedelta:
        return moment.astimezone(rules).utcoffset() or timedelta(0)

    day, end = datetime(YEARS.start, 1, 1, tzinfo=UTC), datetime(YEARS.stop, 1, 1, tzinfo=UTC)
    while day < end:
        if offset(day) != offset(day + _DAY):
            early, late = day, day + _DAY
            while late - early > _MINUTE:
                middle = early + ((late - early) // _MINUTE // 2) * _MINUTE
                early, late = (middle, late) if offset(middle) == offset(day) else (early, middle)
            walls = sorted(late.replace(tzinfo=None) + offset(each) for each in (early, late))
            yield walls[0], walls[1]
        day += _DAY


def _minutes(first: datetime, past: datetime) -> Iterator[datetime]:
    while first < past:
        yield first
        first += _MINUTE
