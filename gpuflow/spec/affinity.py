"""The shape of Kubernetes' affinity: a misspelled key is said here, and not lost or stumbled over further on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuflow.errors import did_you_mean
from gpuflow.spec.model import problem
from gpuflow.spec.params import plain_json

Place = tuple[str | int, ...]
TEXT, NUMBER = "text", "a whole number"
_LABELS = ["In", "NotIn", "Exists", "DoesNotExist"]
_SELECTOR = {
    "matchLabels": {"*": TEXT},
    "matchExpressions": [{"key!": TEXT, "operator!": _LABELS, "values": [TEXT]}],
}
_REQUIREMENT = {"key!": TEXT, "operator!": [*_LABELS, "Gt", "Lt"], "values": [TEXT]}
_NODE_TERM = {"matchExpressions": [_REQUIREMENT], "matchFields": [_REQUIREMENT]}
_POD_TERM = {
    "topologyKey!": TEXT,
    "labelSelector": _SELECTOR,
    "namespaceSelector": _SELECTOR,
    "namespaces": [TEXT],
    "matchLabelKeys": [TEXT],
    "mismatchLabelKeys": [TEXT],
}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_PODS = {_REQUIRED: [_POD_TERM], _PREFERRED: [{"weight!": NUMBER, "podAffinityTerm!": _POD_TERM}]}
SHAPE: Mapping[str, Any] = {
    "nodeAffinity": {
        _REQUIRED: {"nodeSelectorTerms!": [_NODE_TERM]},
        _PREFERRED: [{"weight!": NUMBER, "preference!": _NODE_TERM}],
    },
    "podAffinity": _PODS,
    "podAntiAffinity": _PODS,
}
"""Keys, `!` where Kubernetes asks for them; a list of texts is a choice, of anything else a list of it."""


def affinity(value: dict[str, Any]) -> dict[str, Any]:
    """The affinity object as plain data. Raises for what Kubernetes has no place for."""
    data: dict[str, Any] = plain_json(value, ("affinity",))
    _judge(data, SHAPE, ("affinity",), "affinity")
    return data


def _judge(value: Any, shape: Any, at: Place, name: str) -> None:
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            raise _wrong(f"{name} is a mapping, as in a Kubernetes manifest", at)
        _mapping(value, shape, at, name)
    elif isinstance(shape, list) and len(shape) == 1:
        if not isinstance(value, list):
            what = "mappings" if isinstance(shape[0], dict) else "texts"
            raise _wrong(f"{name} holds a list of {what}", at)
        for index, item in enumerate(value):
            _judge(item, shape[0], (*at, index), f"an entry of {name}")
    elif isinstance(shape, list):
        if value not in shape:
            raise _wrong(f"{name} {value!r:.60} is none of {', '.join(shape)}", at)
    elif not (isinstance(value, str) if shape == TEXT else isinstance(value, int) and not isinstance(value, bool)):
        raise _wrong(f"{name} is {shape}", at)


def _mapping(value: dict[str, Any], shape: dict[str, Any], at: Place, name: str) -> None:
    if "*" in shape:
        for key, item in value.items():
            _judge(item, shape["*"], (*at, key), f"{name}.{key:.60}")
        return
    known = {key.rstrip("!"): inner for key, inner in shape.items()}
    for key, item in tuple(value.items()):
        if key not in known:
            raise problem("GF119", f"{name} has no {key!r:.60}", did_you_mean(key, known), at=(*at, key))
        if item is None:  # to Kubernetes the same as a key that is not there
            del value[key]
            continue
        _judge(item, known[key], (*at, key), key)
    missing = [key.rstrip("!") for key in shape if key.endswith("!") and key.rstrip("!") not in value]
    if missing:
        raise _wrong(f"{name} has no {missing[0]}", at)


def _wrong(message: str, at: Place) -> Exception:
    return problem("GF119", message, "write it as in a Kubernetes manifest", at=at)
