"""The facts of a run in Argo's words.

A run that a CronWorkflow starts carries its scheduled time, also when it starts late; `argo submit --scheduled-time`
sets it by hand. A run without one has the time when it was made instead: `workflow.scheduledTime` is not there then,
and a tag that names it would reach the container as it is written. So dates are expressions that look it up with `get`,
and every name in them is known to Argo whatever started the run: an expression that fails then ends the step.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from itertools import groupby, pairwise

from gpuflow import cron as clock
from gpuflow.date_format import MOMENT, pieces
from gpuflow.errors import Finding
from gpuflow.plan import Plan
from gpuflow.spec.pipeline import Schedule
from gpuflow.spec.text import RunRef
from gpuflow.targets.run_facts import dates_of

WHEN = "get(workflow, 'scheduledTime') ?? workflow.creationTimestamp.RFC3339"
"""The expression for the scheduled time, or the time when the run was made."""
LAYOUTS = {
    "%Y": "2006", "%y": "06", "%m": "01", "%B": "January", "%b": "Jan", "%d": "02", "%j": "002", "%A": "Monday",
    "%a": "Mon", "%H": "15", "%I": "03", "%p": "PM", "%M": "04", "%S": "05", "%z": "-0700", "%:z": "-07:00",
}  # fmt: skip
"""Directives as the reference time of Go writes them."""
TOGETHER = frozenset(LAYOUTS) - {"%z", "%:z"}
"""Directives that Go reads apart wherever they meet, in any order; digits after an offset would become part of it."""
BETWEEN = frozenset("-/: T")
"""Letters that Go takes for nothing else in between them."""
WEEKDAYS = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat")
BY_HAND = "its scheduled time; a run by hand has none, and gets the time when it was made"
MOST_STEPS = 3300
"""How many moments an expression looks at for an earlier time: half hours of two months, and some more."""


class RunFacts:
    """The facts of the runs of one pipeline. Its schedule decides about all sub-pipelines too."""

    def __init__(self, schedule: Schedule | None = None) -> None:
        self.schedule = schedule

    def moment(self, ref: RunRef) -> str:
        """The expression for a date as a time of Go, in its own zone, the schedule's, or UTC."""
        own = self.schedule.timezone if self.schedule is not None else "UTC"
        if ref.field == "interval_start" and self.schedule is not None:
            found = before(self.schedule)
            return found if ref.timezone in (None, own) else f"{found}.In(timezone('{ref.timezone}'))"
        return f"date({WHEN}).In(timezone('{ref.timezone or own}'))"

    def formatted(self, ref: RunRef) -> Iterator[tuple[bool, str]]:
        """A date as expressions (True) and the text between them (False)."""
        moment = self.moment(ref)
        return (
            (True, f"{moment}.Format('{word}')") if is_layout else (False, word) for is_layout, word in layouts(ref)
        )


def layouts(ref: RunRef) -> Iterator[tuple[bool, str]]:
    """The format of a date as layouts of Go (True) and the text between them (False)."""
    if ref.layout == MOMENT:
        yield True, "2006-01-02T15:04:05-07:00"
        return
    for together, words in groupby(pieces(ref.layout), lambda word: word in TOGETHER or BETWEEN.issuperset(word)):
        listed = list(words)
        if together and any(word in TOGETHER for word in listed):
            yield True, "".join(LAYOUTS.get(word, word) for word in listed)
        else:
            yield from ((word in LAYOUTS, LAYOUTS.get(word, "%" if word == "%%" else word)) for word in listed)


def before(schedule: Schedule) -> str:
    """The expression for the last scheduled time before the run's own.

    It goes back minute by minute to the next one that the cron could name, then in steps to one that it does name. The
    zone's own clock is read at each step, so hours that a clock skips or shows twice are as the controller sees them.
    """
    cron = clock.parse(schedule.cron)
    size = step_size(cron)
    grid = [minute for minute in range(60) if (minute - min(cron.minutes)) % size == 0]
    named = _names(cron, "#acc")
    walk = f"{named} ? #acc : #acc - duration('{size}m')"
    if size > 1:
        walk = f"{_among('#acc', '04', grid, 60)} ? ({walk}) : #acc - duration('1m')"
    start = f"(date({WHEN}) - duration('1s')).Truncate(duration('1m')).In(timezone('{schedule.timezone}'))"
    return f"filter([reduce(1..{steps_of(cron)}, {walk}, {start})], {_names(cron, '#')})[0]"


def step_size(cron: clock.Cron) -> int:
    """Minutes between moments that the cron could name. Clocks are set by half or whole hours, nothing else."""
    return math.gcd(30, *(later - earlier for earlier, later in pairwise(sorted(cron.minutes))))


def steps_of(cron: clock.Cron) -> int | None:
    """How many steps lead back to an earlier time for certain; None when that is too many, or there is no such time.

    One time may be skipped by the clock, so it is twice the longest way between two days that have times.
    """
    days = [date(2023, 1, 1) + timedelta(days=number) for number in range(366 * 3)]
    found = [day for day in days if cron.on(day)]
    if len(found) < 2:
        return None
    longest = max((later - earlier).days for earlier, later in pairwise(found)) * 24 * 60
    if longest == 24 * 60 and len(cron.hours) == 24:
        longest = 60
    steps = 2 * math.ceil(longest / step_size(cron)) + 60
    return steps if steps <= MOST_STEPS else None


def _names(cron: clock.Cron, moment: str) -> str:
    """Whether the cron names a moment."""
    by_date = _among(moment, "02", cron.days, 31)
    weekdays = ", ".join(f"'{WEEKDAYS[number]}'" for number in sorted(cron.weekdays))
    by_weekday = "" if len(cron.weekdays) == 7 else f"{moment}.Format('Mon') in [{weekdays}]"
    if cron.either:
        days = [f"({by_date} || {by_weekday})"] if by_date and by_weekday else []
    else:
        days = [by_date, by_weekday]
    month = _among(moment, "01", cron.months, 12)
    found = [_among(moment, "04", cron.minutes, 60), _among(moment, "15", cron.hours, 24), *days, month]
    return " && ".join(filter(None, found)) or "true"


def _among(moment: str, layout: str, numbers: Iterable[int], most: int) -> str:
    """Whether a part of a moment is one of these numbers; empty when it always is."""
    listed = sorted(numbers)
    if len(listed) == most:
        return ""
    words = ", ".join(f"'{number:02}'" for number in listed)
    return f"{moment}.Format('{layout}') in [{words}]"


def too_far_back(plan: Plan) -> Iterator[Finding]:
    """Schedules whose times lie further apart than an expression looks."""
    schedule = plan.pipeline.schedule
    if schedule is None or steps_of(clock.parse(schedule.cron)) is not None:
        return
    for _, _, where in dates_of(plan, "interval_start"):
        yield Finding(
            "GF301",
            f'argo does not support {{run: interval_start}} with the cron "{schedule.cron}": its times lie too far '
            "apart for an expression to find the one before",
            where,
            "compute it in the program from {run: logical_date}",
        )
        return


def without_schedule(plan: Plan) -> Iterator[Finding]:
    """What dates are in a run that no schedule started."""
    found = next(iter(dates_of(plan)), None)
    if found is not None:
        yield Finding(
            "GF334",
            f"dates of the run are {BY_HAND}",
            found[2],
            "argo submit --scheduled-time 2026-01-31T06:00:00Z sets it, for a missed or repeated time",
            "note",
        )
