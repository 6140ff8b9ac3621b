"""Values from Python code, as a document would have them.

Code hands over members of an Enum, numpy's numbers and other kinds of str, int and float. They mean their text or their
number, but `str`, `repr` and f-strings ask the kind itself, which may answer with a name or a constructor.
"""

from __future__ import annotations

from typing import Any

from gpuflow.spec.text import Literally


def plain(value: Any) -> Any:
    """`value` with every text and number in it of Python's own type; what is neither, and no map or list, stays."""
    kind = type(value)
    if kind is str or kind is bool or kind is int or kind is float or kind is Literally:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, dict):
        return {plain(key): plain(item) for key, item in value.items()}
    if kind is list or kind is tuple:
        return kind(map(plain, value))
    return value
