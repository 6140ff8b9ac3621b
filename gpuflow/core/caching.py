"""Keys and tables for caches: facts by type, objects by identity, plain data as bytes.

`ByType` looks up what is known of a type once for each type, because a chain of `isinstance` calls is slow, and slowest
for the classes of pydantic. `IdentityKey` makes a key of an object that does not change and has no hash. `content_of`
turns plain data into bytes that are compared and looked up faster than the data.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

V = TypeVar("V")


class ByType(dict[type, V]):
    """A table from types to what `find` says of them; `find` must look at nothing but the type."""

    __slots__ = ("_find",)

    def __init__(self, find: Callable[[type], V]) -> None:
        super().__init__()
        self._find = find

    def __missing__(self, kind: type) -> V:
        found = self[kind] = self._find(kind)
        return found


T = TypeVar("T")


class IdentityKey(Generic[T]):
    """Equal to nothing but itself. It holds the object, so that no other gets its identity while the key is kept."""

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IdentityKey) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


_MARSHAL_VERSION: Final = 2
"""The version of `marshal` that writes equal values as equal bytes, whoever else holds them."""


def content_of(data: Any) -> bytes | None:
    """The bytes of plain maps, lists and scalars; None if any value has another type, subclasses of str included."""
    try:
        return marshal.dumps(data, _MARSHAL_VERSION)
    except ValueError:
        return None


def data_of(content: bytes) -> Any:
    """The data whose `content_of` this is."""
    return marshal.loads(content)
