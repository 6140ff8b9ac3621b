"""A place in a document with its value: every field is read through it, so that every fault says where it stands."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpuflow.core.errors import GpuflowError, Where, did_you_mean, fail
from gpuflow.formats.documents import Document
from gpuflow.kubernetes.resources import read_quantity
from gpuflow.quantity import Quantity

MAX_INT32: Final = 2**31 - 1
"""The largest number that Kubernetes takes for replicas and the like."""
Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Part:
    """A value of a document and the way to it."""

    document: Document
    path: Path
    value: Any

    @property
    def name(self) -> str:
        """The way to it as people write it: `spec.tasks[0].replicas`."""
        text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path)
        return text.lstrip(".") or self.document.kind

    @property
    def where(self) -> Where:
        return self.document.where(*self.path)

    @property
    def key_where(self) -> Where:
        return self.document.where(*self.path, key=True)

    def fault(self, text: str, hint: str | None = None) -> GpuflowError:
        """GF736: what is wrong with this value."""
        return fail("GF736", f"{_owner(self.document)}: {self.name} {text}", where=self.where, hint=hint)

    def at(self, *path: str | int) -> Part | None:
        """The part at a path below this one; None if it is absent or null. Everything on the path must be a map."""
        found = self
        for step in path:
            value = found.mapping.get(step) if isinstance(step, str) else found.value[step]
            if value is None:
                return None
            found = found.below(step, value)
        return found

    def below(self, step: str | int, value: Any) -> Part:
        """A value right below this one."""
        return Part(self.document, (*self.path, step), value)

    def need(self, *path: str | int, what: str | None = None) -> Part:
        """The same for what must be there: GF737."""
        found = self.at(*path)
        if found is None:
            missing = Part(self.document, (*self.path, *path), None)
            why = f", {what}" if what else ""
            raise fail("GF737", f"{_owner(self.document)} has no {missing.name}{why}", where=missing.where)
        return found

    @property
    def mapping(self) -> Mapping[str, Any]:
        if not isinstance(self.value, Mapping):
            raise self.fault(f"must be a map, not {describe_value(self.value)}")
        return self.value

    def items(self) -> Iterator[Part]:
        """The entries of a list of maps."""
        if not isinstance(self.value, list):
            raise self.fault(f"must be a list, not {describe_value(self.value)}")
        for index, item in enumerate(self.value):
            part = self.below(index, item)
            _ = part.mapping
            yield part

    def items_at(self, *path: str | int) -> Iterator[Part]:
        """The entries of a list of maps that may be absent."""
        found = self.at(*path)
        return iter(()) if found is None else found.items()

    def entries(self) -> Iterator[tuple[str, Part]]:
        """The entries of a map of maps that are not null."""
        for key, value in self.mapping.items():
            if value is not None:
                yield str(key), self.below(key, value)

    def count(self, key: str, default: int, least: int = 0) -> int:
        """A number of pods or of attempts."""
        found = self.at(key)
        return default if found is None else found.whole(least)

    def whole(self, least: int = 0) -> int:
        """This value as a whole number of 32 bits."""
        value = self.value
        if isinstance(value, bool) or not isinstance(value, int):
            hint = "write it without quotes" if isinstance(value, str) and value.isdigit() else None
            raise self.fault(f"must be a whole number, not {describe_value(value)}", hint)
        if not least <= value <= MAX_INT32:
            raise self.fault(f"must be between {least} and {MAX_INT32}, not {describe_value(value)}")
        return int(value)

    def text(self, key: str, default: str | None = None, choices: Collection[str] = ()) -> str | None:
        """A text, perhaps one of some words."""
        found = self.at(key)
        if found is None:
            return default
        if not isinstance(found.value, str):
            raise found.fault(f"must be text, not {describe_value(found.value)}")
        if choices and found.value not in choices:
            hint = did_you_mean(found.value, choices) or f"use {', '.join(choices)}"
            raise found.fault(f"must be one of {', '.join(choices)}, not {describe_value(found.value)}", hint)
        return found.value

    def flag(self, key: str, default: bool = False) -> bool:
        """True or false."""
        found = self.at(key)
        if found is None:
            return default
        if not isinstance(found.value, bool):
            raise found.fault(f"must be true or false, not {describe_value(found.value)}")
        return found.value

    def labels(self, key: str = "labels") -> dict[str, str]:
        """A map of texts, such as the labels of `metadata`."""
        found = self.at(key)
        return {} if found is None else {name: found.text(name) or "" for name in found.mapping}

    def labels_at(self, key: str, texts: str) -> dict[str, str]:
        """The same of a map below this one that may be absent."""
        found = self.at(key)
        return {} if found is None else found.labels(texts)

    def quantity(self) -> Quantity:
        """This value as an amount."""
        try:
            found = read_quantity(getattr(self.value, "text", self.value))
        except ValueError as refusal:
            raise self.fault(f"is {describe_value(self.value)}: {refusal}") from None
        if found < Quantity.zero:
            raise self.fault(f"is {describe_value(self.value)}; an amount cannot be negative")
        return found

    def amount_text(self) -> str:
        """This value as an amount, as it is spelled."""
        self.quantity()
        return str(getattr(self.value, "text", self.value))


def surge_of(spec: Part, count: int) -> int:
    """How many pods a rolling update starts before it stops old ones; a quarter, rounded up, when nothing is said."""
    strategy = spec.at("strategy")
    if strategy is not None and strategy.text("type", "RollingUpdate", ("RollingUpdate", "Recreate")) == "Recreate":
        return 0
    rolling = None if strategy is None else strategy.at("rollingUpdate")
    return amount_or_percentage(None if rolling is None else rolling.at("maxSurge"), count, "25%")


def amount_or_percentage(part: Part | None, count: int, default: str) -> int:
    """A number, or a percentage of `count` rounded up."""
    value: Any = default if part is None else part.value
    if isinstance(value, str) and value.endswith("%") and value[:-1].isascii() and value[:-1].isdigit():
        if len(value) <= 5:
            return -(-count * int(value[:-1]) // 100)
    elif part is not None and isinstance(value, int):
        return part.whole()
    assert part is not None
    raise part.fault("must be a whole number or a percentage", "write 1 or 25%")


def _owner(document: Document) -> str:
    return f"{document.kind} {document.name}"


def describe_value(value: object) -> str:
    """A value in a message."""
    if isinstance(value, Mapping):
        return "a map"
    if isinstance(value, list):
        return "a list"
    text = repr(str(value)) if isinstance(value, str) else str(getattr(value, "text", value))
    return text if len(text) <= 60 else f"{text[:57]}..."
