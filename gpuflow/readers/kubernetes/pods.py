"""The pods that a template makes, the claims that a controller creates for them, and the object that Kueue queues.

Metadata and spec are plain values, each field of the type that Kubernetes takes. Kueue admits an object as a whole
where it has an integration for its kind. A claim belongs to one pod, or to all pods of an object.

A place in a document with its value: every field is read through it, so that every fault says where it stands.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from gpuflow.core.errors import GpuflowError, Where, did_you_mean, fail
from gpuflow.demands.model import ClaimDemand
from gpuflow.formats.documents import Document
from gpuflow.kubernetes.labels import CLAIM_PREFIX, QUEUE_LABEL, QUEUE_PRIORITY_LABEL, QUEUED_BY, read_selector
from gpuflow.kubernetes.pod_fields import Field, fields_of
from gpuflow.kubernetes.resources import read_quantity
from gpuflow.quantity import Quantity

MAX_INT32: Final = 2**31 - 1
"""The largest number that Kubernetes takes for replicas and the like."""
Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Part:
    """A value of a document and the way to it."""

    document: Document
    path: Path
    value: Any

    @property
    def name(self) -> str:
        """The way to it as people write it: `spec.tasks[0].replicas`."""
        text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path)
        return text.lstrip(".") or self.document.kind

    @property
    def where(self) -> Where:
        return self.document.where(*self.path)

    @property
    def key_where(self) -> Where:
        return self.document.where(*self.path, key=True)

    def fault(self, text: str, hint: str | None = None) -> GpuflowError:
        """GF736: what is wrong with this value."""
        return fail("GF736", f"{_owner(self.document)}: {self.name} {text}", where=self.where, hint=hint)

    def at(self, *path: str | int) -> Part | None:
        """The part at a path below this one; None if it is absent or null. Everything on the path must be a map."""
        found = self
        for step in path:
            value = found.mapping.get(step) if isinstance(step, str) else found.value[step]
            if value is None:
                return None
            found = found.below(step, value)
        return found

    def below(self, step: str | int, value: Any) -> Part:
        """A value right below this one."""
        return Part(self.document, (*self.path, step), value)

    def need(self, *path: str | int, what: str | None = None) -> Part:
        """The same for what must be there: GF737."""
        found = self.at(*path)
        if found is None:
            missing = Part(self.document, (*self.path, *path), None)
            why = f", {what}" if what else ""
            raise fail("GF737", f"{_owner(self.document)} has no {missing.name}{why}", where=missing.where)
        return found

    @property
    def mapping(self) -> Mapping[str, Any]:
        if not isinstance(self.value, Mapping):
            raise self.fault(f"must be a map, not {describe_value(self.value)}")
        return self.value

    def items(self) -> Iterator[Part]:
        """The entries of a list of maps."""
        if not isinstance(self.value, list):
            raise self.fault(f"must be a list, not {describe_value(self.value)}")
        for index, item in enumerate(self.value):
            part = self.below(index, item)
            _ = part.mapping
            yield part

    def items_at(self, *path: str | int) -> Iterator[Part]:
        """The entries of a list of maps that may be absent."""
        found = self.at(*path)
        return iter(()) if found is None else found.items()

    def entries(self) -> Iterator[tuple[str, Part]]:
        """The entries of a map of maps that are not null."""
        for key, value in self.mapping.items():
            if value is not None:
                yield str(key), self.below(key, value)

    def count(self, key: str, default: int, least: int = 0) -> int:
        """A number of pods or of attempts."""
        found = self.at(key)
        return default if found is None else found.whole(least)

    def whole(self, least: int = 0) -> int:
        """This value as a whole number of 32 bits."""
        value = self.value
        if isinstance(value, bool) or not isinstance(value, int):
            hint = "write it without quotes" if isinstance(value, str) and value.isdigit() else None
            raise self.fault(f"must be a whole number, not {describe_value(value)}", hint)
        if not least <= value <= MAX_INT32:
            raise self.fault(f"must be between {least} and {MAX_INT32}, not {describe_value(value)}")
        return int(value)

    def text(self, key: str, default: str | None = None, choices: Collection[str] = ()) -> str | None:
        """A text, perhaps one of some words."""
        found = self.at(key)
        if found is None:
            return default
        if not isinstance(found.value, str):
            raise found.fault(f"must be text, not {describe_value(found.value)}")
        if choices and found.value not in choices:
            hint = did_you_mean(found.value, choices) or f"use {', '.join(choices)}"
            raise found.fault(f"must be one of {', '.join(choices)}, not {describe_value(found.value)}", hint)
        return found.value

    def flag(self, key: str, default: bool = False) -> bool:
        """True or false."""
        found = self.at(key)
        if found is None:
            return default
        if not isinstance(found.value, bool):
            raise found.fault(f"must be true or false, not {describe_value(found.value)}")
        return found.value

    def labels(self, key: str = "labels") -> dict[str, str]:
        """A map of texts, such as the labels of `metadata`."""
        found = self.at(key)
        return {} if found is None else {name: found.text(name) or "" for name in found.mapping}

    def labels_at(self, key: str, texts: str) -> dict[str, str]:
        """The same of a map below this one that may be absent."""
        found = self.at(key)
        return {} if found is None else found.labels(texts)

    def quantity(self) -> Quantity:
        """This value as an amount."""
        try:
            found = read_quantity(getattr(self.value, "text", self.value))
        except ValueError as refusal:
            raise self.fault(f"is {describe_value(self.value)}: {refusal}") from None
        if found < Quantity.zero:
            raise self.fault(f"is {describe_value(self.value)}; an amount cannot be negative")
        return found

    def amount_text(self) -> str:
        """This value as an amount, as it is spelled."""
        self.quantity()
        return str(getattr(self.value, "text", self.value))


def surge_of(spec: Part, count: int) -> int:
    """How many pods a rolling update starts before it stops old ones; a quarter, rounded up, when nothing is said."""
    strategy = spec.at("strategy")
    if strategy is not None and strategy.text("type", "RollingUpdate", ("RollingUpdate", "Recreate")) == "Recreate":
        return 0
    rolling = None if strategy is None else strategy.at("rollingUpdate")
    return amount_or_percentage(None if rolling is None else rolling.at("maxSurge"), count, "25%")


def amount_or_percentage(part: Part | None, count: int, default: str) -> int:
    """A number, or a percentage of `count` rounded up."""
    value: Any = default if part is None else part.value
    if isinstance(value, str) and value.endswith("%") and value[:-1].isascii() and value[:-1].isdigit():
        if len(value) <= 5:
            return -(-count * int(value[:-1]) // 100)
    elif part is not None and isinstance(value, int):
        return part.whole()
    assert part is not None
    raise part.fault("must be a whole number or a percentage", "write 1 or 25%")


def _owner(document: Document) -> str:
    return f"{document.kind} {document.name}"


def describe_value(value: object) -> str:
    """A value in a message."""
    if isinstance(value, Mapping):
        return "a map"
    if isinstance(value, list):
        return "a list"
    text = repr(str(value)) if isinstance(value, str) else str(getattr(value, "text", value))
    return text if len(text) <= 60 else f"{text[:57]}..."


INTEGRATIONS: Final = {
    ("Job", "batch"): "batch/job",
    ("CronJob", "batch"): "batch/job",
    ("Deployment", "apps"): "deployment",
    ("StatefulSet", "apps"): "statefulset",
    ("JobSet", "jobset.x-k8s.io"): "jobset.x-k8s.io/jobset",
    ("LeaderWorkerSet", "leaderworkerset.x-k8s.io"): "leaderworkerset.x-k8s.io/leaderworkerset",
    ("PyTorchJob", "kubeflow.org"): "kubeflow.org/pytorchjob",
    ("TFJob", "kubeflow.org"): "kubeflow.org/tfjob",
    ("XGBoostJob", "kubeflow.org"): "kubeflow.org/xgboostjob",
    ("PaddleJob", "kubeflow.org"): "kubeflow.org/paddlejob",
    ("JAXJob", "kubeflow.org"): "kubeflow.org/jaxjob",
    ("MPIJob", "kubeflow.org"): "kubeflow.org/mpijob",
    ("TrainJob", "trainer.kubeflow.org"): "trainer.kubeflow.org/trainjob",
    ("RayCluster", "ray.io"): "ray.io/raycluster",
    ("RayJob", "ray.io"): "ray.io/rayjob",
    ("RayService", "ray.io"): "ray.io/rayservice",
}
"""By kind and group, the names under which Kueue's configuration turns them on. Kueue v0.19.2."""
_LABELS: Final = (QUEUE_LABEL, QUEUE_PRIORITY_LABEL)


class Owner(NamedTuple):
    """The object that makes pods: its labels, and the integration for its kind."""

    labels: Mapping[str, str]
    integration: str | None

    @property
    def is_queued(self) -> bool:
        """Whether Kueue admits the object as a whole. Pods may name a queue of their own; that is another matter."""
        return self.integration is not None and bool(self.labels.get(QUEUE_LABEL))

    def with_queue(self, pod: dict[str, Any]) -> dict[str, Any]:
        """The pod in the queue of its object, which wins over one that the pod names.

        An object without queue may still get the namespace's default queue, so its pods say what would queue them.
        """
        metadata = pod["metadata"]
        if self.integration is None or (not self.is_queued and metadata.get("labels", {}).get(QUEUE_LABEL)):
            return pod
        queue = {key: self.labels[key] for key in _LABELS if self.labels.get(key)}
        own = metadata.get("labels", {})
        labels = (
            {**{key: value for key, value in own.items() if key not in _LABELS}, **queue} if self.is_queued else own
        )
        annotations = {**metadata.get("annotations", {}), QUEUED_BY: self.integration}
        return {**pod, "metadata": {**metadata, "labels": labels, "annotations": annotations}}


MOST_DEEP: Final = 100
_REQUIRED_FIELDS: Final = {
    "Container": "name",
    "Volume": "name",
    "VolumeMount": "name",
    "EnvVar": "name",
    "PodResourceClaim": "name",
}
"""What Kubernetes refuses an entry of a list without."""

Pod = dict[str, Any]


def pod_of(template: Part, owner: Owner | None = None) -> Pod:
    """The pod of a template, in the queue of the object that makes it."""
    metadata = template.at("metadata")
    found: Pod = {
        "metadata": {},
        "spec": _plain_map(template.need("spec", what="which holds the containers"), "PodSpec"),
    }
    if not found["spec"].get("containers"):
        raise template.need("spec").fault("has no containers")
    for key in ("labels", "annotations"):
        texts = {} if metadata is None else metadata.labels(key)
        if texts:
            found["metadata"][key] = texts
    return found if owner is None else owner.with_queue(found)


def _plain_map(part: Part, type_name: str) -> dict[str, Any]:
    """A map of a type as a plain value; what is null counts as absent, what Kubernetes does not know stays as it is."""
    fields = fields_of(type_name)
    found: dict[str, Any] = {}
    for key, value in part.mapping.items():
        if value is None:
            continue
        inner, field = part.below(key, value), fields.get(key)
        found[str(key)] = plain_any(inner) if field is None else _field(inner, field)
    needed = _REQUIRED_FIELDS.get(type_name)
    if needed is not None and not found.get(needed):
        raise part.fault(f"has no {needed}")
    if type_name == "LabelSelector":
        try:
            read_selector(found, part.name)
        except ValueError as refusal:
            raise part.fault(f"selects nothing that there can be: {refusal}") from None
    return found


def _field(part: Part, field: Field) -> Any:
    if field.holds == "list":
        if not isinstance(part.value, list):
            raise part.fault(f"must be a list, not {describe_value(part.value)}")
        return [_typed_value(part.below(index, item), field.type) for index, item in enumerate(part.value)]
    if field.holds == "map":
        return {
            str(key): _typed_value(part.below(key, item), field.type)
            for key, item in part.mapping.items()
            if item is not None
        }
    return _typed_value(part, field.type)


_SCALARS: Final[dict[str, tuple[tuple[type, ...], str, str | None]]] = {
    "text": ((str,), "text", "write it in quotes"),
    "int": ((int,), "a whole number", None),
    "bool": ((bool,), "true or false", None),
    "port": ((int, str), "a number or a name", None),
}
"""The Python types of a value, what it must be, and the way out."""


def _typed_value(part: Part, type_name: str) -> Any:
    if type_name in _SCALARS:
        types, what, hint = _SCALARS[type_name]
        if not isinstance(part.value, types) or (isinstance(part.value, bool) and bool not in types):
            raise part.fault(f"must be {what}, not {describe_value(part.value)}", hint)
    elif type_name == "quantity":
        spelled = part.amount_text()
        return int(part.value) if isinstance(part.value, int) else spelled
    elif type_name != "any":
        return _plain_map(part, type_name)
    return plain_any(part)


def plain_any(part: Part, deep: int = 0) -> Any:
    """A value of which nothing is known, without the places that it remembers."""
    value = part.value
    if deep > MOST_DEEP:
        raise part.fault("is nested too deeply")
    if isinstance(value, Mapping):
        return {str(key): plain_any(part.below(key, item), deep + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [plain_any(part.below(index, item), deep + 1) for index, item in enumerate(value)]
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return int(value)
    return float(value) if isinstance(value, float) else str(value)


def with_own_claims(pod: Pod, templates: Part | None, owner: str) -> Pod:
    """The pod with a claim of its own for each template, as a StatefulSet makes them.

    They are written as ephemeral volumes, which are claims of one pod too: so they count once for each pod. What the
    names begin with says which claims stay when a pod goes.
    """
    if templates is None:
        return pod
    made = [
        {
            "name": name,
            "ephemeral": {
                "volumeClaimTemplate": {
                    "metadata": {"annotations": {CLAIM_PREFIX: f"{name}-{owner}-"}},
                    "spec": spec,
                }
            },
        }
        for name, spec, _ in map(_read, templates.items())
    ]
    return _with_volumes(pod, made)


def shared_claims(policies: Part | None, owner: str) -> list[ClaimDemand]:
    """The claims that a JobSet makes once for all of its pods."""
    found = []
    for policy in policies.items() if policies is not None else ():
        for template in policy.items_at("templates"):
            name, spec, where = _read(template)
            manifest = {"metadata": {"name": f"{name}-{owner}"}, "spec": spec}
            found.append(ClaimDemand(f"{name}-{owner}", manifest, name, where, where, where))
    return found


def with_shared_claims(pod: Pod, claims: list[ClaimDemand]) -> Pod:
    """The pod with the claims that its containers mount."""
    mounted = {
        mount.get("name")
        for group in ("initContainers", "containers")
        for container in pod["spec"].get(group, ())
        for mount in container.get("volumeMounts", ())
    }
    made = [
        {"name": claim.volume, "persistentVolumeClaim": {"claimName": claim.name}}
        for claim in claims
        if claim.volume in mounted
    ]
    return _with_volumes(pod, made)


def _with_volumes(pod: Pod, made: list[dict[str, Any]]) -> Pod:
    """A volume that a controller makes takes the place of one with its name."""
    if not made:
        return pod
    names = {volume["name"] for volume in made}
    kept = [volume for volume in pod["spec"].get("volumes", ()) if volume.get("name") not in names]
    return {**pod, "spec": {**pod["spec"], "volumes": [*kept, *made]}}


def _read(template: Part) -> tuple[str, dict[str, Any], Any]:
    metadata = template.need("metadata")
    name = metadata.text("name")
    if not name:
        raise metadata.fault("has no name")
    spec = template.need("spec")
    storage = spec.need("resources", "requests", "storage").amount_text()
    found: dict[str, Any] = {"resources": {"requests": {"storage": storage}}}
    modes = spec.at("accessModes")
    if modes is not None:
        if not isinstance(modes.value, list) or not all(isinstance(mode, str) for mode in modes.value):
            raise modes.fault("must be a list of texts")
        found["accessModes"] = [str(mode) for mode in modes.value]
    if (selector := spec.at("selector")) is not None:
        found["selector"] = plain_any(selector)
    for key in ("storageClassName", "volumeMode", "volumeName"):
        if (text := spec.text(key)) is not None:
            found[key] = text
    return name, found, template.where
