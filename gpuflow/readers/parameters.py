"""The names of the parameters that a document takes: `--param` must name one of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpuflow.readers.documents import KFP, Document
from gpuflow.readers.frame import Library

DAG = ("DAG", "airflow")


def parameters_of(document: Document, library: Library) -> set[str]:
    """The names; none for kinds that take no parameters."""
    if (document.kind, document.group) == DAG:
        return {str(name) for name in _map(document.tree.get("params"))}
    if document.group == KFP:
        spec = _map(document.tree.get("pipelineSpec")) or document.tree
        root = _map(_map(_map(spec.get("root")).get("inputDefinitions")).get("parameters"))
        return {str(name) for name in root}
    if document.group == "argoproj.io":
        return set(_of_workflow(document, library))
    return set()


def _of_workflow(document: Document, library: Library) -> Iterator[str]:
    spec = _map(document.tree.get("spec"))
    if document.kind == "CronWorkflow":
        spec = _map(spec.get("workflowSpec"))
    yield from _declared(spec)
    referred = _map(spec.get("workflowTemplateRef"))
    kind = "ClusterWorkflowTemplate" if referred.get("clusterScope") is True else "WorkflowTemplate"
    name = referred.get("name")
    found = library.find(kind, name) if isinstance(name, str) else None
    if found is not None:
        yield from _declared(_map(found.tree.get("spec")))


def _declared(spec: Mapping[str, Any]) -> Iterator[str]:
    given = _map(spec.get("arguments")).get("parameters")
    for each in given if isinstance(given, list) else ():
        if isinstance(each, Mapping) and isinstance(each.get("name"), str):
            yield each["name"]


def _map(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
