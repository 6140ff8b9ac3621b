"""Time zones by name."""

from __future__ import annotations

import re
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from gpuflow.spec.model import problem

_ZONE = re.compile(r"[A-Z][A-Za-z]*(/[A-Z][A-Za-z0-9_+-]*){0,2}")


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
