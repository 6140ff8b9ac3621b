"""The variables of a workflow: which are known, texts with the known ones filled in, loops, and locks.

Loops mirror expandStep, expandTask, expandSequence and processItem of workflow/controller, Argo v4.0.2. `withItems`,
`withParam` and `withSequence` are counted, and their copies are not written out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from gpuflow.formats.argo import Workflow, sequence_of
from gpuflow.formats.documents import Library
from gpuflow.formats.nodes import MAX_INT64, as_list, as_plain, mapping, maps_in, number_of, text_of
from gpuflow.readers.argo.expressions import NotConstant, evaluate
from gpuflow.readers.argo.removed_fields import SYNCHRONIZATION, Release, is_read

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

    def value(self, text: str) -> Value:
        """The text with every tag replaced; why it is not known where one of them is not."""
        filled, missing = self.fill(text)
        return merge_open(missing) or filled

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
            return _no_value(name.removeprefix("workflow.parameters."))
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


def global_scope(workflow: Workflow, library: Library, params: Mapping[str, str]) -> Scope:
    """The variables of the whole workflow, as far as they are known."""
    document = workflow.document
    values: dict[str, Value] = {}
    metadata = mapping(document.tree.get("metadata"))
    if document.kind == "Workflow":
        if text_of(metadata.get("name")):
            values["workflow.name"] = str(text_of(metadata["name"]))
        for field_name in ("labels", "annotations"):
            for key, each in mapping(metadata.get(field_name)).items():
                values[f"workflow.{field_name}.{key}"] = text_of(each) or ""
    if library.namespace or document.namespace:
        values["workflow.namespace"] = library.namespace or str(document.namespace)
    values["workflow.serviceAccountName"] = workflow.text("serviceAccountName") or "default"
    if workflow.text("entrypoint"):
        values["workflow.mainEntrypoint"] = str(workflow.text("entrypoint"))
    scope = Scope(values)
    for name, parameter in _parameters(workflow.tree.get("arguments")):
        value = _value(parameter, scope, library)
        value = text_of(parameter.get("default")) if value is None else value
        values[f"workflow.parameters.{name}"] = _no_value(name) if value is None else value
    for name, given in params.items():
        values[f"workflow.parameters.{name}"] = given
    return scope


def _no_value(name: str) -> OpenValue:
    return OpenValue(f"parameter {name} of the workflow has no value", hint=f"give --param {name}=VALUE")


def _parameters(owner: object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The parameters of arguments or inputs, by name."""
    for _, parameter in maps_in(mapping(owner).get("parameters")):
        name = text_of(parameter.get("name"))
        if name:
            yield name, parameter


def _value(parameter: Mapping[str, Any], scope: Scope, library: Library) -> Value | None:
    """What a parameter says itself, or a ConfigMap that it names; None when it says nothing."""
    written = text_of(parameter.get("value"))
    if written is not None:
        return scope.value(written)
    source = mapping(mapping(parameter.get("valueFrom")).get("configMapKeyRef"))
    name, key = text_of(source.get("name")), text_of(source.get("key"))
    if not name or not key:
        return None
    found = library.find("ConfigMap", name)
    value = None if found is None else text_of(mapping(found.tree.get("data")).get(key))
    because = f"its value stands in ConfigMap {name}, key {key}, which was not given"
    return OpenValue(because, hint="name the ConfigMap's file as well") if value is None else value


def inputs_of(
    tree: Mapping[str, Any], arguments: Mapping[str, Value], outer: Scope, library: Library
) -> dict[str, Value]:
    """The inputs of a template: what is handed to it, or what it says itself."""
    found: dict[str, Value] = {}
    for name, parameter in _parameters(tree.get("inputs")):
        value = arguments.get(name)
        value = _value(parameter, outer, library) if value is None else value
        if value is None:
            default = text_of(parameter.get("default"))
            because = f"input {name} of template {text_of(tree.get('name'))} has no value"
            value = OpenValue(because) if default is None else outer.value(default)
        found[f"inputs.parameters.{name}"] = value
    return found


def arguments_of(call: Mapping[str, Any], scope: Scope, library: Library) -> dict[str, Value]:
    """What a step, task or hook hands to its template, by name."""
    found: dict[str, Value] = {}
    for name, parameter in _parameters(call.get("arguments")):
        source = mapping(parameter.get("valueFrom"))
        expression = text_of(source.get("expression"))
        if text_of(parameter.get("value")) is None and expression:
            parameter = {"value": f"{{{{={expression}}}}}"}
        value = _value(parameter, scope, library)
        if value is not None or source:
            found[name] = OpenValue(f"argument {name} is only known in the run") if value is None else value
    return found


_FORMAT = re.compile(r"[^%]*%(0?)(\d{0,2})([dxXo])[^%]*")


@dataclass(frozen=True)
class Items:
    field: str
    count: int | OpenValue
    listed: tuple[Any, ...] | None = None
    sequence: range | None = None
    format: str = "%d"
    """Written as Go's Sprintf takes it: one of the forms of `_FORMAT`, which Python writes alike."""

    def variables(self) -> Iterator[Mapping[str, Value]]:
        """The variables of each item; only for loops that are known, and small enough to write out."""
        if self.listed is not None:
            yield from map(variables_of, self.listed)
        elif self.sequence is not None:
            for number in self.sequence:
                yield {"item": self.format % number}


class BadLoop(ValueError):
    """A loop that Argo refuses."""


def items_of(call: Mapping[str, Any], scope: Scope) -> Items | None:
    """The loop of a step or task; None when it has none. Raises `BadLoop`."""
    if as_list(call.get("withItems")):
        return _items_of_list("withItems", as_plain(call["withItems"]), scope)
    with_param = text_of(call.get("withParam"))
    if with_param:
        text, missing = scope.fill(with_param)
        unknown = merge_open(missing)
        if unknown is not None:
            return Items("withParam", unknown)
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            raise BadLoop(f"withParam is not a JSON list: {text[:60]}") from None
        if found is None:
            found = []
        if not isinstance(found, list):
            raise BadLoop(f"withParam is not a JSON list: {text[:60]}")
        return Items("withParam", len(found), tuple(found))
    if isinstance(call.get("withSequence"), Mapping):
        return _sequence(call["withSequence"], scope)
    return None


def _items_of_list(field: str, items: list[Any], scope: Scope) -> Items:
    found = []
    for item in items:
        text = item if isinstance(item, str) else None
        filled, missing = scope.fill(text) if text is not None else (item, ())
        if missing and "item" not in (text or ""):
            # The number of items is known all the same.
            return Items(field, len(items))
        found.append(filled)
    return Items(field, len(found), tuple(found))


def _sequence(sequence: Mapping[str, Any], scope: Scope) -> Items:
    numbers: dict[str, int] = {}
    for name in ("start", "end", "count"):
        written = text_of(sequence.get(name))
        if written is None or not written:
            continue
        text, missing = scope.fill(written)
        unknown = merge_open(missing)
        if unknown is not None:
            return Items("withSequence", unknown)
        number = number_of(text.strip() if "{{" in written else text)
        if number is None:
            raise BadLoop(f"withSequence.{name} is not a number: {text[:40]}")
        numbers[name] = number
    steps = sequence_of(numbers)
    if steps is None:
        raise BadLoop("withSequence has neither end nor count")
    if not steps:
        return Items("withSequence", 0, ())
    if abs(steps[-1]) > MAX_INT64:
        raise BadLoop("withSequence counts beyond what a number holds")
    written_format, missing = scope.fill(text_of(sequence.get("format")) or "%d")
    count = abs(steps[-1] - steps[0]) + 1
    if missing or _FORMAT.fullmatch(written_format) is None:
        return Items("withSequence", count)
    return Items("withSequence", count, None, steps, written_format)


def variables_of(item: Any) -> dict[str, Value]:
    """What `{{item}}` and `{{item.field}}` are for one item."""
    if isinstance(item, Mapping):
        fields: dict[str, Value] = {f"item.{key}": _text(each) for key, each in item.items()}
        return {"item": json.dumps(mapping(item), ensure_ascii=False, default=str), **fields}
    return {"item": _text(item)}


def _text(value: Any) -> str:
    text = text_of(value)
    return json.dumps(value, ensure_ascii=False, default=str) if text is None else text


LockUse = tuple[str, int | None, int | None, int | None]


class Lock(NamedTuple):
    """A lock that a template or workflow takes."""

    name: str
    limit: int | None
    """How many may hold it; None when that is not known."""
    is_private: bool = False
    """Its name is the run's own, so that no other run can hold it."""
    unknown: str | None = None
    """Why nobody knows how many may hold it."""


PRIVATE: Final = ("workflow.name", "workflow.uid")
"""Variables that no two runs share."""


def locks_of(
    tree: Mapping[str, Any], scope: Scope, library: Library, release: Release | None, home: str | None = None
) -> Iterator[Lock]:
    """The locks of a template or workflow.

    `release`: the site's Argo. Words that it does not have lock nothing. `home`: the namespace of the workflow. Mirrors
    lockName of workflow/sync, Argo v4.0.2.
    """
    written = mapping(tree.get("synchronization"))
    one = {field: written.get(field) for field, removed in SYNCHRONIZATION.items() if is_read(removed, release)}
    for mutex in [one.get("mutex"), *as_list(written.get("mutexes"))]:
        if not isinstance(mutex, Mapping):
            continue
        text = text_of(mutex.get("name")) or ""
        name, missing = scope.fill(text)
        kind = "mutex of the database" if mutex.get("database") is True else "mutex"
        own = any(tag.strip() in PRIVATE for tag in (*TAG.findall(text), *TAG.findall(name)))
        yield Lock(f"{kind} {name}{_elsewhere(mutex, home)}", 1 if _is_one(name, bool(missing)) else None, own)
    for semaphore in [one.get("semaphore"), *as_list(written.get("semaphores"))]:
        if not isinstance(semaphore, Mapping):
            continue
        source = mapping(semaphore.get("configMapKeyRef"))
        name, missing = scope.fill(text_of(source.get("name")) or "")
        key, more = scope.fill(text_of(source.get("key")) or "")
        if not source or not _is_one(name, bool(missing)) or not _is_one(key, bool(more)):
            yield Lock("a semaphore", None, unknown="its limit stands in no file")
            continue
        place = _elsewhere(semaphore, home)
        found = None if place else library.find("ConfigMap", name)
        limit = None if found is None else number_of(mapping(found.tree.get("data")).get(key))
        limit = limit if limit is not None and limit > 0 else None
        why = f"ConfigMap {name} was not given" if found is None else f"ConfigMap {name} has no number {key} above 0"
        title = f"semaphore {key} of ConfigMap {name}{place}"
        yield Lock(title, limit, unknown=why if limit is None else None)


def _elsewhere(lock: Mapping[str, Any], home: str | None) -> str:
    """The namespace of a lock, where that is not the workflow's."""
    named = text_of(lock.get("namespace"))
    return "" if not named or named == home else f" in namespace {named}"


def _is_one(name: str, is_open: bool) -> bool:
    """Whether all that hold a lock of this name hold the same: what is not known of it is one for the whole run."""
    return not is_open or all(each.strip().startswith("workflow.") for each in TAG.findall(name))


def bound_by(held: list[LockUse]) -> Iterator[str]:
    """Why fewer may run at once than the graph says: one sentence for each lock of which that is so."""
    by_lock: dict[str, list[LockUse]] = {}
    for each in held:
        by_lock.setdefault(each[0], []).append(each)
    for lock, uses in by_lock.items():
        limit = uses[0][1]
        counts = [None if count is None or outer is None else count * outer for _, _, count, outer in uses]
        total = None if None in counts else sum(count or 0 for count in counts)
        if total is not None and total <= (limit or 1):
            continue
        alone = len(uses) == 1 and uses[0][3] == 1
        if limit is None or not alone:
            yield f"{lock} may let fewer run at once"
