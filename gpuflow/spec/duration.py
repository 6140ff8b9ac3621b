"""Durations as people write them: `30s`, `10m`, `1h30m`, `2d`. Whole seconds; kept exact."""

from __future__ import annotations

import re
from functools import lru_cache, total_ordering

_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
LONGEST = 2**31 - 1
"""Kubernetes keeps seconds in 32 bits."""
_PATTERN = re.compile(r"(?:(\d{1,9})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?")


@total_ordering
class Duration:
    """A positive span of whole seconds. `str()` gives the shortest spelling: `Duration("90m")` prints `1h30m`."""

    __slots__ = ("seconds",)
    seconds: int

    def __init__(self, value: str | int | Duration) -> None:
        object.__setattr__(self, "seconds", _seconds(value))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("Duration is immutable")

    def __reduce__(self) -> tuple[type[Duration], tuple[int]]:
        return Duration, (self.seconds,)

    def __str__(self) -> str:
        return _shortest_text(self.seconds)

    def __repr__(self) -> str:
        return f"Duration({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Duration) and self.seconds == other.seconds

    def __lt__(self, other: Duration) -> bool:
        return self.seconds < other.seconds

    def __hash__(self) -> int:
        return hash(self.seconds)


@lru_cache(maxsize=1024)
def _shortest_text(seconds: int) -> str:
    rest, text = seconds, ""
    for unit, size in _UNITS.items():
        count, rest = divmod(rest, size)
        text += f"{count}{unit}" if count else ""
    return text or "0s"


def _seconds(value: object) -> int:
    seconds: int | None = None
    if isinstance(value, Duration):
        seconds = value.seconds
    elif isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        seconds = int(value)
    elif isinstance(value, str):
        seconds = _parse_seconds(str(value))
    if seconds is None:
        raise ValueError(f"{value!r} is not a duration; write it like 30s, 10m, 1h30m or 2d")
    if seconds > LONGEST:
        raise ValueError(f"{value!r} is longer than {LONGEST // 86400:,} days, the longest duration there is")
    return seconds


@lru_cache(maxsize=1024)
def _parse_seconds(text: str) -> int | None:
    match = _PATTERN.fullmatch(text.strip()) if text.strip() else None
    if match is None:
        return None
    return sum(int(count) * size for count, size in zip(match.groups(), _UNITS.values(), strict=True) if count)
