"""Argo's workflows as they are written: what a run is made from, its templates, and which of them a call means.

Mirrors JoinWorkflowSpec and MergeTo of workflow/util, mergedTemplateDefaultsInto of workflow/controller, and
GetTaskDependencies of workflow/common/ancestry.go, v4.0.2.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

from gpuflow.core.errors import Where
from gpuflow.formats.documents import Document, Library
from gpuflow.formats.nodes import as_list, as_plain, mapping, maps_in, text_of
from gpuflow.kubernetes.pod_fields import strategic_merge_map_patch

GROUP: Final = "argoproj.io"
TYPES: Final = (
    "container", "containerSet", "dag", "data", "http", "plugin", "resource", "script", "steps", "suspend",
)  # fmt: skip
"""What a template can be; exactly one of them."""
BY_NAME: Final = ("templates", "volumes", "imagePullSecrets", "parameters", "artifacts")
"""Lists of a workflow that are merged by the names of their elements."""
LOOPS: Final = ("withItems", "withParam", "withSequence")
Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Template:
    """One template, in the workflow whose other templates it calls by name."""

    tree: Mapping[str, Any]
    workflow: Workflow
    path: Path

    @cached_property
    def type(self) -> str | None:
        """What it runs; None when that is nothing, or more than one thing."""
        found = [word for word in TYPES if self.tree.get(word) is not None]
        return found[0] if len(found) == 1 else None

    @property
    def name(self) -> str:
        return text_of(self.tree.get("name")) or "inline"

    def where(self, *path: str | int, key: bool = False) -> Where:
        return self.workflow.document.where(*self.path, *path, key=key)


@dataclass(frozen=True)
class Workflow:
    """What a run is made from: a document's own words over those of the WorkflowTemplate that it names."""

    document: Document
    path: Path = ("spec",)
    behind: Workflow | None = None
    """What workflowTemplateRef names: its templates are found too."""
    missing: str | None = None
    """Kind and name of what workflowTemplateRef names, when that was not given."""

    @cached_property
    def own(self) -> Mapping[str, Any]:
        """The specification in the document."""
        tree: Any = self.document.tree
        for part in self.path:
            tree = mapping(tree).get(str(part))
        return mapping(tree)

    @cached_property
    def tree(self) -> Mapping[str, Any]:
        """Every field but the templates, the document's own over those behind it."""
        own = {key: each for key, each in self.own.items() if key != "templates"}
        if self.behind is None:
            return own
        return _merge_maps({key: each for key, each in self.behind.tree.items() if key != "suspend"}, own)

    @cached_property
    def templates(self) -> dict[str, Template]:
        """By name."""
        found: dict[str, Template] = {} if self.behind is None else dict(self.behind.templates)
        for index, each in maps_in(self.own.get("templates")):
            name = text_of(each.get("name"))
            if name:
                found[name] = Template(each, self, (*self.path, "templates", index))
        return found

    @property
    def repeated_names(self) -> list[tuple[int, str]]:
        """The templates of the document itself that have the name of one before them, by their places."""
        names = [(index, text_of(each.get("name"))) for index, each in maps_in(self.own.get("templates"))]
        before = {name: index for index, name in reversed(names)}
        return [(index, name) for index, name in names if name and before[name] != index]

    def where(self, *path: str | int, key: bool = False) -> Where:
        """Where a field is written; that of the template behind it when the document itself does not say it."""
        if self.behind is not None and path and path[0] not in self.own:
            return self.behind.where(*path, key=key)
        return self.document.where(*self.path, *path, key=key)

    def text(self, field: str) -> str | None:
        return text_of(self.tree.get(field)) or None

    @cached_property
    def defaults(self) -> Mapping[str, Any]:
        return mapping(as_plain(self.tree.get("templateDefaults")))

    def with_defaults(self, template: Template) -> Mapping[str, Any]:
        """A template over the defaults that the workflow has for all of its kind. Raises `BadPatch`."""
        tree = mapping(as_plain(template.tree))
        if not self.defaults:
            return tree
        shared = {key: each for key, each in self.defaults.items() if key not in TYPES and key != "name"}
        kind = template.type
        if kind is None:
            return tree
        found = strategic_merge_map_patch(shared, {key: each for key, each in tree.items() if key != kind}, "PodSpec")
        own, default = tree[kind], self.defaults.get(kind)
        if isinstance(own, dict) and isinstance(default, dict):
            own = strategic_merge_map_patch(default, own, "Container" if kind in ("container", "script") else "any")
        inputs = mapping(shared.get("inputs")), mapping(tree.get("inputs"))
        if all(inputs):
            found["inputs"] = _merge_maps(*inputs)
        return {**found, kind: own}


def workflow_of(document: Document, library: Library) -> Workflow:
    """The workflow in a Workflow, WorkflowTemplate, ClusterWorkflowTemplate or CronWorkflow."""
    path: Path = ("spec", "workflowSpec") if document.kind == "CronWorkflow" else ("spec",)
    reference = mapping(Workflow(document, path).own.get("workflowTemplateRef"))
    name = text_of(reference.get("name"))
    if not name:
        return Workflow(document, path)
    kind = _kind_of_reference(reference)
    found = library.find(kind, name)
    if found is None or found.group != GROUP:
        return Workflow(document, path, missing=f"{kind} {name}")
    return Workflow(document, path, Workflow(found))


def _kind_of_reference(reference: Mapping[str, Any]) -> str:
    return "ClusterWorkflowTemplate" if reference.get("clusterScope") is True else "WorkflowTemplate"


def _merge_maps(below: Mapping[str, Any], above: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
    """Two maps as one; what is above counts, and null is nothing."""
    found = dict(below)
    for key, value in above.items():
        other = below.get(key)
        if value is None:
            continue
        if isinstance(value, Mapping) and isinstance(other, Mapping) and depth < 50:
            found[key] = _merge_maps(other, value, depth + 1)
        elif isinstance(value, list) and isinstance(other, list) and key in BY_NAME:
            named = {str(each.get("name")): each for each in (*other, *value) if isinstance(each, Mapping)}
            found[key] = list(named.values())
        else:
            found[key] = value
    return found


class Found(NamedTuple):
    """Which template a call means, as far as that is known."""

    template: Template | None
    wanted: str | None = ""
    """The name that was looked for; None where only the run knows it."""
    among: Mapping[str, Template] = {}
    """The templates among which it was looked for."""
    owner: str | None = None
    """Kind and name of what templateRef names."""
    is_given: bool = True
    """Whether that was given."""


def template_of(
    call: Mapping[str, Any], inside: Workflow, path: Path, library: Library, fill: Callable[[str], str | None]
) -> Found:
    """The template that a step, task or hook at a path calls. `fill`: a text with its tags replaced, None where that
    is not known."""
    inline, reference = call.get("inline"), call.get("templateRef")
    if isinstance(inline, Mapping):
        return Found(Template(inline, inside, (*path, "inline")))
    if not isinstance(reference, Mapping):
        name = fill(text_of(call.get("template")) or "")
        return Found(inside.templates.get(name or ""), name, inside.templates)
    document, name = (fill(text_of(reference.get(key)) or "") for key in ("name", "template"))
    if document is None or name is None:
        return Found(None, None)
    kind = _kind_of_reference(reference)
    there = library.find(kind, document)
    if there is None or there.group != GROUP:
        return Found(None, name, owner=f"{kind} {document}", is_given=False)
    templates = Workflow(there).templates
    return Found(templates.get(name), name, templates, f"{kind} {document}")


def names_of(templates: Mapping[str, Template]) -> str:
    """A few names, for a hint."""
    found = sorted(templates)
    return ", ".join(found[:5]) + (", …" if len(found) > 5 else "") or "none"


_TASK_NAME: Final = re.compile(r"([a-zA-Z0-9][-a-zA-Z0-9]*?\.[A-Z][a-zA-Z]+)|([a-zA-Z0-9][-a-zA-Z0-9]*)")
_SIMPLE_DEPENDS: Final = re.compile(r"[\w\s&()-]*")
DONE_RESULTS: Final = ("Succeeded", "Skipped", "Daemoned")
FAILED_RESULTS: Final = frozenset({"Failed", "Errored", "AllFailed", "Skipped", "Omitted"})
RESULTS: Final = frozenset({*DONE_RESULTS, *FAILED_RESULTS, "AnySucceeded"})


def sequence_of(numbers: Mapping[str, int]) -> range | None:
    """What `withSequence` counts, up or down, by its start, end and count; None where it says neither end nor count."""
    start = numbers.get("start", 0)
    if "end" not in numbers and "count" not in numbers:
        return None
    if "end" not in numbers and numbers["count"] == 0:
        return range(0)
    end = numbers["end"] if "end" in numbers else start + numbers["count"] - 1
    return range(start, end + 1) if start <= end else range(start, end - 1, -1)


@dataclass(frozen=True)
class Waits:
    names: tuple[str, ...]
    logic: str | None = None
    """None: until all of them are done, and none was left out."""
    unhappy: frozenset[str] = frozenset()
    """Tasks whose failure, or being left out, it asks about."""


class BadDepends(ValueError):
    """Text that Argo refuses."""


def waits_of(task: Mapping[str, Any]) -> Waits:
    """What a task waits for. Raises `BadDepends`."""
    written = text_of(task.get("depends"))
    if not written:
        names = [text_of(each) for each in as_list(task.get("dependencies"))]
        return Waits(tuple(dict.fromkeys(name for name in names if name)))
    if task.get("dependencies"):
        raise BadDepends("it has both depends and dependencies")
    found: dict[str, None] = {}
    unhappy: set[str] = set()
    for result, bare in _TASK_NAME.findall(written):
        if bare:
            found[bare] = None
            continue
        name, _, word = result.partition(".")
        if word not in RESULTS:
            raise BadDepends(f"task result {word} does not exist")
        found[name] = None
        if word in FAILED_RESULTS:
            unhappy.add(name)
    if "!" in written:
        unhappy |= found.keys()
    if _SIMPLE_DEPENDS.fullmatch(written):
        return Waits(tuple(found))
    done = " || ".join(rf"\2.{word}" for word in DONE_RESULTS)
    logic = _TASK_NAME.sub(lambda match: match[0] if match[1] else match.expand(f"({done})"), written)
    return Waits(tuple(found), logic, frozenset(unhappy))
