"""A document of another tool as a pipeline: read, completed, checked as any pipeline is, and written."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpuflow.errors import Finding, GpuflowError
from gpuflow.importing.drafts import Draft
from gpuflow.importing.listing import KIND, RULE, Listing, Place
from gpuflow.importing.patches import complete
from gpuflow.importing.shapes import misshapen
from gpuflow.printable import comment
from gpuflow.readers import Document, Library
from gpuflow.readers.documents import KFP
from gpuflow.readers.kinds import READERS
from gpuflow.site import Site
from gpuflow.spec.building import check
from gpuflow.spec.canonical import to_yaml
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.settings import Settings
from gpuflow.spec.source import Source

Maker = Callable[[Document, Library, Site, Listing], Draft]
MAKERS = {
    "gpuflow.readers.argo": "gpuflow.importing.argo",
    "gpuflow.readers.kfp": "gpuflow.importing.kubeflow",
    "gpuflow.readers.kubernetes": "gpuflow.importing.kubernetes",
}
"""Who imports the kinds of which reader."""
IMPORTED = "# Imported from "
"""How every imported file begins."""


@dataclass(frozen=True)
class Imported:
    """A pipeline with what it says otherwise than the file, or the list of what cannot be said."""

    document: Document
    pipeline: Pipeline | None
    findings: tuple[Finding, ...]
    notes: tuple[Finding, ...]

    def text(self) -> str:
        """The pipeline's file."""
        assert self.pipeline is not None
        source = self.document
        return comment([f"{IMPORTED[2:]}{source.kind} {source.name}."]) + to_yaml(self.pipeline)


def imported(document: Document, library: Library, site: Site) -> Imported:
    """The document as a pipeline, where it can be said."""
    listing = Listing(document)
    reader = READERS.get((document.kind, document.group))
    module = MAKERS.get(reader.module) if reader else None
    if module is None:
        what = f"{document.kind} {document.name}" if document.kind else "the document"
        listing.cannot(what, "it is no run of steps that gpuflow imports", document.where(), KINDS, KIND)
        return Imported(document, None, tuple(listing.found), ())
    if document.group != KFP and misshapen(listing, Place(document), document.tree):
        return Imported(document, None, _sorted(listing.found), ())
    make: Maker = importlib.import_module(module).pipeline_of
    draft = make(document, library, site, listing)
    if not draft.steps and not listing.found:
        listing.cannot(f"{document.kind} {document.name}", "it has no steps", document.where())
    for step in draft.pods:
        complete(step, site, listing)
    pipeline = None
    if not listing.found:
        written = {"apiVersion": "gpuflow/v1", "kind": "Pipeline", **_with_defaults(draft.document())}
        try:
            pipeline = check(Pipeline, written, Source(document.file, lambda path, key: document.where()))
        except GpuflowError as refusal:
            listing.found += [
                Finding(RULE, f"{each.code} {each.message}", each.where, each.hint) for each in refusal.findings
            ]
    return Imported(document, pipeline, _sorted(listing.found), tuple(listing.notes))


def _sorted(findings: list[Finding]) -> tuple[Finding, ...]:
    return tuple(
        sorted(findings, key=lambda each: (each.where.file or "", each.where.line or 0, each.where.column or 0))
    )


KINDS = "gpuflow imports Argo workflows, Kubeflow pipelines, and Jobs, CronJobs and Pods of Kubernetes"


def _with_defaults(document: dict[str, Any]) -> dict[str, Any]:
    """The document with the settings that all its steps share said once."""
    steps = [*document.get("steps", {}).values(), *document.get("exit", {}).values()]
    for step in steps:
        if isinstance(step.get("pipeline"), dict):
            step["pipeline"] = _with_defaults(step["pipeline"])
    own = [step for step in steps if "pipeline" not in step and "approval" not in step]
    if len(own) < 2:
        return document
    first = own[0]
    shared = {
        key: value
        for key, value in first.items()
        if key in Settings.model_fields and all(step.get(key) == value for step in own)
    }
    for step in own:
        for key in shared:
            del step[key]
    if not shared:
        return document
    result = {}
    for key, value in document.items():
        if key == "steps":
            result["defaults"] = shared
        result[key] = value
    return result
