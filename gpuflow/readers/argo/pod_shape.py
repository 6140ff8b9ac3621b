"""Whether a pod has the shape of one, field by field: what the API server cannot read, it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuflow.kubernetes.pod_fields import SCALARS, Field, fields_of
from gpuflow.quantity import Quantity

DEEPEST = 40


def wrong_in(pod: Mapping[str, Any]) -> str | None:
    """The first field of a pod that Kubernetes cannot read, and why; None when there is none."""
    found = _wrong(pod, Field("pod", "PodTemplateSpec"), "", 0)
    if found is not None:
        return found
    for group in ("containers", "initContainers"):
        names = [each.get("name") for each in pod["spec"].get(group) or ()]
        if not all(names):
            return f"{group}: a container has no name"
    return None


def wrong_in_claim(claim: Mapping[str, Any]) -> str | None:
    """The same, of a claim for a volume."""
    return _wrong(claim, Field("claim", "PersistentVolumeClaimTemplate"), "", 0)


def _wrong(value: Any, field: Field, at: str, depth: int) -> str | None:
    if depth > DEEPEST:
        return f"{at}: nested too deeply"
    if value is None:
        return None
    if field.holds == "list":
        if not isinstance(value, list):
            return f"{at} is not a list"
        return _first(
            _wrong(each, Field(field.name, field.type), f"{at}[{index}]", depth + 1)
            if each is not None
            else f"{at}[{index}] is empty"
            for index, each in enumerate(value)
        )
    if field.holds == "map":
        if not isinstance(value, dict):
            return f"{at} is not a map"
        return _first(
            _wrong(each, Field(field.name, field.type), f"{at}.{key}", depth + 1) for key, each in value.items()
        )
    if field.type in SCALARS:
        return _scalar(value, field.type, at)
    if not isinstance(value, dict):
        return f"{at or 'the pod'} is not a map"
    known = fields_of(field.type)
    return _first(
        _wrong(each, known[key], f"{at}.{key}" if at else key, depth + 1)
        for key, each in value.items()
        if key in known  # the API server drops what it does not know
    )


def _first(found: Any) -> str | None:
    return next((each for each in found if each is not None), None)


def _scalar(value: Any, kind: str, at: str) -> str | None:
    if kind == "quantity":
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            return f"{at} is not a quantity"
        try:
            if Quantity(str(value)) < Quantity.zero:
                return f"{at} is negative"
        except ValueError as refusal:
            return f"{at} is not a quantity: {refusal}"
        return None
    if kind == "int":
        return None if isinstance(value, int) and not isinstance(value, bool) else f"{at} is not a whole number"
    if kind == "bool":
        return None if isinstance(value, bool) else f"{at} is not true or false"
    if kind == "text":
        return None if isinstance(value, str) else f"{at} is not a text"
    if kind == "port":
        return None if isinstance(value, str | int) and not isinstance(value, bool) else f"{at} is not a port"
    return None
