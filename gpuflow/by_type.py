"""What is known of a type, found out once for each: for walks that meet the same few types many thousand times.

Asking `isinstance` along a ladder is slow, and slowest for the classes of pydantic, which answer in Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Known = TypeVar("Known")


class ByType(dict[type, Known]):
    """A table from types to what `find` says of them; `find` must look at nothing but the type."""

    __slots__ = ("_find",)

    def __init__(self, find: Callable[[type], Known]) -> None:
        super().__init__()
        self._find = find

    def __missing__(self, kind: type) -> Known:
        found = self[kind] = self._find(kind)
        return found
