"""Text of a pod that an engine would take for a tag of its own, outside the words that are spelled for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gpuflow.by_type import ByType
from gpuflow.content import content_of
from gpuflow.errors import Finding, Where
from gpuflow.spec.model import Model
from gpuflow.spec.text import Join

Path = tuple[str | int, ...]


def stray_tags(name: str, pod: dict[str, Any], where: Where) -> Iterator[Finding]:
    """Argo, under KFP too, replaces tags in every field; outside commands and variables nothing hides them."""
    content = content_of(pod)
    if content is not None and b"{{" not in content:
        return
    for path, text in strings(pod):
        if "{{" in text and not _is_spelled(path):
            yield Finding(
                "GF306",
                f'step "{name}": Argo would replace the tag in {".".join(map(str, path))}: {text[:60]!r}',
                where,
                "only commands, arguments, scripts and variables can hold {{",
            )


def holds_tags(value: Any) -> bool:
    """Whether any text in a value, or in a model's fields, holds what begins or ends a tag."""
    left = [value]
    while left:  # of every step of a pipeline, so without a call for each text
        part = left.pop()
        kind = type(part)
        if kind is str:
            if "{{" in part or "}}" in part:
                return True
        elif part:
            parts = _PARTS[kind]
            if parts is not None:
                left += parts(part)
    return False


def _parts(kind: type) -> Callable[[Any], Iterable[Any]] | None:
    """How to get at what a value of this type holds; None: it holds no text."""
    ways: tuple[tuple[Any, Callable[[Any], Iterable[Any]]], ...] = (
        (str, lambda value: (str(value),)),
        (dict, lambda value: (*value, *value.values())),
        ((list, tuple), lambda value: value),
        (Join, lambda value: value.parts),
        (Model, lambda value: filter(None, value.__dict__.values())),
    )
    return next((way for base, way in ways if issubclass(kind, base)), None)


_PARTS = ByType(_parts)


def _is_spelled(path: Path) -> bool:
    """Whether text at this place of a pod was spelled for the engine: words of a command, plain values of variables."""
    return "command" in path or "args" in path or (path[-1] == "value" and "env" in path)


def strings(value: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Every text in plain data, keys of maps too, with the way to it."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield (*path, key), key
            yield from strings(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from strings(item, (*path, index))
