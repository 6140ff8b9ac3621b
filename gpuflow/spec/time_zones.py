"""Time zones by name."""

from __future__ import annotations

import re
from datetime import UTC, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from gpuflow.spec.model import problem

_ZONE = re.compile(r"[A-Z][A-Za-z]*(/[A-Z][A-Za-z0-9_+-]*){0,2}")

YEARS = range(1970, 9999)
"""Years that dates may have: the clock of every time zone can show them, and no engine's calendar ends there."""


def check_zone(name: str) -> str:
    """The name of a time zone, or GF168."""
    if not _is_zone(name):
        raise problem(
            "GF168", f'"{name}" is not a known time zone', "use an IANA name such as Europe/Berlin", at=("timezone",)
        )
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
