"""A template taken apart and put together: the texts that may differ between steps, and all the rest."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from gpuflow.pod.build import LABEL

Template = dict[str, Any]
LONGEST_TEXT = 256
"""Argo copies arguments into the run's status, once for every node; long texts stay in templates, which it does not."""
STEP_LABEL = f"{LABEL}step"
_CARRIED = re.compile("[\t\n\r\x20-\x7e\x80-\ud7ff\ue000-\uffff]*")
"""What survives as an argument: Argo quotes what it replaces as Go does, which is not JSON for the rest."""
_TAG = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)


class Slot(NamedTuple):
    """A place in a template whose text may differ: the step's label, a variable, or a word of a command."""

    place: str
    """`label`, `env` or `command`, in the order in which they name parameters: a label says most."""
    container: str = ""
    key: str | int = ""


@dataclass(frozen=True, slots=True)
class Shape:
    """A template taken apart: what must be equal for sharing, and the texts that may differ."""

    template: Template
    skeleton: str
    slots: Mapping[Slot, str]


def shape_of(template: Template) -> Shape:
    """The template's open texts, and the rest of it as one comparable text."""
    slots: dict[Slot, str] = {}
    skeleton = {key: value for key, value in template.items() if key not in ("name", "inputs")}
    inputs = template.get("inputs", {})
    # An input with nothing but a name is known by where it is used.
    skeleton["inputs"] = [entry for entry in inputs.get("parameters", []) if len(entry) > 1], inputs.get("artifacts")
    labels = template.get("metadata", {}).get("labels", {})
    if STEP_LABEL in labels and _is_open(labels[STEP_LABEL]):
        slots[Slot("label")] = labels[STEP_LABEL]
        skeleton["metadata"] = {**template["metadata"], "labels": {**labels, STEP_LABEL: None}}
    for field in ("container", "initContainers", "sidecars"):
        if field in template:
            skeleton[field] = [_bare(container, slots) for container in _containers(template[field])]
    return Shape(template, json.dumps(skeleton), slots)


def _containers(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _bare(container: Mapping[str, Any], slots: dict[Slot, str]) -> dict[str, Any]:
    """The container without its open texts, which go into `slots`."""
    name = container.get("name", "")
    bare = dict(container)
    if "command" in container:
        words: list[Any] = list(container["command"])
        for index, word in enumerate(words):
            if _is_open(word):
                slots[Slot("command", name, index)] = word
                words[index] = None
        bare["command"] = words
    if "env" in container:
        variables: list[Any] = list(container["env"])
        for index, entry in enumerate(variables):
            if "value" in entry and _is_open(entry["value"]):
                slots[Slot("env", name, entry["name"])] = entry["value"]
                variables[index] = {"name": entry["name"]}
        bare["env"] = variables
    return bare


def _is_open(text: str) -> bool:
    """Whether the text can be handed over as an argument: short, plain, with no tag that only a pod can fill."""
    if len(text) > LONGEST_TEXT or not ((text.isascii() and text.isprintable()) or _CARRIED.fullmatch(text)):
        return False
    return "{{" not in text or all(tag.startswith(("inputs.parameters.", "workflow.")) for tag in _TAG.findall(text))


def filled(template: Template, texts: Mapping[Slot, str]) -> Template:
    """The template with other texts in some of its slots."""
    result = dict(template)
    if Slot("label") in texts:
        labels = {**template["metadata"]["labels"], STEP_LABEL: texts[Slot("label")]}
        result["metadata"] = {**template["metadata"], "labels": labels}
    for field in ("container", "initContainers", "sidecars"):
        if field in template:
            parts = [_filled_container(container, texts) for container in _containers(template[field])]
            result[field] = parts if isinstance(template[field], list) else parts[0]
    return result


def _filled_container(container: Mapping[str, Any], texts: Mapping[Slot, str]) -> dict[str, Any]:
    name = container.get("name", "")
    result = dict(container)
    if "command" in container:
        words = enumerate(container["command"])
        result["command"] = [texts.get(Slot("command", name, index), word) for index, word in words]
    if "env" in container:
        result["env"] = [
            {**entry, "value": texts[slot]} if (slot := Slot("env", name, entry["name"])) in texts else entry
            for entry in container["env"]
        ]
    return result
