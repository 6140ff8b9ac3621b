"""A document of another tool as a pipeline: read, completed, checked as any pipeline is, and written.

The difference between the pod that a step
makes and the pod that it must have becomes `kubernetes.merge`. gpuflow gives every pod a restricted security context,
and GPUs the site's tolerations. A file that says nothing of them gets pods without them, so the patch takes them away
again: the pods stay what they were until somebody decides.

A pipeline that is being written: its document, and the steps with the pods that they must have.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuflow.core.errors import Finding, GpuflowError
from gpuflow.core.printable import comment
from gpuflow.engines import ARGO
from gpuflow.formats.documents import KUBEFLOW_READER, READERS, Document, Library
from gpuflow.formats.nodes import mapping, plain_value
from gpuflow.importing.pods import COVERED_FIELDS, POD_FIELDS, Part, Parts, Step
from gpuflow.importing.unsupported import KIND, RULE, Place, Unsupported
from gpuflow.kubernetes.pod_fields import DIRECTIVE, Field, fields_of
from gpuflow.pod.build import pod_for
from gpuflow.site import Site
from gpuflow.spec.canonical import to_yaml
from gpuflow.spec.pipeline import Pipeline, check
from gpuflow.spec.problems import Source
from gpuflow.spec.step_fields import Settings


@dataclass
class Draft:
    """One pipeline, or one sub-pipeline."""

    params: dict[str, dict[str, Any]] = field(default_factory=dict)
    steps: dict[str, dict[str, Any]] = field(default_factory=dict)
    exit: dict[str, dict[str, Any]] = field(default_factory=dict)
    outputs: dict[str, Any] = field(default_factory=dict)
    head: dict[str, Any] = field(default_factory=dict)
    """Everything else, as the document has it."""
    pods: list[Step] = field(default_factory=list)
    """Every container step, those of sub-pipelines too."""

    def document(self) -> dict[str, Any]:
        """The pipeline's document, without what is empty."""
        parts = {"params": self.params, **self.head, "steps": self.steps, "exit": self.exit, "outputs": self.outputs}
        return {key: value for key, value in parts.items() if value not in (None, {}, [])}

    @property
    def argo(self) -> dict[str, Any]:
        """What it says to Argo alone."""
        words: dict[str, Any] = self.head.setdefault("engines", {}).setdefault(ARGO, {})
        return words

    def as_type(self, ref: dict[str, Any], kind: str) -> None:
        """Something holds it to a type."""
        if kind == "json":
            self.as_json(ref)
        elif "param" in ref and (param := self.params.get(ref["param"])) is not None and param["type"] == "string":
            value = _parse_json(param["default"]) if isinstance(param.get("default"), str) else None
            fits = {"int": "int", "float": "int float", "bool": "bool"}.get(kind, "str").split()
            if "default" not in param or type(value).__name__ in fits:
                param["type"] = kind
                if "default" in param:
                    param["default"] = value

    def as_json(self, ref: dict[str, Any]) -> None:
        """A list is taken from it, so it is JSON and not text."""
        if "param" in ref:
            param = self.params.get(ref["param"])
            if param is not None and param.get("type") != "json":
                param["type"] = "json"
                if isinstance(param.get("default"), str):
                    param["default"] = _parse_json(param["default"])
        if "output" in ref:
            step, _, name = ref["output"].partition(".")
            output = self.steps.get(step, {}).get("outputs", {}).get(name)
            if isinstance(output, dict):
                output["type"] = "json"


def object_metadata(document: Document, listing: Unsupported, place: Place) -> Mapping[str, Any]:
    """The metadata of an object of Kubernetes; what stands beside it and its spec is listed."""
    metadata = mapping(document.tree.get("metadata"))
    listing.fields(document.tree, ("apiVersion", "kind", "metadata", "spec", "status"), "", place)
    known = ("name", "generateName", "namespace", "labels", "annotations", "creationTimestamp")
    listing.fields(metadata, known, "metadata", place)
    if metadata.get("namespace"):
        where = place.of(metadata, "namespace")
        listing.note(f"the namespace {metadata['namespace']} is said when compiling: --namespace", where)
    return metadata


def read_schedule(
    spec: Mapping[str, Any], cron: Any, timezone: Any, draft: Draft, site: Site, listing: Unsupported, place: Place
) -> None:
    """The schedule of a CronWorkflow or a CronJob, which differ in the cron expression and the time zone alone."""
    schedule: dict[str, Any] = {"cron": str(cron)}
    schedule["concurrency"] = str(spec.get("concurrencyPolicy") or "Allow").lower()
    if timezone:
        schedule["timezone"] = str(timezone)
    if spec.get("suspend"):
        schedule["suspended"] = True
    draft.head["schedule"] = schedule
    late, said = plain_value(spec.get("startingDeadlineSeconds")), site.engine(ARGO).starting_deadline
    if late and (said is None or said.seconds != late):
        hint = f"write it in the site: engines: {{argo: {{starting_deadline: {late}s}}}}"
        where = place.of(spec, "startingDeadlineSeconds")
        listing.cannot("startingDeadlineSeconds", "the site says it, for all schedules of the cluster", where, hint)
    pairs = (("successful", "successfulJobsHistoryLimit"), ("failed", "failedJobsHistoryLimit"))
    history = {word: plain_value(spec[key]) for word, key in pairs if spec.get(key) is not None}
    if history:
        draft.argo["history"] = history


class Handing:
    """What a pipeline hands to a sub-pipeline: each reference of its own becomes a parameter there."""

    def __init__(self, sub: Draft) -> None:
        self.sub = sub
        self.params: dict[str, Any] = {}
        """Values of the sub-pipeline's parameters, in the words of the pipeline around it."""

    def __call__(self, name: str, parts: Parts, kind: str = "string") -> Parts:
        """A text of the pipeline, in the words of the sub-pipeline."""
        found: list[Part] = []
        for part in parts:
            if isinstance(part, str) or "run" in part:
                found.append(part)
                continue
            title = next((key for key, value in self.params.items() if value == part), None)
            if title is None:
                title = identifier(name, self.sub.params)
                self.sub.params[title], self.params[title] = {"type": kind}, part
            found.append({"param": title})
        return tuple(found)

    def step(self, name: str, around: Draft) -> dict[str, Any]:
        """The sub-pipeline as a step."""
        around.pods += self.sub.pods
        for title, param in self.sub.params.items():
            if param["type"] == "json":
                around.as_json(self.params[title])
        step: dict[str, Any] = {"pipeline": {"name": label(name, ()), **self.sub.document()}}
        return {**step, "params": self.params} if self.params else step


def in_order(waits: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """Tasks, each after those that it waits for; what waits for itself comes last."""
    waiting = dict(waits)
    while waiting:
        ready = [name for name, needs in waiting.items() if waiting.keys().isdisjoint(needs)]
        for name in ready or list(waiting):
            del waiting[name]
            yield name


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def label(name: str, taken: Iterable[str], length: int = 52) -> str:
    """A name of lower-case letters, digits and dashes that is not taken."""
    return _free_name(re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-"), "-", taken, length, "step")


def identifier(name: str, taken: Iterable[str]) -> str:
    """A name of letters, digits and underscores that is not taken."""
    return _free_name(re.sub(r"\W", "_", name, flags=re.ASCII), "_", taken, 63, "value")


def _free_name(name: str, joint: str, taken: Iterable[str], length: int, fallback: str) -> str:
    name = name if name and not name[0].isdigit() else f"{fallback}{joint}{name}".rstrip(joint)
    name = name[:length].rstrip(joint)
    used, number, found = set(taken), 1, name
    while found in used:
        number += 1
        found = f"{name[: length - 5]}{joint}{number}"
    return found


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
