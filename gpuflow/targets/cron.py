"""Cron expressions in the words of each engine's parser.

That of engines written in Go knows Sunday as 0, and refuses 7. Airflow's is croniter.
"""

from __future__ import annotations

import re

from gpuflow.core.cron import parse

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


_PLAIN_FIELD = re.compile(r"\*(?:/(?!1$)\d+)?|\w+|(\w+)-(\w+)(?:/\d+)?")


def airflow_cron(expression: str) -> str:
    """A checked expression in words that croniter, under Airflow, reads as everybody else does.

    It takes 5-5 for every number, 50/20 for a step that goes round, and a field that names every weekday for one that
    names none. Where such words stand, the numbers themselves are written.
    """
    cron, words = parse(expression), expression.split()
    all_days = cron.either and (len(cron.weekdays) == 7 or len(cron.days) == 31)
    if not all_days and all(_is_plain(part) for word in words for part in _parts(word)):
        return expression
    days, weekdays = (frozenset(), frozenset()) if all_days else (cron.days, cron.weekdays)
    sets = (cron.minutes, cron.hours, days, cron.months, weekdays)
    return " ".join(map(_cron_list, sets, (60, 24, 31, 12, 7)))


def _parts(word: str) -> list[str]:
    """The parts of a field. One that is `*` among others says it all, and croniter does not see that it does."""
    parts = word.split(",")
    return ["?"] if len(parts) > 1 and any(part.startswith("*") for part in parts) else parts


def _is_plain(part: str) -> bool:
    match = _PLAIN_FIELD.fullmatch(part)
    return match is not None and (match[1] is None or match[1].lstrip("0").lower() != match[2].lstrip("0").lower())


def _cron_list(numbers: frozenset[int], most: int) -> str:
    return ",".join(map(str, sorted(numbers))) if 0 < len(numbers) < most else "*"
