"""What the API server says of the fields of a document: those it does not have, and values of another type.

An unknown field changes no verdict: kubectl refuses the object, Argo CD and Helm may lose the field, and what is left
is judged. It is an error all the same: a limit that is lost is no limit.

Objects that the API server refuses, whatever the cluster: nothing of them ever runs. They are what a demand holds as
its refusals, so that the verdict is *never*.

`admission/objects` knows the server's rules; here its clauses get a place and a way out. Jobs that a JobSet creates are
judged as the server will judge them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from gpuflow.core.errors import Finding, GpuflowError
from gpuflow.formats.documents import (
    AIRFLOW_READER,
    ARGO_READER,
    DAG,
    KFP,
    KUBEFLOW_READER,
    READERS,
    Document,
    kind_of,
)
from gpuflow.formats.nodes import mapping, maps, text_of
from gpuflow.formats.schemas import (
    TYPES,
    Fault,
    FieldPath,
    Schema,
    load_shipped,
    path_text,
    schema_of,
    versions_of,
)
from gpuflow.kubernetes.admission.field_errors import FieldError
from gpuflow.kubernetes.admission.objects import job_faults, object_faults
from gpuflow.kubernetes.resources import BadField
from gpuflow.kubernetes.yaml_scalars import parse_manifests
from gpuflow.readers.argo.variables import TAG
from gpuflow.readers.kubernetes.pods import describe_value

PATCH: Final = "podSpecPatch"
_UNKNOWN: Final = "GF815"
_LOST: Final = "kubectl, Helm and Argo CD refuse the object; where nobody asks for strictness, the field is lost"
_MAYBE_LOST: Final = "Argo's full CRDs refuse the object; with its minimal ones the field is lost"
_REFUSED: Final = "Kubernetes refuses the object"
_MAYBE_REFUSED: Final = "Argo's full CRDs refuse the object, its minimal ones do not"
_TAG: Final = "gpuflow-tag"
MOST_FAULTS: Final = 1_000
"""So many faults of a document are said."""


def strict_findings(document: Document, own: Iterable[Mapping[str, Any]] = ()) -> Iterator[Finding]:
    """What is wrong with the fields of a document. `own`: the cluster's CRDs."""
    reader = READERS.get((document.kind, document.group))
    if not document.kind or document.group == KFP or reader in (AIRFLOW_READER, KUBEFLOW_READER):
        return
    version = str(document.tree["apiVersion"])
    if (schema := schema_of(version, document.kind, own)) is None:
        if reader is not None or any(each.startswith(f"{document.group}/") for each in load_shipped().kinds):
            text = f"{document.kind} {document.name}: gpuflow has no schema of {document.kind} in {version}"
            hint = "add the CustomResourceDefinition to the files of the cluster, or write a version that it serves"
            where = document.where("apiVersion")
            if other := versions_of(document.group, document.kind):
                # The cluster may refuse it, or mean something else by a field.
                text += f", only in {', '.join(other)}: whether the cluster serves it is not known"
                yield Finding("GF819", text, where, f"write apiVersion: {other[0]}, or {hint}", "warning")
            else:
                yield Finding("GF819", f"{text}, so that misspelled fields are not found", where, hint, "note")
        return
    for number, fault in enumerate(schema.faults(document.tree)):
        if number == MOST_FAULTS:
            text = f"{document.kind} {document.name}: more than {MOST_FAULTS:,} fields are wrong; the rest is not said"
            yield Finding(fault.code, text, document.where(), "is it a document of this kind?", "error")
            return
        # Of these Argo's controller makes what it can, where its minimal CRDs let them pass.
        lax = fault.code in ("GF817", "GF818") or fault.takes == TYPES["int-or-string"]
        lax = lax or fault.code == _UNKNOWN
        yield _finding(document, schema, fault, maybe=reader == ARGO_READER and lax)
    if reader == ARGO_READER:
        yield from _in_texts(document)


def _finding(
    document: Document, schema: Schema, fault: Fault, within: FieldPath = (), value: Any = None, *, maybe: bool = False
) -> Finding:
    """`within`: the text of the document in which the fault is, and the `value` there."""
    where = document.where(*(within or fault.path), key=not within and fault.code == _UNKNOWN)
    place, shown = path_text(fault.path), describe_value(value if within else _value_at(document.tree, fault.path))
    what = {
        _UNKNOWN: f"is no field of {schema.source}",
        "GF816": f"is {shown}, and takes {fault.takes}",
        "GF817": "is missing, and required",
        "GF818": f"is {shown}, and takes {fault.takes}",
    }[fault.code]
    is_unknown = fault.code == _UNKNOWN
    effect = (_MAYBE_LOST, _MAYBE_REFUSED, _LOST, _REFUSED)[2 * (not maybe) + (not is_unknown)]
    says = f'strict decoding error: unknown field "{place}"' if effect == _LOST else None
    if within:
        effect = "it has no effect" if fault.code == _UNKNOWN and within[-1] == PATCH else "the object is refused"
        place, says = f"{path_text(within)}: {place}", None
    text = f"{document.kind} {document.name}: {place} {what}: {effect}"
    hint = schema.meant(fault.path) if is_unknown else fault.hint
    return Finding(fault.code, text, where, hint, "warning" if maybe and not is_unknown else "error", says)


def _in_texts(document: Document) -> Iterator[Finding]:
    """Manifests and patches that an Argo workflow holds as text. What a tag stands for is only known in the run."""
    for path, text in _texts(document.tree, ()):
        action = mapping(_value_at(document.tree, path[:-1])).get("action")
        if path[-1] == "manifest" and action not in ("create", "apply", "replace", "patch"):
            continue
        for tree in _documents_in(TAG.sub(_TAG, text)):
            pods = schema_of("v1", "Pod") if path[-1] == PATCH else None
            if (schema := pods.at("spec") if pods else _schema_for(tree)) is None:
                continue
            for fault in schema._replace(is_patch=action in (None, "patch")).faults(tree):
                value = _value_at(tree, fault.path)
                if not any(_TAG in str(each) for each in (*fault.path, () if fault.code == _UNKNOWN else value)):
                    yield _finding(document, schema, fault, path, value)


def _schema_for(tree: Mapping[str, Any]) -> Schema | None:
    kind, _ = kind_of(tree)
    return schema_of(str(tree["apiVersion"]), kind) if kind else None


def _value_at(tree: Any, path: FieldPath) -> Any:
    for part in path:
        tree = tree[part] if isinstance(tree, list) and isinstance(part, int) else mapping(tree).get(str(part))
    return tree


def _texts(value: Any, path: FieldPath) -> Iterator[tuple[FieldPath, str]]:
    if isinstance(value, Mapping):
        for key, each in value.items():
            is_text = key == PATCH or (key == "manifest" and path[-1:] == ("resource",))
            if is_text and isinstance(each, str):
                yield (*path, key), each
            elif isinstance(each, Mapping | list):
                yield from _texts(each, (*path, key))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            if isinstance(each, Mapping | list):
                yield from _texts(each, (*path, index))


def _documents_in(text: str) -> list[Mapping[str, Any]]:
    """The documents of a text; none where a tag leaves open what they are."""
    try:
        return [each for each in parse_manifests(text, "") if isinstance(each, Mapping)]
    except GpuflowError:
        return []  # whoever reads it says so


SERVERS: Final = ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet")
HINTS: Final = {
    "schedule": 'five fields such as "0 3 * * *", or @daily; the time zone stands in spec.timeZone',
    "timeZone": "write an IANA name such as Europe/Berlin, or leave it out",
    "selector": "leave it out of a Job; of others, repeat labels of spec.template.metadata.labels in matchLabels",
    "labels": "labels of the pod template must be those that spec.selector selects",
    "name": "write lower case letters, digits and '-', and a shorter name where it is too long",
    "maxUnavailable": "let one of maxSurge and maxUnavailable be more than 0",
    "restartPolicy": "write restartPolicy: Never, or OnFailure, in the pod template",
}
"""The way out, by the last word of a field."""


def refusals_of(document: Document) -> Iterator[Finding]:
    """GF820 and GF821 of a document; what is no object of the API server is refused by others."""
    if document.group == KFP or (document.kind, document.group) == DAG:
        return
    try:
        faults: Iterable[FieldError] = object_faults(document.tree, document.kind, document.group)
        if document.kind == "Pod":  # what the pod's own validation says of labels and annotations is said there
            faults = [each for each in faults if each.field not in ("metadata.labels", "metadata.annotations")]
        yield from (clause_finding("GF820", "the API server", document, each) for each in faults)
        if document.kind == "JobSet":
            jobs = (clause_finding("GF821", "the API server", document, each) for each in _jobs_of(document))
            yield from jobs
    except BadField as fault:
        text = f"the API server cannot read {document.kind} {document.name}: {fault}"
        yield Finding("GF820", text, _place(document, fault.field), "correct the field at the place shown")


def _jobs_of(document: Document) -> Iterator[FieldError]:
    """What is wrong with the Jobs of a JobSet, with the defaults of JobSet v0.12's webhook."""
    for index, each in enumerate(maps(mapping(document.tree.get("spec")).get("replicatedJobs"))):
        where = f"spec.replicatedJobs[{index}].template.spec"
        job = mapping(mapping(each.get("template")).get("spec"))
        template = mapping(job.get("template"))
        pod = {"restartPolicy": "OnFailure", **mapping(template.get("spec"))}
        numbers = {} if job.get("completions") or job.get("parallelism") else {"completions": 1}
        defaulted = {"completionMode": "Indexed", **numbers, **job, "template": {**template, "spec": pod}}
        count = each.get("replicas")
        last = max(count - 1, 0) if isinstance(count, int) else 0
        for fault in job_faults(defaulted, f"{document.name}-{text_of(each.get('name'))}-{last}"):
            inner = fault.field.removeprefix("spec")
            yield fault if inner == fault.field else replace(fault, field=f"{where}{inner}")


def clause_finding(code: str, who: str, document: Document, fault: FieldError) -> Finding:
    """One clause of a refusal, at its place."""
    last = re.sub(r"\[.*", "", fault.field).rpartition(".")[2]
    hint = HINTS.get(last)
    if last == "restartPolicy" and document.kind in SERVERS:
        hint = f"leave it out: the pods of a {document.kind} are always restarted"
    path = re.sub(r"\[.*?\]", "", fault.field)
    explain = f"kubectl explain {document.kind.lower()}.{path} says what it takes"
    where = _place(document, fault.field)
    text = f"{who} refuses {document.kind} {document.name}: {fault.field}"
    return Finding(code, text, where, hint or explain, kubernetes=fault.sentence())


def _place(document: Document, field: str) -> Any:
    steps = re.findall(r"\[([^\]]*)\]|([^.\[\]]+)", field)
    return document.where(*(int(key) if key.isdecimal() else key or word for key, word in steps))
