"""Objects that the API server refuses, whatever the cluster: nothing of them ever runs. They are what a demand holds as
its refusals, so that the verdict is *never*.

`admission/objects` knows the server's rules; here its clauses get a place and a way out. Jobs that a JobSet creates are
judged as the server will judge them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from gpuflow.core.errors import Finding
from gpuflow.formats.documents import DAG, KFP, Document
from gpuflow.formats.nodes import mapping, maps, text_of
from gpuflow.kubernetes.admission.field_errors import FieldError
from gpuflow.kubernetes.admission.objects import job_faults, object_faults
from gpuflow.kubernetes.resources import BadField

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
