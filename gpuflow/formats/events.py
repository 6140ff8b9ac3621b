"""What a Sensor of Argo Events starts: the Workflows that stand in its triggers, as Workflows of their own.

An event may write fields of a Workflow before it is created (`parameters` of a trigger). A value of an argument is then
one that only the run knows; any other field is named in `Trigger.writes`, for whoever reads the Workflow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpuflow.cluster.model import with_entry
from gpuflow.core import yaml_tree
from gpuflow.core.errors import Where
from gpuflow.formats.nodes import as_list, mapping, maps, text_of

SENSOR: Final = ("Sensor", "argoproj.io")
_WORKFLOW: Final = "Workflow"
_CREATES: Final = {"argoWorkflow": ("submit", None), "k8s": ("create", None)}
"""The kinds of triggers that create an object, and the operations with which they do; None: none is written."""
_ARGUMENT: Final = re.compile(r"spec\.arguments\.parameters\.(\d{1,6})\.value")
_NAMES: Final = ("metadata.name", "metadata.generateName")


@dataclass(frozen=True, slots=True)
class Trigger:
    """Of a Workflow in a Sensor: what starts it."""

    title: str
    """As sentences call it."""
    where: Where
    writes: tuple[str, ...]
    """The fields that each event may write, but for names and the values of arguments."""


def workflows_in(sensor: Mapping[str, Any], file: str) -> Iterator[tuple[Mapping[str, Any], Trigger]]:
    """The Workflows that a Sensor starts, each with what starts it."""
    metadata = mapping(sensor.get("metadata"))
    for trigger in _triggers(sensor):
        tree = _workflow_of(trigger)
        if tree is None:
            continue
        if metadata.get("namespace") and not mapping(tree.get("metadata")).get("namespace"):
            home = with_entry(mapping(tree.get("metadata")), "namespace", metadata["namespace"])
            tree = with_entry(tree, "metadata", home)
        template = mapping(trigger.get("template"))
        writes = [f"{each} of its template" for each in _destinations(trigger)]
        for kind in _CREATES:
            started = mapping(template.get(kind))
            writes += ["what its args say"] if started.get("args") else []
            for field in _destinations(started):
                opened = _with_open_argument(tree, field)
                tree, writes = (tree, [*writes, field]) if opened is None else (opened, writes)
        at = yaml_tree.where_of(trigger, ("template",), key=True)
        title = f"trigger {_name_of(trigger)} of Sensor {metadata.get('name')}"
        yield tree, Trigger(title, Where(file, at.line, at.column), tuple(writes))


def other_triggers(sensor: Mapping[str, Any]) -> list[str]:
    """The names of the triggers that start something else, or what stands in no file."""
    return [_name_of(each) for each in _triggers(sensor) if _workflow_of(each) is None]


def _name_of(trigger: Mapping[str, Any]) -> str:
    return text_of(mapping(trigger.get("template")).get("name")) or "without a name"


def _triggers(sensor: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The triggers, each before the one that is for events that it could not deliver."""
    for each in maps(mapping(sensor.get("spec")).get("triggers")):
        yield each
        if mapping(each.get("dlqTrigger")):
            yield each["dlqTrigger"]


def _workflow_of(trigger: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The Workflow that a trigger creates, as it stands in it."""
    template = mapping(trigger.get("template"))
    for kind, operations in _CREATES.items():
        started = mapping(template.get(kind))
        tree = mapping(mapping(started.get("source")).get("resource"))
        group = (text_of(tree.get("apiVersion")) or "").rpartition("/")[0]
        if (tree.get("kind"), group) == (_WORKFLOW, SENSOR[1]) and started.get("operation") in operations:
            return tree
    return None


def _destinations(owner: Mapping[str, Any]) -> list[str]:
    """The fields that `parameters` of a trigger write."""
    return [text_of(each.get("dest")) or "a field" for each in maps(owner.get("parameters"))]


def _with_open_argument(tree: Mapping[str, Any], field: str) -> Mapping[str, Any] | None:
    """The Workflow with an argument whose value only the run knows; None where the field is none."""
    if field in _NAMES:
        return tree
    spec = mapping(tree.get("spec"))
    arguments = mapping(spec.get("arguments"))
    listed, found = as_list(arguments.get("parameters")), _ARGUMENT.fullmatch(field)
    if found is None or int(found[1]) >= len(listed):
        return None
    index = int(found[1])
    opened: dict[str, Any] = {"name": mapping(listed[index]).get("name"), "valueFrom": {"supplied": {}}}
    parameters = [*listed[:index], opened, *listed[index + 1 :]]
    return with_entry(tree, "spec", with_entry(spec, "arguments", with_entry(arguments, "parameters", parameters)))
