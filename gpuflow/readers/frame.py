"""What all readers share: what they are given, and what they answer.

A reader is a module with one function, `demand_of(document, library, options)`. It answers with the demand of one
object, or says why nothing runs by itself (`Passive`). A reader never guesses: a number that it cannot know is
`Unknown` in the graph, a pod that it cannot see is `Unseen`, both with the reason and the place.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from gpuflow.demands.model import Demand, StepDemand
from gpuflow.engines import NO_ENGINE
from gpuflow.errors import Finding, Where, fail
from gpuflow.pod.injected import engine_of, with_engine
from gpuflow.quantity import Quantity
from gpuflow.readers.documents import PLATFORM, Document
from gpuflow.readers.kinds import READERS, starts_nothing
from gpuflow.site.model import Site


@dataclass(frozen=True)
class Options:
    """What the caller says beside the files."""

    site: Site
    engine: str = NO_ENGINE
    """Whose own containers and pods are counted too."""
    params: Mapping[str, str] = field(default_factory=dict)
    """Values of parameters, as text."""


@dataclass(frozen=True)
class Library:
    """All documents that were given: what one of them refers to is looked up here, and nowhere else."""

    documents: tuple[Document, ...] = ()

    @cached_property
    def _by_name(self) -> dict[tuple[str, str], list[Document]]:
        found: dict[tuple[str, str], list[Document]] = {}
        for each in self.documents:
            found.setdefault((each.kind, each.name), []).append(each)
        return found

    def find(self, kind: str, name: str) -> Document | None:
        """The object of that kind and name; the first that was given."""
        return next(iter(self._by_name.get((kind, name), ())), None)

    def beside(self, document: Document, kind: str) -> Document | None:
        """An object of that kind in the same file: the platform document of a Kubeflow pipeline."""
        return next((each for each in self.documents if each.file == document.file and each.kind == kind), None)


@dataclass(frozen=True)
class Passive:
    """An object that starts nothing by itself, or of which gpuflow does not know what it starts."""

    document: Document
    because: str
    is_known: bool = True
    """Whether it is certain that it starts no pods."""

    @property
    def where(self) -> Where:
        return self.document.where()

    def finding(self) -> Finding:
        """GF703, where nothing else was given."""
        document = self.document
        what = f"{document.kind} {document.name}" if document.kind else f"document {document.index + 1}"
        return Finding("GF703", f"{what}: {self.because}", self.where)


@dataclass(frozen=True)
class Foreign:
    """An object of somebody else's that starts pods."""

    document: Document
    library: Library

    @property
    def name(self) -> str:
        return self.document.name

    @property
    def file(self) -> str:
        return self.document.file

    def demand(self, options: Options) -> Demand | Passive:
        """What it asks of a cluster."""
        reader = READERS[(self.document.kind, self.document.group)]
        if options.engine not in (NO_ENGINE, reader.engine) and reader.engine != NO_ENGINE:
            text = f"{self.document.kind} {self.name} runs on {reader.engine}, not on {options.engine}"
            hint = f"use --engine {reader.engine}, or leave it out"
            raise fail("GF704", text, where=self.document.where(), hint=hint)
        read: Callable[[Document, Library, Options], Demand | Passive]
        read = importlib.import_module(reader.module).demand_of
        if reader.engine == NO_ENGINE:
            options = replace(options, engine=NO_ENGINE)  # its pods are all there are
        found = read(self.document, self.library, options)
        if isinstance(found, Passive) or found.source is not None:
            return found
        from gpuflow.readers.findings import foreign_source  # its rules use readers, and readers use this module

        return replace(found, source=foreign_source(self.document, found, options.site, self.library.documents))


def foreign_in(documents: Iterable[Document]) -> tuple[list[Foreign], list[Passive]]:
    """The objects that may start pods, and those of kinds that never do."""
    library = Library(tuple(documents))
    active: list[Foreign] = []
    passive: list[Passive] = []
    for each in library.documents:
        if (each.kind, each.group) in READERS:
            active.append(Foreign(each, library))
        elif not _is_second_half(each, library):
            passive.append(_passive(each))
    return active, passive


def _passive(document: Document) -> Passive:
    if not document.kind:
        return Passive(document, "it names no kind", is_known=False)
    if starts_nothing(document.kind, document.group):
        return Passive(document, "this kind starts no pods")
    return Passive(document, "gpuflow does not know which pods this kind starts", is_known=False)


def _is_second_half(document: Document, library: Library) -> bool:
    """Whether it is the platform document of a Kubeflow pipeline in the same file, which is read with it."""
    return document.kind == PLATFORM and any(library.beside(document, kind) for kind in ("PipelineSpec", "PipelineJob"))


def with_parts(step: StepDemand, options: Options, *, has_outputs: bool) -> StepDemand:
    """A step with the containers that its engine adds to each pod, as the site describes them."""
    parts = engine_of(options.site, options.engine)
    changed = tuple(replace(each, pod=with_engine(each.pod, parts, has_outputs=has_outputs)) for each in step.pod_sets)
    if changed == step.pod_sets:
        return step
    larger = replace(step, pod_sets=changed)
    added = {key: amount - step.usage.get(key, Quantity.zero) for key, amount in larger.usage.items()}
    return replace(larger, overhead={key: amount for key, amount in added.items() if amount > Quantity.zero})
