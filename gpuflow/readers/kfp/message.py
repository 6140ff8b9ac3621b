"""A protobuf message as JSON or YAML says it, with the place of every field.

Kubeflow reads its documents as protobuf's JSON: a field may be called `cpuLimit` or `cpu_limit`, whole numbers may be
texts, and null is the same as nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from gpuflow.errors import GpuflowError, Where, fail
from gpuflow.readers.documents import Document
from gpuflow.readers.kfp.arriving import arriving


@dataclass(frozen=True, slots=True)
class Message:
    """A mapping of a document; an empty one where there is none."""

    document: Document
    path: tuple[str | int, ...]
    value: Mapping[str, Any]
    shown_from: int = 0
    """How much of the path is left out when it is named."""

    def where(self, *names: str, key: bool = False) -> Where:
        """The place of the message, or of a field of it."""
        return self.document.where(*self.path, *(self._key(name) or name for name in names[:1]), *names[1:], key=key)

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None

    def get(self, name: str) -> Any:
        """The value of a field as it is written; None where there is none."""
        value = self.value.get(name)
        return self.value.get(snake(name)) if value is None and self.value else value

    def message(self, name: str) -> Message:
        """A field that is a message."""
        value = self.get(name)
        if value is None:
            return Message(self.document, (*self.path, name), {}, self.shown_from)
        if not isinstance(value, Mapping):
            raise self._wrong(name, value, "a mapping")
        return Message(self.document, (*self.path, self._key(name) or name), value, self.shown_from)

    def arrived(self) -> Message:
        """The message as KFP's driver reads it in the arguments of its pod."""
        return replace(self, value=arriving(self.value))

    def entry(self, name: str) -> Message:
        """The message under a key of a map, whose keys are nobody's field names."""
        value = self.value.get(name)
        if value is not None and not isinstance(value, Mapping):
            raise wrong(self.document, (*self.path, name), value, "a mapping", self.shown_from)
        return Message(self.document, (*self.path, name), value or {}, self.shown_from)

    def entries(self) -> Iterator[tuple[str, Message]]:
        """The messages of a map."""
        for name in self.value:
            yield name, self.entry(name)

    def messages(self, name: str) -> Iterator[Message]:
        """A field that is a list of messages."""
        listed = self._list(name)
        path = (*self.path, self._key(name) or name) if listed else ()
        for index, value in enumerate(listed):
            if not isinstance(value, Mapping):
                raise wrong(self.document, (*path, index), value, "a mapping", self.shown_from)
            yield Message(self.document, (*path, index), value, self.shown_from)

    def texts(self, name: str) -> list[str]:
        """A field that is a list of texts."""
        path = (*self.path, self._key(name) or name)
        for index, value in enumerate(self._list(name)):
            if not isinstance(value, str):
                raise wrong(self.document, (*path, index), value, "a text", self.shown_from)
        return list(self._list(name))

    def text(self, name: str) -> str:
        """A text; empty where there is none."""
        value = self.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self._wrong(name, value, "a text")
        return value

    def flag(self, name: str) -> bool:
        """A bool; false where there is none."""
        value = self.get(name)
        if value is not None and not isinstance(value, bool):
            raise self._wrong(name, value, "true or false")
        return bool(value)

    def whole(self, name: str) -> int:
        """A whole number; 0 where there is none."""
        value = self.get(name)
        if value is None:
            return 0
        if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,19}", value):
            return int(value)
        if isinstance(value, bool) or not isinstance(value, int | float) or not _is_whole(value):
            raise self._wrong(name, value, "a whole number")
        return int(value)

    def number(self, name: str) -> float:
        """A number; 0 where there is none."""
        value = self.get(name)
        if value is None:
            return 0.0
        try:
            found = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else math.nan
        except (ValueError, OverflowError):
            found = math.nan
        if not math.isfinite(found):
            raise self._wrong(name, value, "a number")
        return found

    def strings(self, name: str) -> dict[str, str]:
        """A map of texts."""
        found = self.message(name)
        for key, value in found.value.items():
            if not isinstance(value, str):
                raise wrong(self.document, (*found.path, key), value, "a text", self.shown_from)
        return dict(found.value)

    def _list(self, name: str) -> list[Any]:
        value = self.get(name)
        if value is not None and not isinstance(value, list):
            raise self._wrong(name, value, "a list")
        return value or []

    def _key(self, name: str) -> str | None:
        value = self.value
        if not value or value.get(name) is not None:
            return name if value else None
        other = snake(name)
        return other if value.get(other) is not None else None

    def _wrong(self, name: str, value: object, wanted: str) -> GpuflowError:
        return wrong(self.document, (*self.path, self._key(name) or name), value, wanted, self.shown_from)


def wrong(
    document: Document, path: tuple[str | int, ...], value: object, wanted: str, shown_from: int = 0
) -> GpuflowError:
    """GF726: a value of another shape."""
    named = ".".join(map(str, path[shown_from:]))
    return fail(
        "GF726",
        f"{named} is {_shown(value)}; it should be {wanted}",
        where=document.where(*path),
        hint="compile the pipeline again with kfp",
    )


def _shown(value: object) -> str:
    for kind, words in ((bool, "true or false"), (str, "a text"), (Mapping, "a mapping"), (list, "a list")):
        if isinstance(value, kind):
            return words
    return "nothing" if value is None else f"the number {str(value)[:20]}"


def _is_whole(value: float) -> bool:
    return math.isfinite(value) and int(value) == value and abs(value) < 2**63


@cache
def snake(name: str) -> str:
    """The name of a field as protobuf itself writes it."""
    return re.sub(r"[A-Z]", lambda letter: f"_{letter[0].lower()}", name)
