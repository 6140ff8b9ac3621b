"""A pod as the Pod Security checks look at it, and the phrases they share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gpuflow.resources import read_map, read_maps

Map = Mapping[str, Any]
Finding = tuple[str, str] | None
"""What a check forbids and why; `None` when it has nothing against the pod."""


class View:
    """A pod, its annotations, and its containers with their security contexts."""

    __slots__ = ("annotations", "containers", "context", "spec")

    def __init__(self, metadata: Map, spec: Map) -> None:
        self.spec = spec
        annotations = read_map(metadata.get("annotations"), "metadata.annotations")
        self.annotations = {str(key): str(value) for key, value in annotations.items()}
        self.context = read_map(spec.get("securityContext"), "spec.securityContext")
        self.containers = [
            (str(each.get("name") or ""), each, read_map(each.get("securityContext"), f"spec.{field}"))
            for field in ("initContainers", "containers", "ephemeralContainers")
            for each in read_maps(spec.get(field), f"spec.{field}")
        ]

    @property
    def is_windows(self) -> bool:
        return bool(read_map(self.spec.get("os"), "spec.os").get("name") == "windows")

    @property
    def has_own_users(self) -> bool:
        return self.spec.get("hostUsers") is False

    def named(self, bad: Callable[[Map], object]) -> list[str]:
        """The names of the containers whose security context is bad."""
        return [name for name, _, context in self.containers if bad(context)]


def quote(items: Iterable[str]) -> str:
    return ", ".join(f'"{item}"' for item in items)


def plural(word: str, many: int) -> str:
    return word if many == 1 else f"{word}s"


def these(names: list[str]) -> str:
    return f"{plural('container', len(names))} {quote(names)}"


def setters(pod_is_bad: object, names: list[str]) -> str:
    """Who set a forbidden value: the pod, some containers, or both; empty when nobody."""
    return " and ".join([*(["pod"] if pod_is_bad else []), *([these(names)] if names else [])])


def within(context: Map, field: str) -> Map:
    return read_map(context.get(field), f"securityContext.{field}")
