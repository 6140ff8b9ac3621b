"""A document of another tool as a pipeline: read, completed, checked as any pipeline is, and written.

The difference between the pod that a step
makes and the pod that it must have becomes `kubernetes.merge`. gpuflow gives every pod a restricted security context,
and GPUs the site's tolerations. A file that says nothing of them gets pods without them, so the patch takes them away
again: the pods stay what they were until somebody decides.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpuflow.core.errors import Finding, GpuflowError
from gpuflow.core.printable import comment
from gpuflow.formats.documents import KUBEFLOW_READER, READERS, Document, Library
from gpuflow.importing.draft import Draft
from gpuflow.importing.pods import COVERED_FIELDS, POD_FIELDS, Step
from gpuflow.importing.unsupported import KIND, RULE, Unsupported
from gpuflow.kubernetes.pod_fields import Field, fields_of
from gpuflow.kubernetes.strategic_merge import DIRECTIVE
from gpuflow.pod.build import pod_for
from gpuflow.site import Site
from gpuflow.spec.canonical import to_yaml
from gpuflow.spec.pipeline import Pipeline, check
from gpuflow.spec.problems import Source
from gpuflow.spec.step_fields import Settings

FLOW = ("needs", "when", "if_skipped", "for_each", "parallel", "on", "outputs", "inputs", "checkpoint", "description")
"""What a step says about its place among the others, and what its supervisor is for: nothing of the pod."""
HELPERS = ("init_containers", "sidecars")


def complete_step(step: Step, site: Site, listing: Unsupported) -> None:
    """Give the step the patch that it needs; list what no patch can say."""
    if not step.sound:
        return
    try:
        _complete(step, site, listing)
    except GpuflowError as refusal:
        found = (Finding(RULE, f"{each.code} {each.message}", step.where, each.hint) for each in refusal.findings)
        listing.found += found


def _complete(step: Step, site: Site, listing: Unsupported) -> None:
    try:
        made = _pod(step.words, site)
    except GpuflowError as refusal:
        if "gpu" not in step.words and "mig" not in step.words:
            raise
        # The site has no word for these GPUs: the resource is asked for as it stands.
        listing.note(f"the GPUs stay a resource of the cluster: {refusal.findings[0].message}", step.where)
        _as_resources(step)
        made = _pod(step.words, site)
    if step.secured:
        _keep_security(made, step)
    patch = patch_of(made, step)
    if patch:
        step.words.setdefault("kubernetes", {})["merge"] = patch
        _pod(step.words, site)  # so that what no patch may say is refused


def _keep_security(made: dict[str, Any], step: Step) -> None:
    """What the engine's own container template says of privileges is not the patch's to take away."""
    own = step.wanted["spec"].get("securityContext", {})
    rest = {key: value for key, value in made["spec"].get("securityContext", {}).items() if key not in IDENTITY}
    step.wanted["spec"]["securityContext"] = {**rest, **{key: own[key] for key in IDENTITY if key in own}}
    (main,) = made["spec"]["containers"]
    step.wanted["main"]["securityContext"] = main.get("securityContext")


IDENTITY = ("runAsUser", "runAsGroup", "runAsNonRoot")


def _as_resources(step: Step) -> None:
    hatch = step.words.setdefault("kubernetes", {})
    asked = step.wanted["main_resources"]
    step.words.pop("gpu", None)
    step.words.pop("mig", None)
    hatch["resources"] = asked
    if step.wanted["spec"].get("nodeSelector"):
        hatch["node_selector"] = step.wanted["spec"]["nodeSelector"]


def _pod(words: dict[str, Any], site: Site) -> dict[str, Any]:
    """The pod of a step alone, its texts left out: they may hold references to what is not there."""
    own = {key: value for key, value in words.items() if key not in FLOW and key not in ("env", "args", "script")}
    own["command"] = ["x"]
    for key in HELPERS:
        if key in own:
            own[key] = [{**each, "command": ["x"], "args": [], "env": {}} for each in own[key]]
    mounts = [own.get("volumes", {}), *(each.get("volumes", {}) for key in HELPERS for each in own.get(key, ()))]
    claims = {each["new_claim"]: {"size": "1Gi"} for found in mounts for each in found.values() if "new_claim" in each}
    head = {"apiVersion": "gpuflow/v1", "kind": "Pipeline", "name": "p"}
    document = {**head, **({"claims": claims} if claims else {}), "steps": {"s": own}}
    pipeline = check(Pipeline, document, Source())
    return pod_for(pipeline, "s", site)


def patch_of(made: dict[str, Any], step: Step) -> dict[str, Any]:
    """A strategic merge patch that makes the pod what it must be."""
    spec: dict[str, Any] = _difference(made["spec"], step.wanted["spec"], "PodSpec", POD_FIELDS)
    (main,) = made["spec"]["containers"]
    own = _difference(main, step.wanted["main"], "Container", COVERED_FIELDS)
    own |= {key: step.patch[key] for key in ("env", "volumeMounts") if key in step.patch}
    if own:
        spec["containers"] = [{"name": "main", **own}]
    helpers = []
    raw = {each["name"]: each for each in step.patch.get("initContainers", ())}
    for each in made["spec"].get("initContainers", ()):
        skipped = (*COVERED_FIELDS, "restartPolicy")
        change = _difference(each, step.wanted["init"].get(each["name"], {}), "Container", skipped)
        change |= raw.get(each["name"], {})
        if change:
            helpers.append({"name": each["name"], **change})
    if helpers:
        spec["initContainers"] = helpers
    if step.patch.get("volumes"):
        spec["volumes"] = step.patch["volumes"]
    return {"spec": spec} if spec else {}


def _difference(made: dict[str, Any], wanted: dict[str, Any], kind: str, skipped: tuple[str, ...]) -> dict[str, Any]:
    known = fields_of(kind)
    found: dict[str, Any] = {}
    for key in (*wanted, *(name for name in made if name not in wanted)):
        if key in skipped or made.get(key) == wanted.get(key):
            continue
        found[key] = _replacement_patch(made.get(key), wanted.get(key), known.get(key))
    return found


def _replacement_patch(made: Any, wanted: Any, field: Field | None) -> Any:
    """The value of a patch that leaves exactly what is wanted."""
    if wanted is None or made is None:
        return wanted
    if isinstance(wanted, dict) and isinstance(made, dict):
        known = fields_of(field.type) if field is not None and field.holds == "one" else {}
        keys = (*wanted, *(name for name in made if name not in wanted))
        return {
            key: _replacement_patch(made.get(key), wanted.get(key), known.get(key))
            for key in keys
            if made.get(key) != wanted.get(key)
        }
    if isinstance(wanted, list) and field is not None and field.merge_key is not None:
        return [*wanted, {DIRECTIVE: "replace"}]
    return wanted


Maker = Callable[[Document, Library, Site, Unsupported], Draft]
MAKERS = {
    "gpuflow.readers.argo": "gpuflow.importing.argo",
    "gpuflow.readers.kfp": "gpuflow.importing.kubeflow",
    "gpuflow.readers.kubernetes": "gpuflow.importing.kubernetes",
}
"""Who imports the kinds of which reader."""
IMPORT_HEADER = "# Imported from "
"""How every imported file begins."""


@dataclass(frozen=True)
class ImportResult:
    """A pipeline with its differences from the file, or the list of what a pipeline cannot express."""

    document: Document
    pipeline: Pipeline | None
    findings: tuple[Finding, ...]
    notes: tuple[Finding, ...]

    def text(self) -> str:
        """The pipeline's file."""
        assert self.pipeline is not None
        source = self.document
        return comment([f"{IMPORT_HEADER[2:]}{source.kind} {source.name}."]) + to_yaml(self.pipeline)


def import_document(document: Document, library: Library, site: Site) -> ImportResult:
    """The document as a pipeline, as far as a pipeline can express it."""
    listing = Unsupported(document)
    reader = READERS.get((document.kind, document.group))
    module = MAKERS.get(reader.module) if reader else None
    if module is None:
        what = f"{document.kind} {document.name}" if document.kind else "the document"
        listing.cannot(what, "it is no run of steps that gpuflow imports", document.where(), KINDS, KIND)
        return ImportResult(document, None, tuple(listing.found), ())
    if reader != KUBEFLOW_READER and listing.has_wrong_shapes(document):
        return ImportResult(document, None, _sort_findings(listing.found), ())
    make: Maker = importlib.import_module(module).pipeline_of
    draft = make(document, library, site, listing)
    if not draft.steps and not listing.found:
        listing.cannot(f"{document.kind} {document.name}", "it has no steps", document.where())
    for step in draft.pods:
        complete_step(step, site, listing)
    pipeline = None
    if not listing.found:
        written = {"apiVersion": "gpuflow/v1", "kind": "Pipeline", **_with_defaults(draft.document())}
        try:
            pipeline = check(Pipeline, written, Source(document.file, lambda path, key: document.where()))
        except GpuflowError as refusal:
            listing.found += [
                Finding(RULE, f"{each.code} {each.message}", each.where, each.hint) for each in refusal.findings
            ]
    return ImportResult(document, pipeline, _sort_findings(listing.found), tuple(listing.notes))


def _sort_findings(findings: list[Finding]) -> tuple[Finding, ...]:
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
