"""Values of a manifest as they are written, and the variables of a workflow: which are known, and texts with the known
ones filled in.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gpuflow.core import yaml_tree
from gpuflow.readers.argo.expressions import NotConstant, evaluate

MAX_INT64 = 2**63 - 1
"""Go's int64, in which Argo counts."""


def mapping(value: object) -> Mapping[str, Any]:
    """The value if it is a map; else an empty one."""
    return value if isinstance(value, Mapping) else {}


def as_list(value: object) -> list[Any]:
    """The value if it is a list; else an empty one."""
    return value if isinstance(value, list) else []


def maps_in(value: object) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The maps of a list, with their places."""
    for index, each in enumerate(as_list(value)):
        if isinstance(each, Mapping):
            yield index, each


def text_of(value: object) -> str | None:
    """A scalar as the text that Argo makes of it; None of anything else."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case yaml_tree.Int() | yaml_tree.Float():
            return value.text
        case str():
            return value
        case int() | float():
            return str(value)
        case _:
            return None


def number_of(value: object) -> int | None:
    """A whole number, written as one or as text, that Go can hold."""
    text = text_of(value)
    if text is None or isinstance(value, bool) or len(text) > 20:
        return None
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isascii() and digits.isdigit()):
        return None
    found = int(text)
    return found if -MAX_INT64 - 1 <= found <= MAX_INT64 else None


def as_plain(value: Any, *, nulls: bool = False) -> Any:
    """The value in Python's own types; a fraction keeps its spelling, and a key without a value is none, but for
    `nulls`: in a patch they take away."""
    match value:
        case Mapping():
            kept = value.items() if nulls else [(key, each) for key, each in value.items() if each is not None]
            return {str(key): as_plain(each, nulls=nulls) for key, each in kept}
        case list():
            return [as_plain(each, nulls=nulls) for each in value]
        case yaml_tree.Int():
            return int(value)
        case yaml_tree.Float():
            return value.text
        case _:
            return value


TAG: Final = re.compile(r"\{\{(.*?)\}\}", re.S)
ROUNDS: Final = 3
"""Values may hold tags themselves; Argo replaces in several passes."""
LONGEST: Final = 1_000_000
"""Characters that a text may grow to; tags in tags could grow without end."""


@dataclass(frozen=True)
class OpenValue:
    """A value that is not known here, and why."""

    because: str
    loops: frozenset[int] = frozenset()
    """The loops whose item it depends on: with the items at hand it is known."""
    hint: str | None = None


Value = str | OpenValue


@dataclass(frozen=True)
class Scope:
    """The variables that a text may name."""

    values: Mapping[str, Value] = field(default_factory=dict)
    attempt: Mapping[str, str] = field(default_factory=dict)
    """What is different in each attempt: `retries`, `lastRetry.exitCode` and so on."""

    def with_variables(self, more: Mapping[str, Value]) -> Scope:
        """With further variables."""
        return Scope({**self.values, **more}, self.attempt)

    def at(self, attempt: Mapping[str, str]) -> Scope:
        return Scope(self.values, attempt)

    def fill(self, text: str) -> tuple[str, tuple[OpenValue, ...]]:
        """The text with every known tag replaced, and why others were not."""
        if "{{" not in text:
            return text, ()
        opened: dict[str, OpenValue] = {}
        for _ in range(ROUNDS):
            opened.clear()

            def put(match: re.Match[str]) -> str:
                value = self.of_tag(match[1])
                if isinstance(value, OpenValue):
                    opened[match[1]] = value
                    return match[0]
                return value

            after = TAG.sub(put, text)
            if after == text or len(after) > LONGEST:
                break
            text = after
        return text, tuple(opened.values())

    def of_tag(self, inner: str) -> Value:
        """The value of one tag, without its braces."""
        inner = inner.strip()
        if inner.startswith("="):
            return self._expression(inner[1:].strip())
        found = self.attempt.get(inner, self.values.get(inner))
        return self._unknown(inner) if found is None else found

    def _expression(self, text: str) -> Value:
        named = [name for name in _names_in(text) if isinstance(self.values.get(name), OpenValue)]
        known = {name: value for name, value in self.values.items() if isinstance(value, str)}
        try:
            found = evaluate(text, {**known, **self.attempt})
        except NotConstant:
            loops: frozenset[int] = frozenset()
            for name in (*named, *(["item"] if "item" in text else [])):
                value = self.values.get(name)
                loops |= value.loops if isinstance(value, OpenValue) else frozenset()
            because = f"{{{{={_shorten(text)}}}}} is an expression that gpuflow does not work out"
            for name in named:
                value = self.values[name]
                assert isinstance(value, OpenValue)
                because = value.because
            return OpenValue(because, loops)
        if isinstance(found, str):
            return found
        shown = text_of(found) if isinstance(found, bool | int) else None
        return OpenValue(f"{{{{={_shorten(text)}}}}} is not a text") if shown is None else shown

    def _unknown(self, name: str) -> OpenValue:
        item = self.values.get("item")
        if name.startswith("item.") and isinstance(item, OpenValue):
            return OpenValue(item.because, item.loops, item.hint)
        if name.startswith("workflow.parameters."):
            parameter = name.removeprefix("workflow.parameters.")
            return OpenValue(
                f"parameter {parameter} of the workflow has no value", hint=f"give --param {parameter}=VALUE"
            )
        return OpenValue(f"{{{{{_shorten(name)}}}}} is only known in the run")


def merge_open(parts: Iterable[OpenValue]) -> OpenValue | None:
    """Several reasons as one."""
    found = list(parts)
    if not found:
        return None
    return OpenValue(found[0].because, frozenset().union(*(each.loops for each in found)), found[0].hint)


def names_in(text: str) -> set[str]:
    """The variables that the tags of a text name; of an expression, every name that it could be."""
    found: set[str] = set()
    for match in TAG.finditer(text):
        inner = match[1].strip()
        found |= set(_names_in(inner[1:])) | {"*"} if inner.startswith("=") else {inner}
    return found


_NAME = re.compile(r"[A-Za-z_][\w-]*(?:\.[A-Za-z_][\w-]*|\[['\"][^'\"]*['\"]\])*")


def _names_in(text: str) -> list[str]:
    return [re.sub(r"\[['\"]([^'\"]*)['\"]\]", r".\1", name) for name in _NAME.findall(text)]


def _shorten(text: str) -> str:
    one_line = " ".join(text.split())
    return one_line if len(one_line) <= 60 else one_line[:57] + "…"


def filled_tree(value: Any, scope: Scope, skipped: Collection[str] = ()) -> Any:
    """Every text of a tree with the known tags replaced, but for the fields that are `skipped`."""
    match value:
        case str():
            return scope.fill(value)[0]
        case Mapping():
            return {key: each if key in skipped else filled_tree(each, scope, skipped) for key, each in value.items()}
        case list():
            return [filled_tree(each, scope, skipped) for each in value]
        case _:
            return value
