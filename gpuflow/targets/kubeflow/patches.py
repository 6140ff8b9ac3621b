"""What KFP's executor config can say of a patch of the pod, and what it has no place for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpuflow.kubernetes.pod_fields import Field, fields_of

Path = tuple[str, ...]
_ENV_SOURCES = ("secretKeyRef", "configMapKeyRef", "fieldRef")
_VOLUMES = {
    "emptyDir": ("medium", "sizeLimit"),
    "secret": ("secretName", "optional"),
    "configMap": ("name", "optional"),
    "persistentVolumeClaim": ("claimName",),
}
_CLAIM_TEMPLATE = (
    ("metadata", "labels"),
    ("metadata", "annotations"),
    ("spec", "accessModes"),
    ("spec", "storageClassName"),
    ("spec", "resources", "requests", "storage"),
)
"""What the executor config says of the claim of an ephemeral volume."""


def lost_changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """The fields that a patch changes and KFP cannot carry, by their paths."""
    old, new = dict(_leaves(before, "PodTemplateSpec", ())), dict(_leaves(after, "PodTemplateSpec", ()))
    changed = [path for path in {**old, **new} if old.get(path, _NONE) != new.get(path, _NONE)]
    return list(dict.fromkeys(".".join(path) for path in changed if not _is_carried(path)))


_NONE = object()


def _leaves(value: Any, type_name: str, path: Path) -> Iterator[tuple[Path, Any]]:
    """Every value of a pod with the way to it; entries of lists that have a key by that key."""
    known = fields_of(type_name)
    if not value:
        yield path, value
    for key, item in value.items():
        field = known.get(key) or Field(key, "any")
        place = (*path, key)
        if isinstance(item, dict):
            yield from _leaves(item, field.type, place)
        elif isinstance(item, list) and field.merge_key is not None:
            for each in item:
                yield from _leaves(each, field.type, (*place, str(each[field.merge_key])))
        else:
            yield place, item


def _is_carried(path: Path) -> bool:
    match path:
        case ("metadata", "labels" | "annotations", *_):
            return True
        case ("spec", "nodeSelector" | "tolerations" | "imagePullSecrets", *_):
            return True
        case ("spec", "affinity", "nodeAffinity", *_):
            return True
        case ("spec", "securityContext", "runAsUser" | "runAsGroup" | "runAsNonRoot"):
            return True
        case ("spec", "volumes", _, *rest):
            return rest == ["name"] or _is_volume(rest)
        case ("spec", "containers", "main", "volumeMounts", _, "name" | "mountPath"):
            return True
        case ("spec", "containers", "main", "env", _, *rest):
            return _is_variable(rest)
    return False


def _is_volume(rest: list[str]) -> bool:
    kind, *field = rest
    if kind == "ephemeral":
        inner = tuple(field[1:])
        return not inner or any(inner[: len(place)] == place for place in _CLAIM_TEMPLATE)
    return kind in _VOLUMES and (not field or field[0] in _VOLUMES[kind])


def _is_variable(rest: list[str]) -> bool:
    if rest in (["name"], ["value"]):
        return True
    return len(rest) == 3 and rest[1] in _ENV_SOURCES and rest[2] in ("name", "key", "optional", "fieldPath")
