"""Where a document was written: its file, and the place of each of its parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpuflow.errors import Where

Path = tuple[str | int, ...]


def _nowhere(path: Path, key: bool) -> Where:
    return Where()


@dataclass(frozen=True, slots=True)
class Source:
    """`file` is None for a document that was never a file."""

    file: str | None = None
    locate: Callable[[Path, bool], Where] = _nowhere
    is_part: bool = False
    """Whether the document stands inside another one, whose file this is."""
