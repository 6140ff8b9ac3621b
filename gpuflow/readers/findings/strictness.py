"""What the API server says of the fields of a document: those it does not have, and values of another type.

An unknown field changes no verdict: kubectl refuses the object, Argo CD and Helm may lose the field, and what is left
is judged. It is an error all the same: a limit that is lost is no limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from gpuflow.core.errors import Finding, GpuflowError
from gpuflow.formats.documents import ARGO_READER, DAG, KFP, KUBEFLOW_READER, READERS, Document, kind_of
from gpuflow.formats.nodes import mapping
from gpuflow.formats.schemas import Fault, FieldPath, Schema, schema_of, shipped, shown_path
from gpuflow.kubernetes.yaml_scalars import parse_manifests
from gpuflow.readers.argo.variables import TAG

UNKNOWN_FIELD: Final = "GF815"
CODES: Final = (UNKNOWN_FIELD, "GF816", "GF817", "GF818")
_LOST: Final = "kubectl refuses the object; where nobody asks for strictness, the field is lost"
_REFUSED: Final = "Kubernetes refuses the object"
_TAG: Final = "gpuflow-tag"


def strict_findings(document: Document, own: Iterable[Mapping[str, Any]] = ()) -> Iterator[Finding]:
    """What is wrong with the fields of a document. `own`: the cluster's CRDs."""
    if document.group == KFP or (document.kind, document.group) == DAG or not document.kind:
        return
    if READERS.get((document.kind, document.group)) == KUBEFLOW_READER:
        return
    version = str(document.tree["apiVersion"])
    schema = schema_of(version, document.kind, own)
    if schema is None:
        known = {each.rpartition("/")[0] for each in (key.split(" ")[0] for key in shipped().kinds)}
        if (document.kind, document.group) in READERS or document.group in known:
            text = f"{_title(document)}: gpuflow has no schema of {document.kind} in {version}, so that a misspelled"
            hint = "add the CustomResourceDefinition to the files of the cluster, or write a version that it serves"
            yield Finding("GF819", f"{text} field is not found", document.where("apiVersion"), hint, "note")
        return
    for fault in schema.faults(document.tree):
        yield _finding(document, fault)
    if READERS.get((document.kind, document.group)) == ARGO_READER:
        yield from _in_texts(document)


def _finding(document: Document, fault: Fault, within: FieldPath = ()) -> Finding:
    """`within`: the text of the document in which the fault is."""
    where = document.where(*(within or fault.path), key=not within and fault.code == UNKNOWN_FIELD)
    place = shown_path(fault.path)
    inside = f"{shown_path(within)}: " if within else ""
    effect = _LOST if fault.code == UNKNOWN_FIELD and not within else _REFUSED
    if within:
        effect = "it has no effect" if fault.code == UNKNOWN_FIELD else "Kubernetes refuses it"
    says = f'strict decoding error: unknown field "{place}"' if fault.code == UNKNOWN_FIELD and not within else None
    text = f"{_title(document)}: {inside}{place} {fault.message}: {effect}"
    return Finding(fault.code, text, where, fault.hint, kubernetes=says)


def _title(document: Document) -> str:
    return f"{document.kind} {document.name}"


def _in_texts(document: Document) -> Iterator[Finding]:
    """Manifests and patches that an Argo workflow holds as text. What a tag stands for is only known in the run."""
    for path, text in _texts(document.tree, ()):
        action = mapping(_value_at(document.tree, path[:-1])).get("action")
        if path[-1] == "manifest" and action not in ("create", "apply", "replace", "patch"):
            continue
        for tree in _parsed(TAG.sub(_TAG, text)):
            schema = schema_of("v1", "Pod") if path[-1] == "podSpecPatch" else _schema_named_in(tree)
            if schema is None:
                continue
            schema = schema.at("spec") if path[-1] == "podSpecPatch" else schema
            for fault in schema.faults(tree, is_patch=action in (None, "patch")):
                written = (*fault.path, _value_at(tree, fault.path))
                if not any(_TAG in str(each) for each in written):
                    yield _finding(document, fault, path)


def _schema_named_in(tree: Mapping[str, Any]) -> Schema | None:
    kind, _ = kind_of(tree)
    return schema_of(str(tree["apiVersion"]), kind) if kind else None


def _value_at(tree: Any, path: FieldPath) -> Any:
    for part in path:
        tree = tree[part] if isinstance(tree, list) else mapping(tree).get(str(part))
    return tree


def _texts(value: Any, path: FieldPath) -> Iterator[tuple[FieldPath, str]]:
    if isinstance(value, Mapping):
        for key, each in value.items():
            is_text = key == "podSpecPatch" or (key == "manifest" and path[-1:] == ("resource",))
            if is_text and isinstance(each, str):
                yield (*path, key), each
            elif isinstance(each, Mapping | list):
                yield from _texts(each, (*path, key))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            if isinstance(each, Mapping | list):
                yield from _texts(each, (*path, index))


def _parsed(text: str) -> list[Mapping[str, Any]]:
    """The documents of a text; none where a tag leaves open what they are."""
    try:
        return [each for each in parse_manifests(text, "") if isinstance(each, Mapping)]
    except GpuflowError:
        return []  # whoever reads it says so
