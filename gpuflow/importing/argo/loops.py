"""`withItems`, `withParam` and `withSequence` as `for_each`, or as one step for each item."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuflow.importing.listing import Listing, Place
from gpuflow.importing.plain import plain
from gpuflow.importing.texts import Parts, filled, plain_text

ITEM = "item"
MOST_UNROLLED = 50
"""So many items become steps of their own; more than that is no longer a pipeline that somebody reads."""
LOOPS = ("withItems", "withParam", "withSequence")


@dataclass(frozen=True)
class Loop:
    source: Any
    """What stands in `for_each`."""
    items: list[Any] | None = None
    """The items, where they are written."""

    @property
    def of_maps(self) -> bool:
        return any(isinstance(item, dict | list) for item in self.items or ())


def loop_of(task: Mapping[str, Any], scope: Any, listing: Listing, place: Place) -> Loop | None:
    """The loop of a task; None when it has none, or one that is listed."""
    kind = next((key for key in LOOPS if task.get(key) is not None), None)
    if kind is None:
        return None
    if kind == "withItems":
        return _written([_filled(item, scope, task, listing, place) for item in plain(task[kind])])
    if kind == "withSequence":
        return _sequence(task, scope, listing, place)
    parts, lost = filled(str(task[kind]), scope)
    text = plain_text(parts)
    if text is not None and not lost:
        try:
            items = json.loads(text)
        except ValueError:
            items = None
        if isinstance(items, list):
            return _written(items)
    if len(parts) == 1 and isinstance(parts[0], dict) and set(parts[0]) & {"param", "output"}:
        scope.draft.as_json(parts[0])
        return Loop(parts[0])
    where = place.of(task, kind)
    listing.cannot(f"withParam {task[kind]}", "it is neither a parameter nor an output that a step declares", where)
    return None


def _written(items: list[Any]) -> Loop:
    return Loop(items, items)


def _filled(item: Any, scope: Any, task: Mapping[str, Any], listing: Listing, place: Place) -> Any:
    if isinstance(item, dict):
        return {key: _filled(value, scope, task, listing, place) for key, value in item.items()}
    if not isinstance(item, str) or "{{" not in item:
        return item
    parts, lost = filled(item, scope)
    text = plain_text(parts)
    if lost or text is None:
        listing.cannot(f"item {item}", "an item of a list is no reference", place.of(task, "withItems"))
        return item
    return text


def _sequence(task: Mapping[str, Any], scope: Any, listing: Listing, place: Place) -> Loop | None:
    where = place.of(task, "withSequence")
    listing.fields(task["withSequence"], ("start", "end", "count", "format"), "withSequence", place)
    given = plain(task["withSequence"])
    numbers: dict[str, int] = {}
    for key in ("start", "end", "count"):
        if given.get(key) is None:
            continue
        text = plain_text(filled(str(given[key]), scope)[0])
        try:
            numbers[key] = int(text or "")
        except ValueError:
            listing.cannot(f"withSequence {key}", "only the run knows the number", where, "use a list: withParam")
            return None
    start = numbers.get("start", 0)
    stop = numbers["end"] + 1 if "end" in numbers else start + numbers.get("count", 0)
    if stop <= start:
        listing.cannot("withSequence", "it counts down, or is empty", where, "write the numbers out: withItems")
        return None
    form = given.get("format")
    if form is None:
        return Loop({"range": {"start": start, "stop": stop} if start else stop})
    if stop - start > 1000:
        listing.cannot("withSequence format", "a range has no format, and the list is too long", where)
        return None
    try:
        return _written([form % number for number in range(start, stop)])
    except (TypeError, ValueError):
        listing.cannot("withSequence format", f"{form} is not understood", where, "write the items out: withItems")
        return None


def literal_item(item: Any) -> Parts | dict[str, Any]:
    """What {{item}} is for one item that is a step of its own."""
    if isinstance(item, dict):
        return {str(key): (_text(value),) for key, value in item.items()}
    return (_text(item),)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
