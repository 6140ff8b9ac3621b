"""Plain data as YAML, always the same bytes, and read the same way by YAML 1.1 and 1.2 readers.

PyYAML's own emitters leave `y`, `1e3` and `0o7` bare, fold long lines, and change with what other libraries patch into
them; artifacts that are committed and diffed need none of that. Block style, no anchors, no folding; text that spans
lines becomes a literal block where that is exact, everything doubtful is double-quoted,
and what a reader would not see is an escape.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from gpuflow.core import printable

_PLAIN_SCALAR = re.compile(
    r"(?:--?(?=[A-Za-z]))?[A-Za-z_/](?:[A-Za-z0-9_./@+=,-]|:(?=[^\s])|[ ](?=[^\s#]))*"
    r"|[0-9]+(?:[KMGTPE]i|[mkMGTP]|g\.[0-9]+gb)|(?:[0-9]+[dhms])+"  # amounts, MIG profiles, durations
)
LONGEST_KEY = 1000
"""YAML reads `key: value` only up to 1,024 characters; longer keys are written `? key`."""
_LISTS, _COLLECTIONS = (list, tuple), (list, tuple, Mapping)
_SCALARS = frozenset((bool, int, float, type(None)))
_WrittenLines = dict[tuple[int, str], tuple[Any, slice]]
"""Where the lines of a map or list stand already, by its identity and what stands before its first line. The map or
list itself is kept as well: while it lives, no other has its identity."""
_YAML_KEYWORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null", "inf", "nan"}


class RawScalar(str):
    """Text that stands in the document as it is: somebody else's spelling of a number, a boolean or null."""

    __slots__ = ()


def emit(data: Any) -> str:
    """One document, ending with a newline."""
    alone = _leaf(data, "")
    if alone is not None:
        return alone + "\n"
    lines: list[str] = []
    _write(data, "", lines, {}, "")
    return "\n".join(lines) + "\n"


def emit_all(documents: list[Any]) -> str:
    """Several documents, separated by `---`."""
    return "---\n".join(emit(document) for document in documents)


def _leaf(value: Any, indent: str) -> str | None:
    """What stands behind a key or a dash; None for a map or list that has lines of its own."""
    # Most values are text; the exact types are asked first, since asking for Mapping is slow.
    kind = type(value)
    if kind is str:
        return _cached_text(value) if "\n" not in value else _scalar(value, indent)
    if value and (kind is dict or kind is list or (kind not in _SCALARS and isinstance(value, _COLLECTIONS))):
        return None
    return _scalar(value, indent)


def _write(value: Any, indent: str, lines: list[str], known: _WrittenLines, first: str) -> None:
    """Add the lines of a map or list; `first` stands before the first instead of the indent (`- `). Steps that are
    alike share their settings: the lines of one and the same map are made once for each depth."""
    place = (id(value), first)
    before = known.get(place)
    if before is not None:
        lines += lines[before[1]]
        return
    begin = len(lines)
    if type(value) is dict or not isinstance(value, _LISTS):
        _write_map(value, indent, lines, known, first)
    else:
        _write_list(value, indent, lines, known, first)
    known[place] = value, slice(begin, len(lines))


def _write_list(value: Any, indent: str, lines: list[str], known: _WrittenLines, first: str) -> None:
    deeper = indent + "  "
    for item in value:
        leaf = _leaf(item, indent)
        if leaf is not None:
            lines.append(f"{first}- {leaf}")
        else:
            _write(item, deeper, lines, known, f"{first}- ")
        first = indent


def _write_map(value: Any, indent: str, lines: list[str], known: _WrittenLines, first: str) -> None:
    deeper = indent + "  "
    for key, item in value.items():
        name = _cached_text(key) if type(key) is str else key if type(key) is RawScalar else _cached_text(str(key))
        if len(name) > LONGEST_KEY:
            lines.append(f"{first}? {name}")
            first, name = indent, ""
        kind = type(item)
        if kind is str and "\n" not in item:  # as `_leaf` says; most values, so without a call
            lines.append(f"{first}{name}: {_cached_text(item)}")
        elif (kind is dict and item) or (leaf := _leaf(item, indent)) is None:
            lines.append(f"{first}{name}:")
            # Sequences stand at the key's own column, as kubectl and most hand-written manifests have them.
            inside = deeper if kind is dict or not isinstance(item, _LISTS) else indent
            if kind is dict and len(item) < 3:  # to remember where so few lines are costs more than to write them
                _write_map(item, inside, lines, known, inside)
            else:
                _write(item, inside, lines, known, inside)
        else:
            lines.append(f"{first}{name}: {leaf}")
        first = indent


def _scalar(value: Any, indent: str) -> str:
    if isinstance(value, str):
        if type(value) is RawScalar:
            return value
        return ("\n" in value and _literal(value, indent)) or _cached_text(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, Mapping):
        return "{}"
    if isinstance(value, _LISTS):
        return "[]"
    raise TypeError(f"{type(value).__name__} cannot be written as YAML")


def _float(value: float) -> str:
    if not math.isfinite(value):
        return {math.inf: ".inf", -math.inf: "-.inf"}.get(value, ".nan")
    text = repr(float(value))
    # YAML 1.1 reads 2e-05 as text: it wants a dot.
    return text.replace("e", ".0e") if "e" in text and "." not in text else text


@lru_cache(maxsize=65536)
def _cached_text(text: str) -> str:
    """Keys and values as text: manifests have few different ones, many times each."""
    if _PLAIN_SCALAR.fullmatch(text) and text.lower() not in _YAML_KEYWORDS:
        return text
    return printable.escape_literal(json.dumps(text, ensure_ascii=False))


def _literal(text: str, indent: str) -> str | None:
    """A `|` block when it holds exactly this text, else None."""
    if text[0] in " \n" or not printable.fits_block(text) or not text.strip("\n"):
        return None
    lines = text.removesuffix("\n").split("\n")
    chomp = "|-" if not text.endswith("\n") else "|+" if text.endswith("\n\n") else "|"
    return chomp + "\n" + "\n".join(f"{indent}  {line}" if line else "" for line in lines)
