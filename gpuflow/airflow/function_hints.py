"""Type hints of a function as outputs: what it returns, under which names, and of which types.

-> None                      nothing is passed on
-> float, int, str, bool     one value of this type
-> dict[str, float]          one XCom for each key, all of this type
-> a TypedDict, a dataclass  one XCom for each field, of its type
anything else, or nothing    one value, any JSON
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any

SCALARS: dict[Any, str] = {int: "int", float: "float", bool: "bool", str: "string"}


@dataclasses.dataclass(frozen=True)
class Returned:
    """What a function returns."""

    hint: Mapping[str, Any] | None
    """As the program in the container checks it; None for nothing."""
    multiple: bool = False
    """Whether each key of the map is an output of its own."""


def returned(function: Callable[..., Any], multiple_outputs: bool | None, *, pushes: bool = True) -> Returned:
    """By the return hint; `multiple_outputs` overrules whether a map is one output or several."""
    kind = _return_type(function)
    if kind is NoneType or not pushes:
        return Returned(None)
    fields, each, needed = _fields(kind)
    if fields is None and each is None:
        if multiple_outputs:
            return Returned({"kind": "map", "fields": {}, "needed": [], "each": "json"}, True)
        return Returned({"kind": SCALARS.get(kind, "json")})
    hint = {"kind": "map", "fields": fields or {}, "needed": needed, "each": each or "json"}
    return Returned(hint, multiple_outputs is not False)


def _return_type(function: Callable[..., Any]) -> Any:
    """The return hint; `object` where there is none, or where it cannot be found out here."""
    try:
        return typing.get_type_hints(function).get("return", object)
    except Exception:  # names that only a type checker sees
        hint = getattr(function, "__annotations__", {}).get("return", object)
        return NoneType if hint in (None, "None") else object


def _fields(kind: Any) -> tuple[dict[str, str] | None, str | None, list[str]]:
    """Names and types of a map's entries, where they are known; the type of all of them; those that must be there."""
    if typing.is_typeddict(kind):
        hints = _hints(kind)
        return hints, None, sorted(kind.__required_keys__)
    if isinstance(kind, type) and (dataclasses.is_dataclass(kind) or hasattr(kind, "_fields")):
        hints = _hints(kind)
        return hints, None, sorted(hints)
    origin = typing.get_origin(kind) or kind
    if isinstance(origin, type) and issubclass(origin, Mapping):
        arguments = typing.get_args(kind)
        return None, SCALARS.get(arguments[1], "json") if len(arguments) == 2 else "json", []
    return None, None, []


def _hints(kind: Any) -> dict[str, str]:
    try:
        hints = typing.get_type_hints(kind)
    except Exception:
        hints = dict.fromkeys(kind.__annotations__, object)
    return {name: SCALARS.get(hint, "json") for name, hint in hints.items()}
