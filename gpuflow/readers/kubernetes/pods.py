"""The pod that a template makes: metadata and spec as plain values, each field of the type that Kubernetes takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gpuflow.kubernetes.labels import read_selector
from gpuflow.kubernetes.pod_fields import Field, fields_of
from gpuflow.readers.kubernetes.owner import Owner
from gpuflow.readers.kubernetes.parts import Part, shown

MOST_DEEP: Final = 100
_NEEDED: Final = {
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
    found: Pod = {"metadata": {}, "spec": _plain(template.need("spec", what="which holds the containers"), "PodSpec")}
    if not found["spec"].get("containers"):
        raise template.need("spec").fault("has no containers")
    for key in ("labels", "annotations"):
        texts = {} if metadata is None else metadata.labels(key)
        if texts:
            found["metadata"][key] = texts
    return found if owner is None else owner.with_queue(found)


def _plain(part: Part, type_name: str) -> dict[str, Any]:
    """A map of a type as a plain value; what is null counts as absent, what Kubernetes does not know stays as it is."""
    fields = fields_of(type_name)
    found: dict[str, Any] = {}
    for key, value in part.mapping.items():
        if value is None:
            continue
        inner = Part(part.document, (*part.path, key), value)
        field = fields.get(key)
        found[str(key)] = _bare(inner) if field is None else _field(inner, field)
    needed = _NEEDED.get(type_name)
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
            raise part.fault(f"must be a list, not {shown(part.value)}")
        return [
            _one(Part(part.document, (*part.path, index), item), field.type) for index, item in enumerate(part.value)
        ]
    if field.holds == "map":
        return {
            str(key): _one(Part(part.document, (*part.path, key), item), field.type)
            for key, item in part.mapping.items()
            if item is not None
        }
    return _one(part, field.type)


def _one(part: Part, type_name: str) -> Any:
    value = part.value
    match type_name:
        case "text":
            if not isinstance(value, str):
                raise part.fault(f"must be text, not {shown(value)}", "write it in quotes")
            return str(value)
        case "int":
            if isinstance(value, bool) or not isinstance(value, int):
                raise part.fault(f"must be a whole number, not {shown(value)}")
            return int(value)
        case "bool":
            if not isinstance(value, bool):
                raise part.fault(f"must be true or false, not {shown(value)}")
            return value
        case "quantity":
            part.quantity()
            spelled = getattr(value, "text", value)
            return int(value) if isinstance(value, int) and not isinstance(value, bool) else str(spelled)
        case "port":
            if isinstance(value, bool) or not isinstance(value, int | str):
                raise part.fault(f"must be a number or a name, not {shown(value)}")
            return int(value) if isinstance(value, int) else str(value)
        case "any":
            return _bare(part)
        case _:
            return _plain(part, type_name)


def _bare(part: Part, deep: int = 0) -> Any:
    """A value of which nothing is known, without the places that it remembers."""
    value = part.value
    if deep > MOST_DEEP:
        raise part.fault("is nested too deeply")
    if isinstance(value, Mapping):
        return {str(key): _bare(Part(part.document, (*part.path, key), item), deep + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_bare(Part(part.document, (*part.path, index), item), deep + 1) for index, item in enumerate(value)]
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return int(value)
    return float(value) if isinstance(value, float) else str(value)
