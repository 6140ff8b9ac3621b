"""Plain data as bytes, to be compared, looked up and searched faster than the data itself."""

from __future__ import annotations

import marshal
from typing import Any, Final

_PLAIN: Final = 2
"""The version of `marshal` that writes equal values as equal bytes, whoever else holds them."""


def content_of(data: Any) -> bytes | None:
    """The bytes of plain maps, lists and scalars; None where a type of somebody's own, a kind of str too, is in it."""
    try:
        return marshal.dumps(data, _PLAIN)
    except ValueError:
        return None


def data_of(content: bytes) -> Any:
    """The data whose `content_of` this is."""
    return marshal.loads(content)
