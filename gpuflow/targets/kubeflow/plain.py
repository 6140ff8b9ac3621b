"""Messages as plain data with sorted keys.

The same data as protobuf's own `MessageToDict`, in the order of the keys, and in a third of the time: protobuf keeps no
order in its maps, so everything would have to be walked a second time.

What many tasks have alike (`_ALIKE`) is converted once, and all of them hold the same map: nobody may change what
`plain` gives.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from operator import itemgetter
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

Convert = Callable[[Any], Any] | None
"""How a value is written; None: as it is."""
_LONG = (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64)


def plain(message: Any) -> dict[str, Any]:
    """The message in its JSON form."""
    fields = []
    for field, value in message.ListFields():
        name, convert = _named(field)
        fields.append((name, value if convert is None else convert(value)))
    fields.sort(key=_first)
    return dict(fields)


_first = itemgetter(0)


def _value(message: Any) -> Any:
    """google.protobuf.Value, Struct and ListValue: the data they stand for."""
    kind = message.DESCRIPTOR.name
    if kind == "Struct":
        return {key: _value(value) for key, value in sorted(message.fields.items(), key=_first)}
    if kind == "ListValue":
        return [_value(item) for item in message.values]
    which = message.WhichOneof("kind")
    if which == "null_value":
        return None
    inner = getattr(message, which)
    return _value(inner) if which in ("struct_value", "list_value") else inner


_WELL_KNOWN: dict[str, Convert] = {
    "google.protobuf.Value": _value,
    "google.protobuf.Struct": _value,
    "google.protobuf.ListValue": _value,
    "google.protobuf.Duration": lambda message: message.ToJsonString(),
}


_ALIKE = frozenset(
    (
        "ml_pipelines.ComponentInputsSpec",
        "ml_pipelines.PipelineDeploymentConfig.PipelineContainerSpec.EnvVar",
        "ml_pipelines.PipelineDeploymentConfig.PipelineContainerSpec.ResourceSpec",
        "ml_pipelines.PipelineTaskSpec.RetryPolicy",
        "ml_pipelines.TaskInputsSpec",
    )
)
"""Messages that most tasks of a pipeline have alike; a Kubernetes setting is one too, unless it is a pod's metadata."""


def _alike(message: Any) -> dict[str, Any]:
    kind: Any = type(message)
    return _once(kind, message.SerializeToString(deterministic=True))


@lru_cache(maxsize=4096)
def _once(kind: Any, content: bytes) -> dict[str, Any]:
    """The message of this content in its JSON form."""
    return plain(kind.FromString(content))


def _is_alike(kind: Any) -> bool:
    return kind.full_name in _ALIKE or (kind.full_name.startswith("kfp_kubernetes.") and kind.name != "PodMetadata")


@cache
def _named(field: Any) -> tuple[str, Convert]:
    """The name of one field, and how it is written."""
    return field.json_name, _converter(field)


def _converter(field: Any) -> Convert:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        inner = _single(kind.fields_by_name["value"]) or _as_it_is
        return lambda entries: {key: inner(value) for key, value in sorted(entries.items(), key=_first)}
    one = _single(field)
    if not field.is_repeated:
        return one
    each = one or _as_it_is
    return lambda items: [each(item) for item in items]


def _single(field: Any) -> Convert:
    if field.message_type is not None:
        return _WELL_KNOWN.get(field.message_type.full_name, _alike if _is_alike(field.message_type) else plain)
    if field.enum_type is not None:
        names = field.enum_type.values_by_number
        return lambda number: names[number].name
    return str if field.cpp_type in _LONG else None


def _as_it_is(value: Any) -> Any:
    return value
