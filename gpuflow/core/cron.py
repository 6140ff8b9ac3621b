"""The times of a cron expression in a time zone. Standard library only.

A moment is scheduled when the clock on the wall of that zone shows a time that the expression names. So a time that
the clock skips in spring does not come, and one that it shows twice in autumn comes twice: what the CronWorkflow and
the CronJob of Kubernetes do.
"""

from __future__ import annotations

import re
from bisect import bisect
from calendar import monthrange
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import pairwise, product
from typing import Final
from zoneinfo import ZoneInfo

FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day of month", 1, 31), ("month", 1, 12), ("day of week", 0, 7))
"""The five fields with their smallest and largest number; 7 is Sunday, as 0 is."""
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
NAMES = {name: i + 1 for i, name in enumerate(MONTHS)} | {name: i for i, name in enumerate(WEEKDAYS)}
"""Names that stand for numbers."""
_DAY: Final = timedelta(days=1)
_LONGEST = 366 * 12 + 2
"""Days in which every date comes that ever comes: from 2096 to 2104 there is no 29 February."""


@dataclass(frozen=True, slots=True)
class Cron:
    """A parsed expression: the numbers that each field names."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    """Sunday is 0."""
    either: bool
    """Whether a day counts by its date or its weekday: so it is when both fields name some."""

    def is_on(self, day: date) -> bool:
        """Whether the day has times at all."""
        if day.month not in self.months:
            return False
        by_date, by_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return by_date or by_weekday if self.either else by_date and by_weekday

    @property
    def clocks(self) -> Iterator[tuple[int, int]]:
        """Hour and minute of each time that a day with times has."""
        return product(self.hours, self.minutes)

    @property
    def has_dates(self) -> bool:
        """Whether any of its dates exists; with impossible dates Airflow starts no run by weekday either."""
        return any(day <= monthrange(2024, month)[1] for month in self.months for day in self.days)


@lru_cache(maxsize=64)
def parse(expression: str) -> Cron:
    """A checked expression of five fields."""
    words = expression.split()
    minutes, hours, days, months, weekdays = (
        _numbers(word, low, high) for word, (_, low, high) in zip(words, FIELDS, strict=True)
    )
    either = not _is_any(words[2]) and not _is_any(words[4])
    return Cron(minutes, hours, days, months, frozenset(day % 7 for day in weekdays), either)


def previous_time(expression: str, zone: str, before: datetime) -> datetime | None:
    """The last scheduled moment before this one, in that zone; None when there never is one."""
    return _nearest_time(parse(expression), ZoneInfo(zone), before, -1)


def next_time(expression: str, zone: str, after: datetime) -> datetime | None:
    """The first scheduled moment after this one, in that zone; None when there never is one."""
    return _nearest_time(parse(expression), ZoneInfo(zone), after, 1)


def least_gap(expressions: Iterable[str], zone: str | None) -> int | None:
    """The fewest seconds between two moments that any of the expressions names, as if each named times every day.

    A clock that changes brings moments nearer to each other, or shows one twice. Zone None: one that is not known,
    whose clock is set forward by an hour at most. None for expressions without five fields, or of a zone that is
    not there.
    """
    try:
        clocks = sorted({60 * hour + minute for each in map(parse, expressions) for hour, minute in each.clocks})
        changes = [] if zone in (None, "UTC") else list(_clock_changes(ZoneInfo(str(zone))))
    except (ValueError, LookupError, OSError):
        return None
    if not clocks:
        return None
    two_days = [60 * clock for clock in (*clocks, *(clock + 24 * 60 for clock in clocks))]
    gaps = [then - one for one, then in pairwise(two_days)]
    if zone is None:
        later = ((one, bisect(two_days, one + 3600)) for one in two_days)
        gaps += [two_days[index] - one - 3600 for one, index in later if index < len(two_days)]
    for days in changes:
        named = (datetime(day.year, day.month, day.day) + timedelta(minutes=clock) for day in days for clock in clocks)
        moments = sorted(moment for clock in named for moment in _clock_times(clock, ZoneInfo(str(zone))))
        gaps += [int((then - one).total_seconds()) for one, then in pairwise(moments)]
    return min(gaps)


_CHANGES_OF: Final = (2025, 2026)
"""The years whose changes of the clock stand for those of all."""


def _clock_changes(zone: ZoneInfo) -> Iterator[tuple[date, date, date]]:
    """Each day on which the clock of a zone changes, between its neighbors."""
    day = date(_CHANGES_OF[0], 1, 1)
    while day.year <= _CHANGES_OF[-1]:
        before, after = (datetime(each.year, each.month, each.day, tzinfo=zone) for each in (day, day + _DAY))
        if before.utcoffset() != after.utcoffset():
            yield day - _DAY, day, day + _DAY
        day += _DAY


def _nearest_time(cron: Cron, zone: ZoneInfo, moment: datetime, way: int) -> datetime | None:
    if moment.tzinfo is None:
        raise ValueError(f"{moment} has no time zone")
    day, step = moment.astimezone(zone).date() - timedelta(days=way), timedelta(days=way)
    for _ in range(_LONGEST):
        # A clock that is set back over midnight shows two days in turn, so the day beyond is looked at too.
        for days in ((day,), (day, day + step)):
            found = [each for each in _times_on(cron, zone, days) if (each - moment) * way > timedelta(0)]
            if not found:
                break
        else:
            return (max(found) if way < 0 else min(found)).astimezone(zone)
        day += step
    return None


def _times_on(cron: Cron, zone: ZoneInfo, days: Iterable[date]) -> Iterator[datetime]:
    """The scheduled moments of some days."""
    for day in filter(cron.is_on, days):
        for hour, minute in cron.clocks:
            yield from _clock_times(datetime(day.year, day.month, day.day, hour, minute), zone)


def _clock_times(clock: datetime, zone: ZoneInfo) -> Iterator[datetime]:
    """The instants at which the local clock shows this time: one, two (clock set back) or none."""
    both = {clock.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)}
    return (each for each in both if each.astimezone(zone).replace(tzinfo=None, fold=0) == clock)


def _is_any(word: str) -> bool:
    """Whether a field of days leaves the choice to the other one."""
    return any(part in ("*", "*/1") for part in word.split(","))


def _numbers(word: str, low: int, high: int) -> frozenset[int]:
    found: set[int] = set()
    for part in word.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        # Day 7 is the Sunday that 0 is: `*` counts it once, and `5/2` goes to the end of the week.
        end = 6 if high == 7 else high
        if first == "*":
            bounds = low, end
        else:
            start = _number(first)
            bounds = start, _number(last) if last else (max(start, end) if step else start)
        found.update(range(bounds[0], bounds[1] + 1, int(step or 1)))
    return frozenset(found)


STANDARD: Final = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")
_DURATION: Final = re.compile(r"[-+]?(0|((\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h))+)", re.ASCII)


def standard_fault(expression: str) -> str | None:
    """Why a CronJob and a CronWorkflow cannot read a schedule. Mirrors ParseStandard of robfig/cron v3.0.1."""
    text = expression
    if text.startswith(("TZ=", "CRON_TZ=")):  # the zone is looked at by whoever allows one
        if " " not in text:
            return "invalid schedule format: runtime error: slice bounds out of range [:-1]"
        text = text.partition(" ")[2].strip()
    if text.startswith("@every "):
        duration = text.removeprefix("@every ")
        missing = re.fullmatch(r"[-+]?\d+", duration, re.ASCII) and duration.strip("+-0")
        what = "missing unit in" if missing else "invalid"
        why = f'failed to parse duration {text}: time: {what} duration "{duration}"'
        return None if _DURATION.fullmatch(duration) else why
    if text.startswith("@"):
        return None if text in STANDARD else f"unrecognized descriptor: {text}"
    words = text.split()
    if len(words) != 5:
        return f"expected exactly 5 fields, found {len(words)}: [{' '.join(words)}]"
    try:
        for word, (name, low, high) in zip(words, FIELDS, strict=True):
            names = {"month": MONTHS, "day of week": WEEKDAYS}.get(name, ())
            for part in filter(None, word.split(",")):
                _check_range(part, {each: NAMES[each] for each in names}, low, 6 if name == "day of week" else high)
    except ValueError as fault:
        return str(fault)
    return None


def _check_range(text: str, names: Mapping[str, int], low: int, high: int) -> None:
    def number(word: str, known: Mapping[str, int]) -> int:
        if word.lower() in known:
            return known[word.lower()]
        if not re.fullmatch(r"[-+]?\d+", word, re.ASCII):
            raise ValueError(f'failed to parse int from {word}: strconv.Atoi: parsing "{word}": invalid syntax')
        if abs(found := int(word)) >= 2**63:
            raise ValueError(f'failed to parse int from {word}: strconv.Atoi: parsing "{word}": value out of range')
        if found < 0:
            raise ValueError(f"negative number ({found}) not allowed: {word}")
        return found

    span, *steps = text.split("/")
    first, *rest = span.split("-")
    start, end = low, high
    if first not in ("*", "?"):
        start = number(first, names)
        if len(rest) > 1:
            raise ValueError(f"too many hyphens: {text}")
        end = number(rest[0], names) if rest else start
    if len(steps) > 1:
        raise ValueError(f"too many slashes: {text}")
    step = number(steps[0], {}) if steps else 1
    end = high if steps and not rest else end
    if start < low:
        raise ValueError(f"beginning of range ({start}) below minimum ({low}): {text}")
    if end > high:
        raise ValueError(f"end of range ({end}) above maximum ({high}): {text}")
    if start > end:
        raise ValueError(f"beginning of range ({start}) beyond end of range ({end}): {text}")
    if step == 0:
        raise ValueError(f"step of range should be a positive number: {text}")


def _number(word: str) -> int:
    return int(word) if word.isdecimal() else NAMES[word.lower()]
