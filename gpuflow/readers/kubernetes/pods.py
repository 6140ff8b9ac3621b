"""The pods that a template makes, the claims that a controller creates for them, and the object that Kueue queues.

Metadata and spec are plain values, each field of the type that Kubernetes takes. Kueue admits an object as a whole
where it has an integration for its kind. A claim belongs to one pod, or to all pods of an object.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from gpuflow.demands.model import ClaimDemand
from gpuflow.kubernetes.labels import CLAIM_PREFIX, QUEUE_LABEL, QUEUE_PRIORITY_LABEL, QUEUED_BY, read_selector
from gpuflow.kubernetes.pod_fields import Field, fields_of
from gpuflow.readers.kubernetes.fields import Part, describe_value

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
