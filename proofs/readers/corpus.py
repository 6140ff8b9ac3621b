"""The workflows of the corpus that need nothing but a controller."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from gpuflow.core.errors import GpuflowError
from proofs.readers.case import NAME, Case, Manifest, prepared

FOLDER = Path(__file__).resolve().parents[2] / ".." / "shared" / "corpora" / "argo-workflows"
LEFT_OUT = ("http", "plugin")
"""Templates that need a server outside."""
MOST_PODS = 60


def cases() -> Iterator[Case | tuple[str, str]]:
    """Every workflow of the corpus as a case, or its name and why it is not played."""
    for path in sorted(FOLDER.rglob("*.yaml")):
        yield from _of_file(path)


def _of_file(path: Path) -> Iterator[Case | tuple[str, str]]:
    documents = _documents(path)
    for number, each in enumerate(documents):
        kind = each.get("kind")
        if kind not in ("Workflow", "WorkflowTemplate", "ClusterWorkflowTemplate", "CronWorkflow"):
            continue
        name = "-".join([*path.relative_to(FOLDER).with_suffix("").parts[1:], *([str(number)] if number else [])])
        found = _case(name, path, each, [other for other in documents if other is not each])
        if found is not None:
            yield found


def _case(name: str, path: Path, manifest: Manifest, beside: list[Manifest]) -> Case | tuple[str, str] | None:
    spec = manifest.get("spec") or {}
    if manifest["kind"] == "CronWorkflow":
        spec = spec.get("workflowSpec") or {}
    elif manifest["kind"] != "Workflow" and "entrypoint" not in spec:
        return None
    if manifest["kind"] in ("WorkflowTemplate", "ClusterWorkflowTemplate"):
        spec = {key: each for key, each in spec.items() if key != "workflowMetadata"}
    head = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": {"name": NAME}}
    near = [each for other in sorted(path.parent.glob("*.yaml")) if other != path for each in _documents(other)]
    others = [*beside, *(near if _refers(spec) else ())]
    kinds = ("WorkflowTemplate", "ClusterWorkflowTemplate", "ConfigMap")
    given = [_given(each) for each in others if each.get("kind") in kinds and each["metadata"].get("name")]
    try:
        case = Case(name, prepared({**head, "spec": spec}), given)
        left_out = _left_out(case)
    except GpuflowError as refusal:
        return name, f"the reader refuses the file: {refusal.findings[0].message}"
    return case if left_out is None else (name, left_out)


def _given(manifest: Manifest) -> Manifest:
    if manifest["kind"] == "ConfigMap":
        return manifest
    own = manifest["metadata"].get("name", NAME)
    found = prepared(manifest)
    found["metadata"]["name"] = own
    return found


@cache
def _documents(path: Path) -> list[Manifest]:
    """The objects of a file."""
    try:
        return [each for each in yaml.load_all(path.read_text(), yaml.CSafeLoader) if isinstance(each, dict)]
    except yaml.YAMLError:
        return []


def _refers(value: Any) -> bool:
    """Whether something in it names another document."""
    if isinstance(value, dict):
        named = {"templateRef", "workflowTemplateRef", "configMapKeyRef"} & value.keys()
        return bool(named) or any(map(_refers, value.values()))
    return isinstance(value, list) and any(map(_refers, value))


def _left_out(case: Case) -> str | None:
    for each in (case.workflow, *case.others):
        for template in each.get("spec", {}).get("templates") or ():
            kind = next((kind for kind in LEFT_OUT if kind in template), None)
            if kind is not None and each is case.workflow:
                return f"a template of kind {kind} needs a server outside"
    refusal = case.refusal()
    if refusal is not None:
        return f"the reader says that it never runs: {refusal}"
    pods = case.bounds("none").get("pods")
    if pods is not None and pods.value is not None and pods.value.milli > MOST_PODS * 1000:
        return f"more than {MOST_PODS} pods at once"
    return None
