"""The cluster as its own manifests describe it. Observed, never authored by gpuflow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gpuflow.errors import Where


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object: what it says, and where that stands."""

    kind: str
    group: str
    name: str
    namespace: str | None
    body: Mapping[str, Any]
    where: Where

    def in_namespace(self, namespace: str) -> bool:
        """Whether it counts there. A manifest without a namespace is applied to the one in question."""
        return self.namespace is None or self.namespace == namespace


@dataclass(frozen=True, slots=True)
class Cluster:
    """All objects of a snapshot, in the order they were read."""

    source: str
    objects: tuple[Manifest, ...]

    def of(self, kind: str, namespace: str | None = None) -> list[Manifest]:
        """The objects of a kind, in a namespace when one is given."""
        return [
            item for item in self.objects if item.kind == kind and (namespace is None or item.in_namespace(namespace))
        ]

    def bodies(self, kind: str, namespace: str | None = None) -> list[Mapping[str, Any]] | None:
        """The plain manifests of a kind; None when the snapshot holds none, which means: not known."""
        return [item.body for item in self.of(kind, namespace)] or None

    def kinds(self) -> list[str]:
        """Every kind there is, once."""
        return list(dict.fromkeys(item.kind for item in self.objects))

    def missing(self, kinds: Iterable[str]) -> list[str]:
        """Which of these kinds the snapshot has, in its order."""
        wanted = set(kinds)
        return [kind for kind in self.kinds() if kind in wanted]
