"""A pipeline that is being written: its document, and the steps with the pods that they must have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuflow.engines import ARGO
from gpuflow.formats.documents import Document
from gpuflow.formats.nodes import mapping, plain_value
from gpuflow.importing.pods import Step
from gpuflow.importing.unsupported import Place, Unsupported
from gpuflow.importing.values import Part, Parts
from gpuflow.site import Site


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
