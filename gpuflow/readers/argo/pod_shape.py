"""Whether a pod has the shape of one, field by field: what the API server cannot read, it refuses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gpuflow.kubernetes.pod_fields import SCALARS, Field, fields_of
from gpuflow.quantity import Quantity

DEEPEST = 40
Path = tuple[str, ...]


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


def without_open(patch: Mapping[str, Any], is_open: Callable[[str], bool]) -> tuple[dict[str, Any], list[Path]]:
    """A patch of a pod's spec without the parts whose shape only the run knows, and the fields that were left out.

    Such a part is a text in place of a map, a list, a number or a bool, a field whose name is not known, and a
    container whose name is not. Texts and amounts stay: they have their shape.
    """
    left_out: list[Path] = []

    def opens(value: Any, field: Field) -> bool:
        has_shape = field.holds == "one" and field.type in ("text", "port", "any")
        return isinstance(value, str) and not has_shape and is_open(value)

    def kept(value: Any, field: Field, at: Path) -> Any:
        if field.holds == "list" and isinstance(value, list):
            element = Field(field.name, field.type)
            left = [each for each in value if not opens(each, element) and not is_other(each, field)]
            left_out.extend([at] if len(left) < len(value) else [])
            return [kept(each, element, at) for each in left]
        if not isinstance(value, dict):
            return value
        found, known = {}, fields_of(field.type) if field.holds == "one" else {}
        for key, each in value.items():
            of = known.get(key)
            if is_open(key) or (of is not None and opens(each, of)):
                left_out.append(at if is_open(key) else (*at, key))
            else:
                found[key] = each if of is None else kept(each, of, (*at, key))
        return found

    def is_other(value: Any, field: Field) -> bool:
        name = value.get("name") if isinstance(value, dict) and field.type == "Container" else None
        return isinstance(name, str) and is_open(name)

    return kept(patch, Field("spec", "PodSpec"), ()), left_out


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
