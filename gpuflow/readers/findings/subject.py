"""What a rule looks at: a demand, the document that it was read from, and where things stand in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from gpuflow import yaml_tree
from gpuflow.demands.model import Demand, Pod, StepDemand
from gpuflow.errors import Where
from gpuflow.readers.documents import Document
from gpuflow.site.model import Site

CONTAINERS = ("initContainers", "containers")


class Asked(NamedTuple):
    """One container of a step's pod."""

    step: StepDemand
    pod: Pod
    container: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.container.get("name") or "main")

    @property
    def title(self) -> str:
        """The container as sentences name it."""
        return f'step "{self.step.name}": container "{self.name}"'


@dataclass(frozen=True)
class Subject:
    """A demand and its documents."""

    document: Document
    demand: Demand
    site: Site
    documents: tuple[Document, ...] = field(default=(), repr=False)

    @property
    def kind(self) -> str:
        return self.document.kind

    @property
    def title(self) -> str:
        """The object as sentences name it."""
        return f"{self.document.kind} {self.document.name}"

    def containers(self) -> Iterator[Asked]:
        """Every container of every pod, each pod once."""
        for step in self.demand.steps:
            seen: list[Pod] = []
            for pod_set in step.pod_sets:
                if any(pod_set.pod is each or pod_set.pod == each for each in seen):
                    continue
                seen.append(pod_set.pod)
                for group in CONTAINERS:
                    for container in pod_set.pod["spec"].get(group) or ():
                        if isinstance(container, Mapping):
                            yield Asked(step, pod_set.pod, container)

    def where(self, step: str) -> Where:
        """Where a step is written, with its name."""
        return replace(self.demand.where(step), step=step)

    def where_of(self, asked: Asked, *path: str) -> Where:
        """Where a field of a container stands; where its step does, when the container was made from elsewhere."""
        known = self.where(asked.step.name)
        start = self._maps.get((known.file, known.line, known.column))
        found = None if start is None else _container(start, asked.name)
        if found is None:
            return known
        place = yaml_tree.where_of(found, path, key=True)
        return Where(known.file, place.line, place.column, known.step)

    @cached_property
    def _maps(self) -> dict[tuple[str | None, int | None, int | None], Any]:
        """What begins at each place of the documents, or at its key; the outermost, where several begin at one."""
        found: dict[tuple[str | None, int | None, int | None], Any] = {}
        for document in {id(each): each for each in (self.document, *self.documents)}.values():
            left: list[Any] = [document.tree]
            while left:
                tree = left.pop()
                spot = getattr(tree, "spot", None)
                if spot is not None:
                    found.setdefault((document.file, spot.line, spot.column), tree)
                if isinstance(tree, yaml_tree.Map):
                    for key, place in tree.key_at.items():
                        found.setdefault((document.file, place.line, place.column), tree.get(key))
                left += [
                    each
                    for each in (tree.values() if isinstance(tree, Mapping) else tree)
                    if isinstance(each, Mapping | list)
                ]
        return found


def _container(tree: Any, name: str) -> Any:
    """The container of that name in a part of a document; containers without a name are called main."""
    left: list[Any] = [tree]
    while left:
        part = left.pop(0)
        if isinstance(part, Mapping):
            is_container = "image" in part or "resources" in part
            if is_container and str(part.get("name") or "main") == name and getattr(part, "spot", None):
                return part
            left += [each for each in part.values() if isinstance(each, Mapping | list)]
        elif isinstance(part, list):
            left += [each for each in part if isinstance(each, Mapping | list)]
    return None
