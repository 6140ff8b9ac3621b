"""Fields of objects in a dump, which anybody may have edited: a field of another shape counts as absent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def part(body: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    """The map below these keys; empty where there is none."""
    for key in keys:
        found = body.get(key)
        body = found if isinstance(found, Mapping) else {}
    return body


def maps(value: object) -> list[Mapping[str, Any]]:
    """The maps of a list; none where it is no list."""
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def words(value: object) -> str | None:
    """A text that says something."""
    return str(value) if isinstance(value, str) and value.strip() else None


def conditions(body: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The conditions of an object's status by their types."""
    return {each["type"]: each for each in maps(part(body, "status").get("conditions")) if words(each.get("type"))}
