"""Values of a manifest as they are written: maps, lists and texts, whatever somebody put in their place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpuflow import yaml_tree

LARGEST = 2**63 - 1
"""Go's int64, in which Argo counts."""


def mapping(value: object) -> Mapping[str, Any]:
    """The value if it is a map; else an empty one."""
    return value if isinstance(value, Mapping) else {}


def listing(value: object) -> list[Any]:
    """The value if it is a list; else an empty one."""
    return value if isinstance(value, list) else []


def maps_in(value: object) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The maps of a list, with their places."""
    for index, each in enumerate(listing(value)):
        if isinstance(each, Mapping):
            yield index, each


def text_of(value: object) -> str | None:
    """A scalar as the text that Argo makes of it; None of anything else."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case yaml_tree.Int() | yaml_tree.Float():
            return value.text
        case str():
            return value
        case int() | float():
            return str(value)
        case _:
            return None


def number_of(value: object) -> int | None:
    """A whole number, written as one or as text, that Go can hold."""
    text = text_of(value)
    if text is None or isinstance(value, bool) or len(text) > 20:
        return None
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isascii() and digits.isdigit()):
        return None
    found = int(text)
    return found if -LARGEST - 1 <= found <= LARGEST else None


def plain(value: Any) -> Any:
    """The value in Python's own types; a fraction keeps its spelling, and a key without a value is none."""
    match value:
        case Mapping():
            return {str(key): plain(each) for key, each in value.items() if each is not None}
        case list():
            return [plain(each) for each in value]
        case yaml_tree.Int():
            return int(value)
        case yaml_tree.Float():
            return value.text
        case _:
            return value
