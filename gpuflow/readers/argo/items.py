"""Loops: how many copies `withItems`, `withParam` and `withSequence` make, and of what. Nothing is written out.

Mirrors expandStep, expandTask, expandSequence and processItem of workflow/controller, Argo v4.0.2.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpuflow.readers.argo.parameters import Open, Scope, Value, opened
from gpuflow.readers.argo.values import LARGEST, listing, mapping, number_of, plain, text_of

FIELDS = ("withItems", "withParam", "withSequence")
_FORMAT = re.compile(r"[^%]*%(0?)(\d{0,2})([dxXo])[^%]*")


@dataclass(frozen=True)
class Items:
    """The items of a loop."""

    field: str
    count: int | Open
    listed: tuple[Any, ...] | None = None
    sequence: range | None = None
    format: str = "%d"

    def each(self) -> Iterator[Mapping[str, Value]]:
        """The variables of each item; only for loops that are known, and small enough to write out."""
        if self.listed is not None:
            yield from map(variables_of, self.listed)
        elif self.sequence is not None:
            for number in self.sequence:
                yield {"item": formatted(self.format, number)}


class BadLoop(ValueError):
    """A loop that Argo refuses."""


def items_of(call: Mapping[str, Any], scope: Scope) -> Items | None:
    """The loop of a step or task; None when it has none. Raises `BadLoop`."""
    if listing(call.get("withItems")):
        return _listed("withItems", plain(call["withItems"]), scope)
    with_param = text_of(call.get("withParam"))
    if with_param:
        text, missing = scope.filled(with_param)
        unknown = opened(missing)
        if unknown is not None:
            return Items("withParam", unknown)
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            raise BadLoop(f"withParam is not a JSON list: {text[:60]}") from None
        if found is None:
            found = []
        if not isinstance(found, list):
            raise BadLoop(f"withParam is not a JSON list: {text[:60]}")
        return Items("withParam", len(found), tuple(found))
    if isinstance(call.get("withSequence"), Mapping):
        return _sequence(call["withSequence"], scope)
    return None


def _listed(field: str, items: list[Any], scope: Scope) -> Items:
    found = []
    for item in items:
        text = item if isinstance(item, str) else None
        filled, missing = scope.filled(text) if text is not None else (item, ())
        if missing and "item" not in (text or ""):
            # The number of items is known all the same.
            return Items(field, len(items))
        found.append(filled)
    return Items(field, len(found), tuple(found))


def _sequence(sequence: Mapping[str, Any], scope: Scope) -> Items:
    numbers: dict[str, int] = {}
    for name in ("start", "end", "count"):
        written = text_of(sequence.get(name))
        if written is None or not written:
            continue
        text, missing = scope.filled(written)
        unknown = opened(missing)
        if unknown is not None:
            return Items("withSequence", unknown)
        number = number_of(text.strip() if "{{" in written else text)
        if number is None:
            raise BadLoop(f"withSequence.{name} is not a number: {text[:40]}")
        numbers[name] = number
    start = numbers.get("start", 0)
    if "end" in numbers:
        end = numbers["end"]
    elif "count" in numbers:
        if numbers["count"] == 0:
            return Items("withSequence", 0, ())
        end = start + numbers["count"] - 1
    else:
        raise BadLoop("withSequence has neither end nor count")
    if abs(end) > LARGEST:
        raise BadLoop("withSequence counts beyond what a number holds")
    steps = range(start, end + 1) if start <= end else range(start, end - 1, -1)
    written_format, missing = scope.filled(text_of(sequence.get("format")) or "%d")
    count = abs(end - start) + 1
    if missing or _FORMAT.fullmatch(written_format) is None:
        return Items("withSequence", count)
    return Items("withSequence", count, None, steps, written_format)


def formatted(form: str, number: int) -> str:
    """A number as Go's Sprintf writes it; only forms that `_FORMAT` takes."""
    match = _FORMAT.fullmatch(form)
    assert match is not None
    return form % number


def variables_of(item: Any) -> dict[str, Value]:
    """What `{{item}}` and `{{item.field}}` are for one item."""
    if isinstance(item, Mapping):
        fields: dict[str, Value] = {f"item.{key}": _text(each) for key, each in item.items()}
        return {"item": json.dumps(mapping(item), ensure_ascii=False, default=str), **fields}
    return {"item": _text(item)}


def _text(value: Any) -> str:
    text = text_of(value)
    return json.dumps(value, ensure_ascii=False, default=str) if text is None else text
