"""The answer to "why does it not start": a state, what keeps it, and what would let it start.

The objects that can be asked about: where they are found, in a dump of the cluster or live, and their fields.

Anybody may have edited a dump: a field of another shape counts as absent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from gpuflow.cluster.api_server import Reader
from gpuflow.cluster.kinds import Source
from gpuflow.cluster.model import Cluster, Manifest
from gpuflow.core.errors import Where, did_you_mean, fail
from gpuflow.formats.nodes import maps

State = Literal["runs", "ended", "starts", "waits", "never", "unknown"]
"""`starts`: nothing keeps it, whoever decides is about to. `never`: it does not start as it is, whatever ends."""
Blocker = Literal["quota", "queue", "nodes", "gate", "containers", "engine", "snapshot"]
"""Who keeps it: what decides, not who owns it."""
ORDER: tuple[State, ...] = ("never", "unknown", "waits", "starts", "runs", "ended")
"""Of several causes the first of these decides."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing that keeps it from starting, with what would change that."""

    by: Blocker
    message: str
    state: State = "waits"
    starts_when: tuple[str, ...] = ()
    kubernetes: str | None = None
    """The words of the API server, the scheduler, Kueue or the engine."""

    def document(self) -> dict[str, Any]:
        return {**asdict(self), "starts_when": list(self.starts_when)}


@dataclass(frozen=True)
class Answer:
    """Of one object, and of the objects that it waits for."""

    subject: str
    """As it is asked for: `pod/NAME`."""
    namespace: str
    state: State
    summary: str
    causes: tuple[Cause, ...] = ()
    parts: tuple[Answer, ...] = ()
    """Of a workflow or a job: its pods."""

    def document(self) -> dict[str, Any]:
        return {
            "object": self.subject,
            "namespace": self.namespace,
            "state": self.state,
            "summary": self.summary,
            "causes": [cause.document() for cause in self.causes],
            "parts": [part.document() for part in self.parts],
        }


def answer_of(subject: str, namespace: str, causes: Iterable[Cause]) -> Answer:
    """The answer that causes come to: the gravest decides."""
    found = tuple(causes)
    state = worst_state(cause.state for cause in found)
    first = next(cause for cause in found if cause.state == state)
    return Answer(subject, namespace, state, first.message, found)


def worst_state(states: Iterable[State]) -> State:
    """The state that decides among several."""
    return min(states, key=ORDER.index)


def part(body: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    """The map below these keys; empty where there is none."""
    for key in keys:
        found = body.get(key)
        body = found if isinstance(found, Mapping) else {}
    return body


def as_text(value: object) -> str | None:
    """A text that says something."""
    return str(value) if isinstance(value, str) and value.strip() else None


def conditions(body: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The conditions of an object's status by their types."""
    return {each["type"]: each for each in maps(part(body, "status").get("conditions")) if as_text(each.get("type"))}


COMMAND = Where("gpuflow why")
POD = Source("Pod", "", ("v1",), "pods", namespaced=True)
WORKLOAD = Source("Workload", "kueue.x-k8s.io", ("v1beta2", "v1beta1"), "workloads", namespaced=True)
WORKFLOW = Source("Workflow", "argoproj.io", ("v1alpha1",), "workflows", namespaced=True)
JOB = Source("Job", "batch", ("v1",), "jobs", namespaced=True)
KINDS = {"po": POD, "wl": WORKLOAD, "wf": WORKFLOW, "job": JOB}
"""The kinds that can be asked about, by kubectl's short names."""


def read_subject(word: str) -> tuple[Source, str]:
    """`pod/NAME` as a kind and a name; the words that kubectl takes for a kind are taken too."""
    kind, slash, name = word.partition("/")
    known = KINDS | {each: one for one in KINDS.values() for each in (one.kind.lower(), one.plural)}
    found = known.get(kind.lower().partition(".")[0])
    if not slash or not name or found is None:
        names = [one.kind.lower() for one in KINDS.values()]
        usage = f"write KIND/NAME; KIND is one of {', '.join(names)}"
        hint = (did_you_mean(kind, names) if found is None and slash else None) or usage
        raise fail("GF903", f'"{word}" is not an object that can be asked about', where=COMMAND, hint=hint)
    return found, name


def find_in(cluster: Cluster, kind: Source, name: str, namespace: str) -> Mapping[str, Any] | None:
    """The object in a dump of the cluster."""
    for item in cluster.objects:
        if (item.kind, item.group, item.name) == (kind.kind, kind.group, name) and item.in_namespace(namespace):
            return item.body
    return None


def not_found(cluster: Cluster, kind: Source, name: str, namespace: str) -> Exception:
    """The refusal that says so, with the names that are alike."""
    alike = [each for each in cluster.objects if (each.kind, each.group) == (kind.kind, kind.group)]
    names = [each.name for each in alike if each.in_namespace(namespace)]
    text = f"{cluster.source} shows no {kind.kind} {name} in namespace {namespace}"
    hint = did_you_mean(name, names) or "name another namespace, or ask the live cluster: --cluster live"
    return fail("GF795", text, where=Where(cluster.source), hint=hint)


def with_live(cluster: Cluster, reader: Reader, kind: Source, name: str, namespace: str) -> Cluster:
    """The cluster with the object as the API server has it now, and with the pods of a run or a job. What a check reads
    of a cluster leaves out most of a pod's status; here it is the answer."""
    items = []
    for version in kind.versions:
        answer = reader.get(f"{kind.path(version, namespace)}/{name}", {})
        if answer.status == 200:
            items.append(answer.body)
            break
        if answer.status not in (404,):
            text = f"{kind.kind} {name} cannot be read: {answer.reason}"
            raise fail("GF795", text, where=Where(cluster.source), hint="gpuflow why needs the permission to get it")
    if selector := SELECTORS.get(kind.kind):
        answer = reader.get(POD.path("v1", namespace), {"labelSelector": f"{selector}={name}"})
        items += answer.body.get("items") or [] if answer.status == 200 else []
    if kind is not WORKLOAD:
        items += _workloads(reader, namespace)
    return with_objects(cluster, items)


def _workloads(reader: Reader, namespace: str) -> list[Mapping[str, Any]]:
    """The workloads of the namespace with their owners, by which the pods that Kueue holds are found."""
    for version in WORKLOAD.versions:
        answer = reader.get(WORKLOAD.path(version, namespace), {})
        if answer.status == 200:
            head = {"apiVersion": f"{WORKLOAD.group}/{version}", "kind": WORKLOAD.kind}
            return [{**head, **item} for item in answer.body.get("items") or ()]
    return []


SELECTORS = {"Workflow": "workflows.argoproj.io/workflow", "Job": "batch.kubernetes.io/job-name"}
"""By which label the pods of a run or a job are found."""


def with_objects(cluster: Cluster, bodies: list[Mapping[str, Any]]) -> Cluster:
    """The cluster with these objects in place of its own of the same name."""
    new = [_manifest(body) for body in bodies]
    names = {(item.kind, item.namespace, item.name) for item in new}
    old = [item for item in cluster.objects if (item.kind, item.namespace, item.name) not in names]
    return replace(cluster, objects=(*old, *new))


def _manifest(body: Mapping[str, Any]) -> Manifest:
    metadata = body.get("metadata") or {}
    kind, version = str(body.get("kind") or "Pod"), str(body.get("apiVersion") or "v1")
    whole = {"apiVersion": version, "kind": kind, **body}
    name, namespace = metadata.get("name", ""), metadata.get("namespace")
    return Manifest(kind, version.rpartition("/")[0], name, namespace, whole, Where("live"))


def pods_of(cluster: Cluster, kind: Source, name: str, namespace: str) -> list[Manifest]:
    """The pods of a run or a job."""
    label = SELECTORS[kind.kind]
    return [item for item in cluster.of("Pod", namespace) if part(item.body, "metadata", "labels").get(label) == name]
