"""Cron expressions for engines written in Go: their parser knows Sunday as 0, and refuses 7."""

from __future__ import annotations

DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


def go_cron(cron: str) -> str:
    """A checked expression of five fields with no 7 among its days of the week."""
    *others, days = cron.split()
    return " ".join([*others, ",".join(map(_without_seven, days.split(",")))])


def _without_seven(part: str) -> str:
    """One part of the field, as it is or, when it ends on 7, day by day."""
    span, _, step = part.partition("/")
    first, _, last = span.partition("-")
    if _number(last or first) != len(DAYS):
        return part
    found = {day % len(DAYS) for day in range(_number(first), len(DAYS) + 1, int(step or 1))}
    return ",".join(map(str, sorted(found)))


def _number(day: str) -> int:
    if day.lower() in DAYS:
        return DAYS.index(day.lower())
    return int(day) if day.isdecimal() else -1
