"""PriorityClass and RuntimeClass: what a name in the pod stands for; the StorageClass that a claim without one gets.

Mirrors k8s.io/kubernetes/plugin/pkg/admission/priority.Plugin.Admit and
plugin/pkg/admission/runtimeclass.RuntimeClass.Admit, Kubernetes v1.36.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from gpuflow.kubernetes.admission.field_errors import quote_as_go
from gpuflow.kubernetes.admission.pod import Body, Pod, read_integer, read_object, read_stored_list, read_text
from gpuflow.kubernetes.resources import ResourceList, read_map, read_maps

DEFAULT_MARKS: Final = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)


class AdmissionRefusal(Exception):
    """An admission plug-in refused. The text is its reason; `pod` is how far it had come with the pod."""

    def __init__(self, reason: str, pod: Pod) -> None:
        super().__init__(reason)
        self.pod = pod


class PriorityClass(NamedTuple):
    name: str
    value: int
    preemption_policy: str
    is_default: bool


SYSTEM_CLASSES = (
    PriorityClass("system-cluster-critical", 2_000_000_000, "PreemptLowerPriority", False),
    PriorityClass("system-node-critical", 2_000_001_000, "PreemptLowerPriority", False),
)
NO_CLASS = PriorityClass("", 0, "PreemptLowerPriority", True)


class RuntimeClass(NamedTuple):
    name: str
    has_overhead: bool
    overhead: ResourceList
    node_selector: Mapping[str, str]
    tolerations: tuple[Body, ...]


def read_priority_class(manifest: Body | PriorityClass) -> PriorityClass:
    if isinstance(manifest, PriorityClass):
        return manifest
    name = _name(manifest, "PriorityClass")
    where = f"PriorityClass {name}"
    return PriorityClass(
        name,
        read_integer(manifest, "value", where) or 0,
        read_text(manifest, "preemptionPolicy", where) or "PreemptLowerPriority",
        manifest.get("globalDefault") is True,
    )


def with_priority(pod: Pod, classes: Sequence[Body | PriorityClass]) -> Pod:
    """The pod with the number its priority class stands for, or the default class's when it names none."""
    if pod.priority_class:
        named = _find((*classes, *SYSTEM_CLASSES), pod.priority_class, "PriorityClass")
        if named is None:
            raise AdmissionRefusal(f"no PriorityClass with name {pod.priority_class} was found", pod)
        found = read_priority_class(named)
    else:
        defaults = [each for each in map(read_priority_class, classes) if each.is_default]
        found = min(defaults, key=lambda each: each.value) if defaults else NO_CLASS
    computed = "priority admission controller computed"
    given = pod.priority
    pod = pod._replace(priority_class=found.name)
    if given not in (None, found.value):
        text = f"the integer value of priority ({given}) must not be provided in pod spec; "
        text += f"{computed} {found.value} from the given PriorityClass name"
        raise AdmissionRefusal(text, pod)
    policy = pod.preemption_policy
    pod = pod._replace(priority=found.value, preemption_policy=found.preemption_policy)
    if policy not in (None, found.preemption_policy):
        text = f"the string value of PreemptionPolicy ({policy}) must not be provided in pod spec; "
        text += f"{computed} {found.preemption_policy} from the given PriorityClass name"
        raise AdmissionRefusal(text, pod._replace(preemption_policy=policy))
    return pod


def read_runtime_class(manifest: Body | RuntimeClass) -> RuntimeClass:
    if isinstance(manifest, RuntimeClass):
        return manifest
    name = _name(manifest, "RuntimeClass")
    where = f"RuntimeClass {name}"
    overhead = read_map(manifest.get("overhead"), f"{where}: overhead").get("podFixed")
    scheduling = read_map(manifest.get("scheduling"), f"{where}: scheduling")
    return RuntimeClass(
        name,
        manifest.get("overhead") is not None,
        read_stored_list(overhead, f"{where}: overhead.podFixed"),
        read_map(scheduling.get("nodeSelector"), f"{where}: scheduling.nodeSelector"),
        tuple(read_maps(scheduling.get("tolerations"), f"{where}: scheduling.tolerations")),
    )


def with_runtime(pod: Pod, classes: Sequence[Body | RuntimeClass]) -> Pod:
    """The pod with the overhead, node selector and tolerations of its runtime class."""
    if pod.runtime_class is None:
        return pod
    named = _find(classes, pod.runtime_class, "RuntimeClass")
    if named is None:
        raise AdmissionRefusal(f"pod rejected: RuntimeClass {quote_as_go(pod.runtime_class)} not found", pod)
    found = read_runtime_class(named)
    if found.has_overhead:
        if pod.overhead and pod.overhead != found.overhead:
            raise AdmissionRefusal("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead", pod)
        pod = pod._replace(overhead=found.overhead or None)
    if found.node_selector:
        pod = pod._replace(node_selector=_merged_selector(pod, found))
    if found.tolerations:
        pod = pod._replace(tolerations=_merged_tolerations(pod, found))
    return pod


def check_overhead(pod: Pod, classes: Sequence[Body | RuntimeClass]) -> None:
    """A pod may not bring an overhead of its own."""
    if pod.overhead is None:
        return
    named = None if pod.runtime_class is None else _find(classes, pod.runtime_class, "RuntimeClass")
    if named is None or not read_runtime_class(named).has_overhead:
        raise AdmissionRefusal(
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead", pod
        )


def _merged_selector(pod: Pod, found: RuntimeClass) -> dict[str, str]:
    selector = dict(read_map(pod.spec.get("nodeSelector"), "spec.nodeSelector"))
    for key, value in sorted(found.node_selector.items()):
        if selector.setdefault(key, value) != value:
            text = f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
            text += f"pod.spec.nodeSelector[{key}] = {selector[key]}"
            raise AdmissionRefusal(text, pod)
    return selector


def _merged_tolerations(pod: Pod, found: RuntimeClass) -> tuple[Body, ...]:
    """The pod's and the class's tolerations, without those that another one of them covers."""
    every = [*read_maps(pod.spec.get("tolerations"), "spec.tolerations"), *found.tolerations]
    kept: list[Body] = []
    for index, each in enumerate(every):
        later = (other for other in every[index + 1 :] if other != each)
        if not any(_covers(other, each) for other in (*kept, *later)):
            kept.append(each)
    return tuple(kept)


def _covers(wide: Body, narrow: Body) -> bool:
    """Whether `wide` tolerates every taint that `narrow` does."""
    if wide == narrow:
        return True
    exists = wide.get("operator") == "Exists"
    if (wide.get("key") or "") != (narrow.get("key") or "") and (wide.get("key") or not exists):
        return False
    if wide.get("effect") and wide.get("effect") != narrow.get("effect"):
        return False
    allowed = wide.get("tolerationSeconds")
    if wide.get("effect") == "NoExecute" and allowed is not None:
        wanted = narrow.get("tolerationSeconds")
        if wanted is None or wanted > allowed:
            return False
    same_value = (wide.get("value") or "") == (narrow.get("value") or "")
    return exists or (narrow.get("operator") == "Equal" and same_value)


Class = TypeVar("Class", PriorityClass, RuntimeClass)


def _find(classes: Iterable[Body | Class], name: str, kind: str) -> Body | Class | None:
    for each in classes:
        if (each.name if isinstance(each, PriorityClass | RuntimeClass) else _name(each, kind)) == name:
            return each
    return None


def _name(manifest: Body, kind: str) -> str:
    metadata = read_map(read_object(manifest, kind).get("metadata"), f"{kind} metadata")
    return read_text(metadata, "name", f"{kind} metadata") or ""


def default_class(classes: Iterable[Mapping[str, Any]]) -> str | None:
    """The storage class that a claim without one gets: the newest that is marked, and of equals the first by name."""
    marked = [body for body in classes if is_default(body)]
    newest = max((_created_at(body) for body in marked), default="")
    return min((name_of(body) for body in marked if _created_at(body) == newest), default=None)


def is_default(body: Mapping[str, Any]) -> bool:
    annotations = read_map(read_map(body.get("metadata"), "metadata").get("annotations"), "metadata.annotations")
    return any(annotations.get(mark) == "true" for mark in DEFAULT_MARKS)


def name_of(body: Mapping[str, Any]) -> str:
    return str(read_map(body.get("metadata"), "metadata").get("name") or "")


def _created_at(body: Mapping[str, Any]) -> str:
    return str(read_map(body.get("metadata"), "metadata").get("creationTimestamp") or "")
