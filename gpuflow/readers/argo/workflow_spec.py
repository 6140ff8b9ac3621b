"""The workflow that Argo runs: a document's own words over those of the templates that it names.

Mirrors JoinWorkflowSpec and MergeTo of workflow/util, and mergedTemplateDefaultsInto of workflow/controller, v4.0.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from gpuflow.core.errors import Where
from gpuflow.formats.documents import Document, Library
from gpuflow.formats.nodes import as_plain, mapping, maps_in, text_of
from gpuflow.kubernetes.strategic_merge import strategic_merge_map_patch
from gpuflow.readers.argo.variables import OpenValue, Scope, Value

GROUP: Final = "argoproj.io"
TYPES: Final = (
    "container", "containerSet", "dag", "data", "http", "plugin", "resource", "script", "steps", "suspend",
)  # fmt: skip
"""What a template can be; exactly one of them."""
BY_NAME: Final = ("templates", "volumes", "imagePullSecrets", "parameters", "artifacts")
"""Lists of a workflow that are merged by the names of their elements."""
Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Template:
    """One template, with the place where it is written."""

    tree: Mapping[str, Any]
    home: Home
    path: Path
    type: str | None
    """None when it is nothing that Argo runs."""

    @property
    def name(self) -> str:
        return text_of(self.tree.get("name")) or "inline"

    def where(self, *path: str | int, key: bool = False) -> Where:
        return self.home.document.where(*self.path, *path, key=key)


@dataclass(frozen=True)
class Home:
    """The templates that a name without a reference finds: those of the same document."""

    document: Document
    path: Path
    behind: Home | None = None
    """The templates of a workflowTemplateRef, which are found too."""

    @property
    def tree(self) -> Mapping[str, Any]:
        """The specification of the workflow in the document."""
        tree: Any = self.document.tree
        for part in self.path:
            tree = mapping(tree).get(str(part))
        return mapping(tree)

    @cached_property
    def templates(self) -> dict[str, Template]:
        found: dict[str, Template] = {} if self.behind is None else dict(self.behind.templates)
        for index, each in maps_in(self.tree.get("templates")):
            name = text_of(each.get("name"))
            if name:
                found[name] = Template(each, self, (*self.path, "templates", index), type_of(each))
        return found

    def where(self, *path: str | int, key: bool = False) -> Where:
        """Where a field is written; that of the template behind it when the document itself does not say it."""
        if self.behind is not None and path and path[0] not in self.tree:
            return self.behind.where(*path, key=key)
        return self.document.where(*self.path, *path, key=key)


def type_of(tree: Mapping[str, Any]) -> str | None:
    found = [word for word in TYPES if tree.get(word) is not None]
    return found[0] if len(found) == 1 else None


def home_of(document: Document, library: Library) -> tuple[Home, str | None]:
    """Where a document's templates are, and the reference behind it that was not given."""
    path: Path = ("spec", "workflowSpec") if document.kind == "CronWorkflow" else ("spec",)
    own = Home(document, path)
    reference = mapping(own.tree.get("workflowTemplateRef"))
    name = text_of(reference.get("name"))
    if not name:
        return own, None
    kind = kind_of_reference(reference)
    found = library.find(kind, name)
    if found is None or found.group != GROUP:
        return own, f"{kind} {name}"
    return Home(document, path, Home(found, ("spec",))), None


def kind_of_reference(reference: Mapping[str, Any]) -> str:
    return "ClusterWorkflowTemplate" if reference.get("clusterScope") is True else "WorkflowTemplate"


@dataclass(frozen=True)
class Spec:
    """What a run is made from."""

    home: Home
    tree: Mapping[str, Any]
    """Every field but the templates, the document's own over those behind it."""

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


def spec_of(home: Home) -> Spec:
    own = {key: each for key, each in home.tree.items() if key != "templates"}
    if home.behind is None:
        return Spec(home, own)
    behind = {key: each for key, each in home.behind.tree.items() if key != "templates"}
    behind.pop("suspend", None)
    return Spec(home, _merge_maps(behind, own))


def _merge_maps(below: Mapping[str, Any], above: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
    """Two maps as one; what is above counts."""
    found = dict(below)
    for key, value in above.items():
        other = below.get(key)
        if isinstance(value, Mapping) and isinstance(other, Mapping) and depth < 50:
            found[key] = _merge_maps(other, value, depth + 1)
        elif isinstance(value, list) and isinstance(other, list) and key in BY_NAME:
            named = {mapping(each).get("name"): each for each in (*other, *value) if isinstance(each, Mapping)}
            found[key] = list(named.values())
        else:
            found[key] = value
    return found


def global_scope(spec: Spec, library: Library, params: Mapping[str, str]) -> Scope:
    """The variables of the whole workflow, as far as they are known."""
    document = spec.home.document
    values: dict[str, Value] = {}
    metadata = mapping(document.tree.get("metadata"))
    if document.kind == "Workflow":
        if text_of(metadata.get("name")):
            values["workflow.name"] = str(text_of(metadata["name"]))
        for field in ("labels", "annotations"):
            for key, each in mapping(metadata.get(field)).items():
                values[f"workflow.{field}.{key}"] = text_of(each) or ""
    if library.namespace or document.namespace:
        values["workflow.namespace"] = library.namespace or str(document.namespace)
    values["workflow.serviceAccountName"] = spec.text("serviceAccountName") or "default"
    if spec.text("entrypoint"):
        values["workflow.mainEntrypoint"] = str(spec.text("entrypoint"))
    scope = Scope(values)
    for _, parameter in maps_in(mapping(spec.tree.get("arguments")).get("parameters")):
        name = text_of(parameter.get("name"))
        if name:
            values[f"workflow.parameters.{name}"] = _value(name, parameter, scope, library)
    for name, given in params.items():
        values[f"workflow.parameters.{name}"] = given
    return scope


def _value(name: str, parameter: Mapping[str, Any], scope: Scope, library: Library) -> Value:
    written = text_of(parameter.get("value"))
    if written is not None:
        text, missing = scope.fill(written)
        return missing[0] if missing else text
    read = from_config_map(parameter, library)
    if read is not None:
        return read
    default = text_of(parameter.get("default"))
    if default is not None:
        return default
    return OpenValue(f"parameter {name} of the workflow has no value", hint=f"give --param {name}=VALUE")


def from_config_map(parameter: Mapping[str, Any], library: Library) -> Value | None:
    """The value of a parameter that stands in a ConfigMap; None when it is not said to."""
    source = mapping(mapping(parameter.get("valueFrom")).get("configMapKeyRef"))
    name, key = text_of(source.get("name")), text_of(source.get("key"))
    if not name or not key:
        return None
    found = library.find("ConfigMap", name)
    value = None if found is None else text_of(mapping(found.tree.get("data")).get(key))
    if value is not None:
        return value
    return OpenValue(
        f"its value stands in ConfigMap {name}, key {key}, which was not given",
        hint="name the ConfigMap's file as well",
    )


def inputs_of(
    tree: Mapping[str, Any], arguments: Mapping[str, Value], outer: Scope, library: Library
) -> dict[str, Value]:
    """The inputs of a template: what is handed to it, or what it says itself."""
    found: dict[str, Value] = {}
    for _, parameter in maps_in(mapping(tree.get("inputs")).get("parameters")):
        name = text_of(parameter.get("name"))
        if not name:
            continue
        given: Value | None = arguments.get(name)
        if given is None:
            written = text_of(parameter.get("value"))
            if written is None:
                read = from_config_map(parameter, library)
                if read is not None:
                    found[f"inputs.parameters.{name}"] = read
                    continue
                written = text_of(parameter.get("default"))
            if written is None:
                given = OpenValue(f"input {name} of template {text_of(tree.get('name'))} has no value")
            else:
                text, missing = outer.fill(written)
                given = missing[0] if missing else text
        found[f"inputs.parameters.{name}"] = given
    return found


def arguments_of(call: Mapping[str, Any], scope: Scope, library: Library) -> dict[str, Value]:
    """What a step, task or hook hands to its template, by name."""
    found: dict[str, Value] = {}
    for _, parameter in maps_in(mapping(call.get("arguments")).get("parameters")):
        name = text_of(parameter.get("name"))
        if not name:
            continue
        written = text_of(parameter.get("value"))
        source = mapping(parameter.get("valueFrom"))
        if written is None and text_of(source.get("expression")):
            written = f"{{{{={text_of(source['expression'])}}}}}"
        if written is not None:
            text, missing = scope.fill(written)
            loops = frozenset[int]().union(*(each.loops for each in missing))
            found[name] = OpenValue(missing[0].because, loops, missing[0].hint) if missing else text
            continue
        read = from_config_map(parameter, library)
        if read is not None:
            found[name] = read
        elif source:
            found[name] = OpenValue(f"argument {name} is only known in the run")
    return found


def names_of(templates: Iterable[str]) -> str:
    """A few names, for a hint."""
    found = sorted(templates)
    return ", ".join(found[:5]) + (", …" if len(found) > 5 else "")
