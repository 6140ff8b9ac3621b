"""When a pipeline starts by itself: a cron expression that every engine reads the same way, and the time zone."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, tzinfo
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from pydantic import PlainValidator, WithJsonSchema, model_validator

from gpuflow.core import cron as clock
from gpuflow.spec.model import Bool, Model, Str, as_spelled, problem

_ZONE = re.compile(r"[A-Z][A-Za-z]*(/[A-Z][A-Za-z0-9_+-]*){0,2}")

YEARS = range(1970, 9999)
"""Years that dates may have: the clock of every time zone can show them, and no engine's calendar ends there."""


def check_zone(name: str) -> str:
    """The name of a time zone, or GF168."""
    if not _is_zone(name):
        text = f'"{name}" is not a known time zone'
        raise problem("GF168", text, "use an IANA name such as Europe/Berlin", at=("timezone",))
    return name


def _is_zone(name: str) -> bool:
    """Whether the name is an IANA zone; on a machine without the database, whether it could be one."""
    try:
        return bool(ZoneInfo(name))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return bool(_ZONE.fullmatch(name)) and not available_timezones()


def zone_of(name: str) -> tzinfo:
    """The rules of a checked time zone. UTC needs no database."""
    return UTC if name == "UTC" else ZoneInfo(name)


def has_rules(name: str) -> bool:
    """Whether this machine knows the rules of a checked time zone."""
    try:
        return bool(zone_of(name))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False


def missing_rules_problem(name: str, what: str) -> tuple[str, str, str]:
    """Code, message and way out where the rules of a zone are needed and this machine has none."""
    text = f"this machine has no time zone database, so the clock of {name} is not known: {what}"
    return "GF345", text, "install it: pip install tzdata, or the system's package tzdata"


_CRON_MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}


def check_cron(text: str) -> str:
    """A five-field cron expression that every engine reads the same way."""
    text = _CRON_MACROS.get(text.strip().lower(), text.strip())
    fields = text.split()
    if len(fields) != 5:
        message = f'"{text}" has {len(fields)} fields; cron has five: minute hour day month weekday'
        raise problem("GF167", message, 'for example "0 0 * * *" for midnight')
    names = {"month": clock.MONTHS, "day of week": clock.WEEKDAYS}
    for word, (name, low, high) in zip(fields, clock.FIELDS, strict=True):
        for part in word.split(","):
            match = re.fullmatch(r"(\*|\w{1,3}(?:-\w{1,3})?)(?:/(\d{1,3}))?", part, re.ASCII)
            bounds = re.split("-", match[1]) if match and match[1] != "*" else []
            known = {each: clock.NAMES[each] for each in names.get(name, ())}
            numbers = [known.get(b.lower(), int(b) if b.isdecimal() else -1) for b in bounds]
            wrong = not match or any(not low <= n <= high for n in numbers) or numbers != sorted(numbers)
            if wrong or (match and match[2] is not None and int(match[2]) == 0):
                what = f"{'an' if name == 'hour' else 'a'} {name} ({low} to {high})"
                raise problem("GF167", f'"{part}" is not {what}', 'for example "0 0 * * *" for midnight')
    text = " ".join(fields)
    if not clock.parse(text).has_dates:
        raise problem("GF346", f'"{text}" names a date that never comes', "name a day that the month has")
    return text


def _start(value: Any) -> str:
    """A day, or a moment with or without an offset, in one spelling each."""
    text = value.isoformat() if isinstance(value, date) else as_spelled(value)
    found: date | None = None
    try:
        if re.fullmatch(r"\d{4}-\d\d-\d\d", text):
            found = date.fromisoformat(text)
        elif re.fullmatch(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(Z|[-+]\d\d:\d\d)?", text):
            found = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        pass
    if found is None:
        shown = f'"{text}"' if isinstance(text, str) else "this"
        raise problem("GF332", f"{shown} is not a date or a time", "write 2026-01-31, or 2026-01-31T06:00")
    if found.year not in YEARS:
        span = f"{YEARS.start} to {YEARS.stop - 1}"
        raise problem("GF332", f'"{text}" is not in a year that every engine has', f"write a year from {span}")
    return found.isoformat()


Start = Annotated[
    str, PlainValidator(_start), WithJsonSchema({"type": "string", "examples": ["2026-01-31", "2026-01-31T06:00:00"]})
]


class Schedule(Model, short="cron", form={"type": "string", "examples": ["0 0 * * *"]}):
    """Start on a schedule."""

    cron: Str
    """Five fields: minute hour day month weekday."""
    timezone: Str = "UTC"
    """An IANA time zone, for example Europe/Berlin."""
    start: Start | None = None
    """The first day or time that counts, in the schedule's time zone unless it has an offset. With catch_up, the times
    missed since then are run too."""
    catch_up: Bool = False
    """Also run for missed times."""
    concurrency: Literal["allow", "forbid", "replace"] = "forbid"
    """What to do when the previous run is still active."""
    suspended: Bool = False
    """Deploy the schedule, but do not start runs."""

    @model_validator(mode="after")
    def _check_cron(self) -> Schedule:
        cron = check_cron(self.cron)
        check_zone(self.timezone)
        object.__setattr__(self, "__dict__", {**self.__dict__, "cron": cron})
        return self

    @property
    def begins(self) -> datetime | None:
        """The moment of `start`, in the schedule's time zone."""
        if self.start is None:
            return None
        moment, zone = datetime.fromisoformat(self.start), zone_of(self.timezone)
        return moment.replace(tzinfo=zone) if moment.tzinfo is None else moment.astimezone(zone)
