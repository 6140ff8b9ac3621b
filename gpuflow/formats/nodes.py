"""Values of a document of another tool, as they are written: a value of another type than expected counts as absent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpuflow.core import yaml_tree

MAX_INT64: Final = 2**63 - 1
"""Go's int64, in which Argo and Kubernetes count."""


def mapping(value: object) -> Mapping[str, Any]:
    """The value if it is a map; else an empty one."""
    return value if isinstance(value, Mapping) else {}


def as_list(value: object) -> list[Any]:
    """The value if it is a list; else an empty one."""
    return value if isinstance(value, list) else []


def maps_in(value: object) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The maps of a list, with their places."""
    for index, each in enumerate(as_list(value)):
        if isinstance(each, Mapping):
            yield index, each


def maps(value: object) -> list[Mapping[str, Any]]:
    """The maps of a list."""
    return [each for _, each in maps_in(value)]


def text_of(value: object) -> str | None:
    """A scalar as the text that Go makes of it; None of anything else."""
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
    return found if -MAX_INT64 - 1 <= found <= MAX_INT64 else None


def as_plain(value: Any, *, nulls: bool = False, numbers: bool = False) -> Any:
    """The value in Python's own types; a fraction keeps its spelling, but for `numbers`, and a key without a value is
    none, but for `nulls`: in a patch they take away."""
    match value:
        case Mapping():
            kept = value.items() if nulls else [(key, each) for key, each in value.items() if each is not None]
            return {str(key): as_plain(each, nulls=nulls, numbers=numbers) for key, each in kept}
        case list() | tuple():
            return [as_plain(each, nulls=nulls, numbers=numbers) for each in value]
        case yaml_tree.Int():
            return int(value)
        case yaml_tree.Float():
            return float(value) if numbers else value.text
        case _:
            return value


def plain_value(value: Any) -> Any:
    """The value in Python's own types, as `as_plain` gives it, but with numbers as numbers and every null."""
    return as_plain(value, nulls=True, numbers=True)
