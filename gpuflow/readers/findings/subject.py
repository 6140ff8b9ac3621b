"""What a rule looks at: a demand, the document that it was read from, and where things stand in it.

Spot nodes, checkpoints and PyTorch are recognized in the many spellings that documents use for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, NamedTuple

from gpuflow.core import yaml_tree
from gpuflow.core.errors import Where
from gpuflow.demands.gang_scheduling import as_mapping, iter_maps
from gpuflow.demands.model import Demand, Pod, StepDemand
from gpuflow.formats.documents import Document
from gpuflow.site.model import Site

SPOT_LABELS: Final = {
    "cloud.google.com/gke-spot": "true",
    "cloud.google.com/gke-preemptible": "true",
    "eks.amazonaws.com/capacityType": "SPOT",
    "karpenter.sh/capacity-type": "spot",
    "kubernetes.azure.com/scalesetpriority": "spot",
}
"""The labels of spot nodes in the large clouds."""
_CHECKPOINT: Final = re.compile(r"check-?points?|ckpts?", re.IGNORECASE)
_TORCH: Final = re.compile(r"torch|\bdeepspeed\b|\baccelerate\b|\blightning\b|\bvllm\b", re.IGNORECASE)


def spot_label(spec: Mapping[str, Any], site: Site) -> str | None:
    """The label by which a pod asks for spot nodes: in its node selector, or in an affinity that it requires."""
    labels = {**SPOT_LABELS, **site.spot.labels}
    selector = as_mapping(spec.get("nodeSelector"))
    for key, value in labels.items():
        if selector.get(key) == value:
            return f"{key}: {value}"
    required = as_mapping(as_mapping(spec.get("affinity")).get("nodeAffinity")).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    for term in iter_maps(as_mapping(required).get("nodeSelectorTerms")):
        for wanted in iter_maps(term.get("matchExpressions")):
            name, values = str(wanted.get("key")), wanted.get("values")
            if (
                name in labels
                and wanted.get("operator") == "In"
                and isinstance(values, list)
                and labels[name] in values
            ):
                return f"{name}: {labels[name]}"
    return None


def checkpoint_mounts(container: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The mounts that hold checkpoints, by their names and paths, each with its number."""
    for number, mount in enumerate(iter_maps(container.get("volumeMounts"))):
        if _CHECKPOINT.search(f"{mount.get('name')} {mount.get('mountPath')}"):
            yield number, mount


def looks_like_torch(container: Mapping[str, Any]) -> bool:
    """Whether a container trains with PyTorch, by its name, its image and its command."""
    named = [word for word in (container.get("name"), container.get("image")) if isinstance(word, str)]
    return any(_TORCH.search(word[:10_000]) for word in (*named, *command_words(container)))


def command_words(container: Mapping[str, Any]) -> list[str]:
    """The words of the command and its arguments, as far as they are text."""
    given = [container.get(field) for field in ("command", "args")]
    return [word for words in given if isinstance(words, list) for word in words if isinstance(word, str)]


CONTAINERS = ("initContainers", "containers")


class StepContainer(NamedTuple):
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
    """All that were given with it."""

    @property
    def kind(self) -> str:
        return self.document.kind

    @property
    def title(self) -> str:
        """The object as sentences name it."""
        return f"{self.document.kind} {self.document.name}"

    def containers(self) -> Iterator[StepContainer]:
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
                            yield StepContainer(step, pod_set.pod, container)

    def where(self, step: str) -> Where:
        """Where a step is written, with its name."""
        return replace(self.demand.where(step), step=step)

    def tree_of(self, step: str) -> Any:
        """What begins where a step is written: its template; None where that is in no document that was given."""
        known = self.demand.where(step)
        return self._places_of(known.file).get((known.line, known.column))

    def where_of(self, asked: StepContainer, *path: str) -> Where:
        """Where a field of a container stands; where its step does, when the container was made from elsewhere."""
        known = self.where(asked.step.name)
        found = _container(self.tree_of(asked.step.name), asked.name)
        if found is None:
            return known
        place = yaml_tree.where_of(found, path, key=True)
        return Where(known.file, place.line, place.column, known.step)

    def _places_of(self, file: str | None) -> Mapping[tuple[int | None, int | None], Any]:
        """What begins at each place of a file, worked out when it is first asked for."""
        if file not in self._values_by_file:
            documents = {id(each.tree): each for each in (self.document, *self.documents) if each.file == file}
            self._values_by_file[file] = _values_by_position([each.tree for each in documents.values()])
        return self._values_by_file[file]

    @cached_property
    def _values_by_file(self) -> dict[str | None, Mapping[tuple[int | None, int | None], Any]]:
        return {}


def _values_by_position(trees: list[Any]) -> dict[tuple[int | None, int | None], Any]:
    """What begins at each place, or at its key; the outermost, where several begin at one."""
    found: dict[tuple[int | None, int | None], Any] = {}
    while trees:
        tree = trees.pop()
        spot = getattr(tree, "spot", None)
        if spot is not None:
            found.setdefault((spot.line, spot.column), tree)
        if isinstance(tree, yaml_tree.Map):
            for key, place in tree.key_at.items():
                found.setdefault((place.line, place.column), tree.get(key))
        inner = tree.values() if isinstance(tree, Mapping) else tree
        trees += [each for each in inner if isinstance(each, Mapping | list)]
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
