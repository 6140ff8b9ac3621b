"""What all readers share: what they are given, and what they answer.

A reader is a module with one function, `demand_of(document, library, options)`. It answers with the demand of one
object, or says why nothing runs by itself (`PassiveObject`). A reader never guesses: a number that it cannot know is
`Unknown` in the graph, a pod that it cannot see is `Unseen`, both with the reason and the place. `parameters_of` gives
the names of the parameters that a document takes: `--param` must name one of them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gpuflow.cluster import Manifest
from gpuflow.core.errors import Finding, Where, fail, list_names
from gpuflow.demands.model import Demand, StepDemand, usage_beyond
from gpuflow.engines import NO_ENGINE
from gpuflow.formats.documents import (
    ARGO_READER,
    CLUSTER_WIDE,
    DAG,
    KUBEFLOW_READER,
    PLATFORM,
    READERS,
    SENSOR,
    Document,
    Library,
    kind_of,
    other_triggers,
    starts_nothing,
)
from gpuflow.formats.nodes import mapping, maps
from gpuflow.kubernetes.admission.field_errors import dns_label_faults
from gpuflow.pod.engine_containers import engine_of, with_engine
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
class PassiveObject:
    """An object that starts nothing by itself, or of which gpuflow does not know what it starts."""

    document: Document
    because: str
    is_known: bool = True
    """Whether it is certain that it starts no pods."""

    @property
    def where(self) -> Where:
        return self.document.where()

    @property
    def title(self) -> str:
        """What sentences call it; of a Sensor, with the triggers that are not counted."""
        document = self.document
        if not document.kind:
            return f"document {document.index + 1}"
        others = other_triggers(document.tree) if (document.kind, document.group) == SENSOR else []
        return f"{document.kind} {document.name}" + (f" ({list_names(others, 'trigger')})" if others else "")

    def finding(self) -> Finding:
        """GF703, where nothing else was given."""
        return Finding("GF703", f"{self.title}: {self.because}", self.where)


@dataclass(frozen=True)
class ForeignObject:
    """An object of another tool that starts pods."""

    document: Document
    library: Library

    @property
    def name(self) -> str:
        return self.document.name

    @property
    def file(self) -> str:
        return self.document.file

    @property
    def engine(self) -> str:
        """The engine that runs it; none when the controller of its kind makes all of its pods."""
        return READERS[(self.document.kind, self.document.group)].engine

    def namespace(self, given: str | None, option: str = "--namespace") -> str | None:
        """The namespace that it names, which `given` must not contradict."""
        document = self.document
        written = document.tree.get("metadata")
        named = written.get("namespace") if isinstance(written, Mapping) else None
        faults = dns_label_faults(named) if isinstance(named, str) else ("must be text",)
        if named and document.kind not in CLUSTER_WIDE and faults:
            text = f"metadata.namespace of the {document.kind} cannot be {named!r}: it {faults[0]}"
            raise fail("GF138", text, where=document.namespace_where, hint=f"leave it out and use {option}")
        named = document.namespace
        if named is not None and given not in (None, named):
            text = f'{document.kind} {self.name} names the namespace "{named}", and {option} says "{given}"'
            hint = f"leave {option} out, which is for documents that name none, or change the document"
            raise fail("GF745", text, where=document.namespace_where, hint=hint)
        return named

    def demand_on_site(
        self, site: Site, engine: str | None, params: Mapping[str, str], namespace: str | None = None
    ) -> Demand | PassiveObject:
        """Its demand on a cluster, in the namespace and on the engine that it names, with its parameters.

        `engine`: another than its own; `none` counts the steps' own pods only, which is said. `namespace`: what the
        caller's option says.
        """
        named = self.namespace(namespace)
        takes = parameters_of(self.document, self.library)
        values = {name: text for name, text in params.items() if name in takes}
        found = self.demand(Options(site, self.engine if engine is None else engine, values))
        if isinstance(found, PassiveObject):
            return found
        refusals = (*found.refusals, *self._notes(site, engine, named))
        return replace(found, file=self.file, kind=self.document.kind, namespace=named, refusals=refusals)

    def _notes(self, site: Site, engine: str | None, named: str | None) -> Iterator[Finding]:
        if engine == NO_ENGINE != self.engine:
            text = (
                f"{self.document.kind} {self.name} runs on {self.engine}, whose own containers and pods are not counted"
            )
            yield Finding("GF747", text, self.document.where(), "leave --engine none out to count them", "note")
        if named is not None and site.namespace not in (None, named):
            own = f'{self.document.kind} {self.name} is judged in "{named}", its own namespace'
            text = f'{own}; the site says "{site.namespace}"'
            yield Finding("GF746", text, self.document.namespace_where, None, "note")

    def demand(self, options: Options) -> Demand | PassiveObject:
        """What it asks of a cluster."""
        reader = READERS[(self.document.kind, self.document.group)]
        if options.engine not in (NO_ENGINE, reader.engine) and reader.engine != NO_ENGINE:
            text = f"{self.document.kind} {self.name} runs on {reader.engine}, not on {options.engine}"
            hint = f"use --engine {reader.engine}, or leave it out"
            raise fail("GF704", text, where=self.document.where(), hint=hint)
        read: Callable[[Document, Library, Options], Demand | PassiveObject]
        read = importlib.import_module(reader.module).demand_of
        if reader.engine == NO_ENGINE:
            options = replace(options, engine=NO_ENGINE)  # its pods are all there are
        found = read(self.document, self.library.seen_from(self.document), options)
        if isinstance(found, PassiveObject) or found.source is not None:
            return found
        from gpuflow.readers.findings import (  # its rules use readers, and readers use this module
            ForeignSource,
            Subject,
        )
        from gpuflow.readers.findings.strictness import refusals_of
        from gpuflow.readers.kubernetes.queue_webhooks import queue_refusals

        return replace(
            found,
            refusals=(*refusals_of(self.document), *found.refusals),
            queue_refusals=queue_refusals(self.document),
            source=ForeignSource(Subject(self.document, found, options.site, tuple(self.library.documents))),
        )


def foreign_in(
    documents: Iterable[Document], namespace: str | None = None
) -> tuple[list[ForeignObject], list[PassiveObject]]:
    """The objects that may start pods, and those of kinds that never do. `namespace`: of those that name none."""
    library = Library(tuple(documents), namespace)
    active: list[ForeignObject] = []
    passive: list[PassiveObject] = []
    for each in library.documents:
        if (each.kind, each.group) in READERS:
            active.append(ForeignObject(each, library.seen_from(each)))
        elif not _is_second_half(each, library):
            passive.append(_passive_object(each))
    return active, passive


def objects_brought_by(documents: Iterable[Document]) -> tuple[Manifest, ...]:
    """What of the documents counts as part of the cluster while the others are checked."""
    given = tuple(documents)
    if not given:
        return ()
    from gpuflow.cluster.overlay import is_counted, objects_of  # most checks bring nothing

    return objects_of((each.tree, each.file) for each in given if is_counted(each.kind, each.group))


def _passive_object(document: Document) -> PassiveObject:
    if not document.kind:
        return PassiveObject(document, "it names no kind", is_known=False)
    if starts_nothing(document.kind, document.group):
        return PassiveObject(document, "this kind starts no pods")
    return PassiveObject(document, "gpuflow does not know which pods this kind starts", is_known=False)


def _is_second_half(document: Document, library: Library) -> bool:
    """Whether it is the platform document of a Kubeflow pipeline in the same file, which is read with it."""
    return document.kind == PLATFORM and any(
        library.in_same_file(document, kind) for kind in ("PipelineSpec", "PipelineJob")
    )


def demand_of_manifest(manifest: Mapping[str, Any], file: str, library: Library, options: Options) -> Demand | None:
    """What an object that a step creates asks for; None for a kind that nobody reads, and for what starts nothing."""
    document = Document(manifest, file, *kind_of(manifest), 0)
    if (document.kind, document.group) not in READERS:
        return None
    read = importlib.import_module(READERS[(document.kind, document.group)].module).demand_of
    found: Demand | PassiveObject = read(document, library.seen_from(document), options)
    return None if isinstance(found, PassiveObject) else found


def with_parts(step: StepDemand, options: Options, *, has_outputs: bool) -> StepDemand:
    """A step with the containers that its engine adds to each pod, as the site describes them."""
    parts = engine_of(options.site, options.engine)
    changed = tuple(replace(each, pod=with_engine(each.pod, parts, has_outputs=has_outputs)) for each in step.pod_sets)
    if changed == step.pod_sets:
        return step
    larger = replace(step, pod_sets=changed)
    return replace(larger, overhead=usage_beyond(larger.usage, step.usage))


def parameters_of(document: Document, library: Library) -> set[str]:
    """The names; none for kinds that take no parameters."""
    if (document.kind, document.group) == DAG:
        return {str(name) for name in mapping(document.tree.get("params"))}
    if READERS.get((document.kind, document.group)) == KUBEFLOW_READER:
        from gpuflow.formats.kfp import ir_of  # only Kubeflow's documents need it

        return set(ir_of(document, library).root.message("inputDefinitions").message("parameters").value)
    if READERS.get((document.kind, document.group)) == ARGO_READER:
        from gpuflow.formats.argo import workflow_of  # only Argo's

        given = mapping(workflow_of(document, library).tree.get("arguments")).get("parameters")
        return {each["name"] for each in maps(given) if isinstance(each.get("name"), str)}
    return set()
