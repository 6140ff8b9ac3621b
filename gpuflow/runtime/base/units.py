"""Durations and sizes as people write them (`30s`, `1h30m`, `200M`, `1.5Gi`), and any text as one line of a log."""

from __future__ import annotations

import re

_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_BYTES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def seconds(text: str) -> float:
    """`"1h30m"` is 5400.0; a bare number is seconds."""
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|[dhms])", text)
    if parts and "".join(number + unit for number, unit in parts) == text:
        return sum(float(number) * _SECONDS[unit] for number, unit in parts)
    if re.fullmatch(r"\d+(?:\.\d+)?", text):
        return float(text)
    raise ValueError(f'"{text}" is not a duration; write it like 30s, 10m or 1h30m')


def size(text: str) -> int:
    """`"1.5Gi"` is 1610612736 bytes; a bare number is bytes."""
    if (match := re.fullmatch(r"(\d+(?:\.\d+)?)([kMGT]?|[KMGT]i)", text)) is None:
        raise ValueError(f'"{text}" is not a size; write it like 500k, 200M or 1.5Gi')
    return int(float(match.group(1)) * _BYTES[match.group(2)])


def format_seconds(span: float) -> str:
    """A span for a person: `0.4 s`, `12 s`, `3 min`, `2.5 h`."""
    for limit, unit, name in ((3600.0, 3600.0, "h"), (120.0, 60.0, "min")):
        if span >= limit:
            return f"{span / unit:.3g} {name}"
    return f"{span:.2g} s" if span < 10 else f"{span:.0f} s"


def one_line(text: str) -> str:
    """Line ends, terminal codes and characters that cannot be seen, or that turn text around, as escapes."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _escape(letter) for letter in text)


def _escape(letter: str) -> str:
    return letter.encode("unicode_escape", "backslashreplace").decode("ascii")
