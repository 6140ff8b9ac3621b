"""True or false in a manifest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuflow.resources import BadField


def read_flag(holder: Mapping[str, Any], field: str, where: str) -> bool | None:
    """A flag; `None` when the manifest does not say. The text "false" is none: the API server refuses it."""
    value = holder.get(field)
    if value is not None and not isinstance(value, bool):
        raise BadField(f"{where}.{field}", f"must be true or false, not {value!r}")
    return value
