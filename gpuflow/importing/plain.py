"""Values of a file as plain data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any


def plain(value: Any) -> Any:
    """Without the reader's own classes for maps, lists and numbers."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return int(value)
    return float(value) if isinstance(value, float) else value


def mapping(value: Any) -> Mapping[str, Any]:
    """The value, when it is a map; else an empty one."""
    return value if isinstance(value, Mapping) else {}


def maps(value: Any) -> list[Mapping[str, Any]]:
    """The maps of a list."""
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def whole_number(value: Any) -> int | None:
    """A number from 0 up that Argo and Kubernetes read too, be it as text; None for anything else."""
    text = str(value)
    return int(text) if re.fullmatch("[0-9]{1,18}", text) else None


def texts(value: Any) -> list[Any]:
    """The items of a list."""
    return value if isinstance(value, list) else []
