"""Null in a document: it takes away what would count otherwise, and is kept apart from the values of a model."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

Nulls = frozenset[tuple[str, ...]]
"""What is taken away: a field, or a field and a key of it."""


def nulls_in(fields: dict[str, Any], known: Collection[str], maps: Collection[str]) -> list[tuple[str, ...]]:
    """Where a map says null: in fields that are `known`, and for keys of those that are `maps`."""
    whole = [(name,) for name, value in fields.items() if value is None and name in known]
    keys = [
        (name, key)
        for name in maps
        if isinstance(fields.get(name), dict)
        for key, value in fields[name].items()
        if value is None and isinstance(key, str)
    ]
    return [*whole, *keys]


def without(fields: dict[str, Any], nulls: list[tuple[str, ...]]) -> dict[str, Any]:
    """The map with values alone."""
    result = {name: value for name, value in fields.items() if (name,) not in nulls}
    for name in {path[0] for path in nulls if len(path) > 1}:
        result[name] = {key: value for key, value in result[name].items() if value is not None}
    return result
