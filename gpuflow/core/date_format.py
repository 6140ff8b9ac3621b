"""Dates as text: the strftime directives that mean the same on every engine, with English names whatever the locale."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime

DATE = "%Y-%m-%d"
"""How a date is written when nothing else is said."""
TIMESTAMP = "%Y-%m-%dT%H:%M:%S%:z"
"""How a moment is written when nothing else is said: RFC 3339 with the offset in digits, also in UTC."""
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

DIRECTIVES: dict[str, tuple[str, Callable[[datetime], str]]] = {
    "%Y": ("year", lambda moment: f"{moment.year:04}"),
    "%y": ("year of the century", lambda moment: f"{moment.year % 100:02}"),
    "%m": ("month, 01 to 12", lambda moment: f"{moment.month:02}"),
    "%B": ("month, January", lambda moment: MONTHS[moment.month - 1]),
    "%b": ("month, Jan", lambda moment: MONTHS[moment.month - 1][:3]),
    "%d": ("day, 01 to 31", lambda moment: f"{moment.day:02}"),
    "%j": ("day of the year, 001 to 366", lambda moment: f"{moment.timetuple().tm_yday:03}"),
    "%A": ("weekday, Monday", lambda moment: DAYS[moment.weekday()]),
    "%a": ("weekday, Mon", lambda moment: DAYS[moment.weekday()][:3]),
    "%H": ("hour, 00 to 23", lambda moment: f"{moment.hour:02}"),
    "%I": ("hour, 01 to 12", lambda moment: f"{(moment.hour - 1) % 12 + 1:02}"),
    "%p": ("AM or PM", lambda moment: "PM" if moment.hour >= 12 else "AM"),
    "%M": ("minute", lambda moment: f"{moment.minute:02}"),
    "%S": ("second", lambda moment: f"{moment.second:02}"),
    "%z": ("offset, +0100", lambda moment: _offset(moment, "")),
    "%:z": ("offset, +01:00", lambda moment: _offset(moment, ":")),
    "%%": ("a percent sign", lambda moment: "%"),
}
"""What a format may hold: what each directive gives, in words and as a function."""
_PIECE = re.compile(r"(?P<text>[^%]+)|(?P<directive>%(?::z|.)?)", re.DOTALL)
_LONGHAND = {"%F": "%Y-%m-%d", "%T": "%H:%M:%S", "%D": "%m/%d/%y", "%R": "%H:%M", "%h": "%b"}


def pieces(form: str) -> list[str]:
    """A format as directives and the text between them. `ValueError` says which directive is not one."""
    found = [match[0] for match in _PIECE.finditer(form)]
    for piece in found:
        if piece.startswith("%") and piece not in DIRECTIVES:
            instead = f"; write {_LONGHAND[piece]}" if piece in _LONGHAND else ""
            what = "a single % at the end" if piece == "%" else f'"{piece}"'
            raise ValueError(f"{what} is not a directive that every engine has{instead}")
    if not found:
        raise ValueError("the format is empty")
    return found


def format_date(moment: datetime, form: str) -> str:
    """A moment, with its time zone, as the format says."""
    return "".join(DIRECTIVES[piece][1](moment) if piece.startswith("%") else piece for piece in pieces(form))


def _offset(moment: datetime, colon: str) -> str:
    offset = moment.utcoffset()
    if offset is None:
        raise ValueError(f"{moment} has no time zone")
    minutes = round(offset.total_seconds() / 60)
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}{colon}{abs(minutes) % 60:02}"
