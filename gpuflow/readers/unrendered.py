"""Files that a tool must turn into documents first: Helm's templates, charts and values, kustomizations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gpuflow import yaml_tree
from gpuflow.errors import Finding, GpuflowError, Where, fail
from gpuflow.readers.documents import Document

NOT_RENDERED = "GF406"
KUSTOMIZE = "kustomize.config.k8s.io"
KUSTOMIZATION = ("kustomization.yaml", "kustomization.yml", "kustomization")
_HELM = re.compile(r"\{\{-?\s*(?:\.(?:Values|Release|Chart|Capabilities|Files|Template)\b|include\s+\"|toYaml\b)")
"""What only Helm says: Argo and Jinja write braces too."""
_BRACES = re.compile(r"\{\{-?\s*[.$\w]")


def rendered(documents: list[Document]) -> list[Document]:
    """The documents; GF406 when they are what Helm or kustomize makes documents from."""
    for each in documents:
        file = Path(each.file)
        nameless = not each.kind and file.name.lower() in KUSTOMIZATION
        if each.group.split("/")[0] == KUSTOMIZE or nameless:
            raise _unrendered("a kustomization", each.where(), f"kubectl kustomize {file.parent}")
        if not each.kind and file.name == "Chart.yaml":
            raise _unrendered("a Helm chart", each.where(), f"helm template {file.parent}")
        if (place := _template(each.tree)) is not None:
            raise _unrendered("a Helm template", Where(each.file, *place), "helm template CHART")
    return documents


def said_of_workload(refusal: GpuflowError) -> GpuflowError:
    """The refusal of a template, with the way out for workloads instead of that for a cluster."""
    first = refusal.findings[0]
    if first.code != NOT_RENDERED:
        return refusal
    return _unrendered("a template", first.where, "helm template CHART")


def is_template(text: str, file: str) -> GpuflowError | None:
    """The refusal of a text that is not YAML because it is a template."""
    found = _BRACES.search(text)
    if found is None:
        return None
    start = found.start()
    where = Where(file, text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start))
    return _unrendered("a template", where, "helm template CHART")


def is_unrendered(findings: Iterable[Finding]) -> bool:
    return any(each.code == NOT_RENDERED for each in findings)


def _unrendered(what: str, where: Where, command: str) -> GpuflowError:
    hint = f"render it and pipe the result into the command: {command} | gpuflow check - …"
    return fail(NOT_RENDERED, f"{where.file} is {what}, which must be rendered first", where=where, hint=hint)


def _template(tree: Any) -> tuple[int, int] | None:
    """Where a value or a key is one of Helm's; scripts, which span lines, may hold anything."""
    waiting: list[tuple[Any, yaml_tree.Spot]] = [(tree, getattr(tree, "spot", yaml_tree.Spot(1, 1)))]
    while waiting:
        value, spot = waiting.pop()
        if isinstance(value, str):
            if "\n" not in value and _HELM.search(value):
                return spot.line, spot.column
        elif isinstance(value, Mapping):
            at = getattr(value, "value_at", {})
            waiting += [(each, at.get(key, spot)) for key, each in value.items()]
        elif isinstance(value, list):
            places = getattr(value, "item_at", ())
            waiting += [(each, places[i] if i < len(places) else spot) for i, each in enumerate(value)]
    return None
