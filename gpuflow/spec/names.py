"""Names that every engine accepts.

| name            | bound by                                                                            |
|-----------------|-------------------------------------------------------------------------------------|
| pipeline        | CronWorkflow objects (52 characters), label values, KFP's lower-case pipeline names |
| step            | Argo task names (no underscore), label values (63), Airflow task ids, pod names     |
| param, output   | Argo parameter names, KFP inputs, Python keyword arguments                           |
| fan-out item    | as a param                                                                          |
| site            | comments in artifacts; as a label                                                   |
| env             | a C identifier, what every shell can read                                           |
"""

from __future__ import annotations

import keyword
import re
from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema

from gpuflow.spec.model import problem

_LABEL = r"[a-z]([-a-z0-9]*[a-z0-9])?"
_IDENTIFIER = r"[A-Za-z_][A-Za-z0-9_]*"
_IS_LABEL, _IS_IDENTIFIER = re.compile(_LABEL), re.compile(_IDENTIFIER)
PIPELINE_LENGTH = 52
STEP_LENGTH = 52
"""Leaves room in 63 characters for what engines append to a step's name (fan-out index, retry number, hash)."""


def _label(value: Any, what: str, length: int) -> str:
    hint = f"use lower-case letters, digits and '-', starting with a letter, at most {length} characters"
    if not isinstance(value, str):
        raise problem("GF131", f"{value!r} is not a {what} name", hint)
    if not _IS_LABEL.fullmatch(value) or len(value) > length:
        better = re.sub(r"[^a-z0-9]+", "-", value.lower()).strip("-0123456789")[:length].strip("-")
        if better and better != value:
            hint += f'; for example "{better}"'
        raise problem("GF131", f'"{shorten(value)}" is not a {what} name that every engine accepts', hint)
    return value


def _identifier(value: Any, what: str) -> str:
    hint = "use letters, digits and '_', starting with a letter, at most 63 characters"
    if not isinstance(value, str) or not _IS_IDENTIFIER.fullmatch(value) or len(value) > 63 or keyword.iskeyword(value):
        article = "an" if what[0] in "aeiou" else "a"
        raise problem("GF132", f"{shorten(value)!r} is not {article} {what} name that every engine accepts", hint)
    return value


def shorten(value: Any, most: int = 80) -> Any:
    """A value for a message, the end of a long text left out."""
    return value[:most] + "…" if isinstance(value, str) and len(value) > most else value


def _mount_path(value: Any) -> str:
    if not isinstance(value, str) or not value.startswith("/") or ":" in value or "\0" in value:
        text = f"{shorten(value)!r} is not an absolute path in the container"
        raise problem("GF133", text, "start it with '/' and leave ':' out")
    return value


LABEL_PREFIX = "gpuflow.dev/"
_QUALIFIED_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_DATA_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")


def is_qualified_name(value: str) -> bool:
    """Kubernetes' rule for label keys and resource names: `[prefix/]name`."""
    prefix, slash, name = value.rpartition("/")
    if slash and (not _QUALIFIED_PREFIX.fullmatch(prefix) or len(prefix) > 253):
        return False
    return bool(_QUALIFIED_NAME.fullmatch(name)) and len(name) <= 63


def _label_key(value: Any) -> str:
    if not isinstance(value, str) or not is_qualified_name(value):
        text = f"{shorten(value)!r} is not a label or annotation key"
        raise problem("GF134", text, "write it like team or example.com/team")
    return value


def _own_label_key(value: Any) -> str:
    key = _label_key(value)
    if key.startswith(LABEL_PREFIX):
        text = f'the label "{key}" belongs to gpuflow'
        raise problem("GF139", text, f"labels under {LABEL_PREFIX} say what a pod is part of")
    return key


def is_label_value(value: str) -> bool:
    """Kubernetes' rule for label values."""
    return len(value) <= 63 and (not value or bool(_QUALIFIED_NAME.fullmatch(value)))


def _label_value(value: Any) -> str:
    if not isinstance(value, str) or not is_label_value(value):
        shown = shorten(getattr(value, "text", value))
        hint = "use at most 63 letters, digits, '-', '_' and '.', the ends being letters or digits; quote numbers"
        raise problem("GF135", f"{shown!r} is not a label value", hint)
    return value


_FOR_TRANSFERS = ("GPUFLOW_RUN_STORAGE_TIMEOUT", "GPUFLOW_TRANSFER_PROCESSES")
"""What the supervisor is told for one step alone: no field of a pipeline says it."""


def _env_name(value: Any) -> str:
    if not isinstance(value, str) or not _IS_IDENTIFIER.fullmatch(value):
        text = f"{shorten(value)!r} is not an environment variable name"
        raise problem("GF136", text, "use letters, digits and '_'")
    if value.startswith("GPUFLOW_") and value not in _FOR_TRANSFERS:
        hint = f"names starting with GPUFLOW_ are set by the supervisor; a step may set {' and '.join(_FOR_TRANSFERS)}"
        raise problem("GF137", f'the variable "{value}" belongs to gpuflow', hint)
    return value


def _object_name(value: Any) -> str:
    if not isinstance(value, str) or len(value) > 253 or not _QUALIFIED_PREFIX.fullmatch(value):
        text = f"{shorten(value)!r} is not the name of a Kubernetes object"
        raise problem("GF138", text, "use lower-case letters, digits, '-' and '.'")
    return value


def _data_key(value: Any) -> str:
    if not isinstance(value, str) or not _DATA_KEY.fullmatch(value) or value in (".", "..") or value.startswith(".."):
        text = f"{shorten(value)!r} is not the name of a key in a Secret"
        raise problem("GF138", text, "use at most 253 letters, digits, '-', '_' and '.'")
    return value


def _schema(pattern: str, length: int = 253) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": f"^{pattern}$", "maxLength": length})


PipelineName = Annotated[
    str, PlainValidator(lambda v: _label(v, "pipeline", PIPELINE_LENGTH)), _schema(_LABEL, PIPELINE_LENGTH)
]
SiteName = Annotated[str, PlainValidator(lambda v: _label(v, "site", 63)), _schema(_LABEL, 63)]
StepName = Annotated[str, PlainValidator(lambda v: _label(v, "step", STEP_LENGTH)), _schema(_LABEL, STEP_LENGTH)]
ContainerName = Annotated[str, PlainValidator(lambda v: _label(v, "container", 63)), _schema(_LABEL, 63)]
ParamName = Annotated[str, PlainValidator(lambda v: _identifier(v, "parameter")), _schema(_IDENTIFIER, 63)]
OutputName = Annotated[str, PlainValidator(lambda v: _identifier(v, "output")), _schema(_IDENTIFIER, 63)]
ItemName = Annotated[str, PlainValidator(lambda v: _identifier(v, "fan-out item")), _schema(_IDENTIFIER, 63)]
ClaimName = Annotated[str, PlainValidator(lambda v: _label(v, "claim", 40)), _schema(_LABEL, 40)]
MountPath = Annotated[str, PlainValidator(_mount_path), _schema("/[^:]*", 4096)]
LabelKey = Annotated[str, PlainValidator(_label_key), _schema(".+")]
PodLabelKey = Annotated[str, PlainValidator(_own_label_key), _schema(".+")]
"""A label that a document puts on pods."""
LabelValue = Annotated[str, PlainValidator(_label_value), _schema("([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?", 63)]
EnvName = Annotated[str, PlainValidator(_env_name), _schema(_IDENTIFIER)]
ObjectName = Annotated[str, PlainValidator(_object_name), _schema(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")]
DataKey = Annotated[str, PlainValidator(_data_key), _schema("[-._a-zA-Z0-9]+")]
"""A key in the data of a Secret, which is also the name of the file it is mounted as."""
