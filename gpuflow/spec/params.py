"""Parameters of a pipeline and outputs of a step: names with types."""

from __future__ import annotations

import json
import math
from typing import Any, Literal

from pydantic import PrivateAttr, model_validator

from gpuflow.spec.model import Bool, Model, Number, QuantityField, Str, check_receivable, problem
from gpuflow.spec.names import MountPath
from gpuflow.spec.text import TextField

ParamType = Literal["string", "int", "float", "bool", "json"]
OutputType = Literal["string", "int", "float", "bool", "json", "file", "directory"]
ArtifactKind = Literal["artifact", "dataset", "model", "metrics", "classification-metrics", "html", "markdown"]
SHOWN_FILES = ("metrics", "classification-metrics", "html", "markdown")
"""Kinds that Kubeflow reads, to show what is in the file."""
PYTHON_TYPES: dict[Any, str] = {str: "string", int: "int", float: "float", bool: "bool", list: "json", dict: "json"}
"""What Python users may write for a type."""


def type_name(value: Any) -> Any:
    """`int` or `"int"`: both name the type."""
    return PYTHON_TYPES.get(value, value) if isinstance(value, type) else value


def plain_json(value: Any, at: tuple[str | int, ...] = ()) -> Any:
    """A value from a document as plain JSON data, without the reader's own number and mapping classes."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, str):
        return check_receivable(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise problem("GF143", f"{value} cannot be written as JSON", "use a finite number", at=at)
        return float(value)
    if isinstance(value, list | tuple):
        return [plain_json(item, (*at, index)) for index, item in enumerate(value)]
    if isinstance(value, dict):
        return {check_receivable(str(key)): plain_json(item, (*at, str(key))) for key, item in value.items()}
    raise problem("GF143", f"{value!r} cannot be written as JSON", "use text, numbers, lists and maps", at=at)


DEFAULT_PATH = ("default",)


def check_type(value: Any, kind: str, what: str, at: tuple[str | int, ...] = ()) -> Any:
    """`value` as the declared type, or an error that shows both; `at` is where the value stands."""
    data = plain_json(value, at)
    good = {
        "string": isinstance(data, str),
        "int": isinstance(data, int) and not isinstance(data, bool),
        "float": isinstance(data, int | float) and not isinstance(data, bool),
        "bool": isinstance(data, bool),
        "json": True,
    }.get(kind, isinstance(data, str))
    if not good:
        quoted = f'quote it: "{getattr(value, "text", data)}"'
        hint = quoted if kind == "string" else f"give {a(kind)}, or change the type"
        raise problem("GF144", f"{what} {json.dumps(data, ensure_ascii=False)} is not {a(kind)}", hint, at=at)
    return float(data) if kind == "float" else data


def a(kind: str) -> str:
    """`an int`, `a string`."""
    return ("an " if kind[0] in "aeiou" else "a ") + kind


def text_of(value: Any) -> str:
    """A parameter's value as a container receives it: text as it is, everything else as compact JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class Param(Model, form={"type": ["string", "number", "boolean", "array"]}):
    """A typed value, set when a run starts. Without a default it is required."""

    type: ParamType = "string"
    """string, int, float, bool or json."""
    default: Any = None
    """The default value. A parameter without one is required."""
    required: Bool = False
    """Automatic when there is no default."""
    _is_given: bool = PrivateAttr(False)
    enum: tuple[Any, ...] | None = None
    """The only values allowed."""
    min: Number | None = None
    """Smallest value of an int or float."""
    max: Number | None = None
    """Largest value of an int or float."""
    description: Str | None = None
    """Shown in trigger forms."""

    @classmethod
    def shorthand(cls, value: Any) -> Any:
        if isinstance(value, Param):
            return value
        if not isinstance(value, dict):
            if value is None:
                raise problem("GF144", "a parameter needs a type or a default", "write name: {type: string}")
            plain = plain_json(value)
            kind = next((name for kind, name in PYTHON_TYPES.items() if type(plain) is kind), "json")
            return {"type": kind, "default": plain, "required": False}
        kind = type_name(value.get("type"))
        typed = {**value, "type": kind} if "type" in value else value
        required = value.get("default") is None and not ("default" in value and kind == "json")
        return {"required": required, **typed}

    @model_validator(mode="after")
    def _check_consistency(self) -> Param:
        if self.required and self.default is not None:
            text = "a required parameter cannot have a default"
            raise problem("GF145", text, "remove one of the two", at=("default",))
        if (self.min is not None or self.max is not None) and self.type not in ("int", "float"):
            raise problem("GF145", f"min and max need a number type, not {self.type}", "set type: int or type: float")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise problem("GF145", f"min {self.min:g} is above max {self.max:g}", None, at=("min",))
        bounds = {name: bound for name in ("min", "max") if (bound := getattr(self, name)) is not None}
        changes: dict[str, Any] = {name: int(bound) if bound == int(bound) else bound for name, bound in bounds.items()}
        if self.enum is not None:
            values = enumerate(self.enum)
            changes["enum"] = tuple(check_type(each, self.type, "the enum value", ("enum", i)) for i, each in values)
        if self.default is not None:
            changes["default"] = check_type(self.default, self.type, "the default", DEFAULT_PATH)
        object.__setattr__(self, "__dict__", {**self.__dict__, **changes})
        if not self.required:
            self.accept(self.default, "the default", DEFAULT_PATH)
        return self

    @property
    def is_given(self) -> bool:
        """Whether what it has as its default was given for one run."""
        return self._is_given

    def with_value(self, value: Any) -> Param:
        """The parameter with a value for one run, as a default that nobody wrote."""
        changed = self.model_copy(update={"default": self.accept(value), "required": False})
        changed._is_given = True
        return changed

    def accept(self, value: Any, what: str = "the value", at: tuple[str, ...] = ()) -> Any:
        """`value` checked against type, enum and range."""
        if value is None and self.type == "json":
            return None
        value = check_type(value, self.type, what, at)
        shown = json.dumps(value, ensure_ascii=False)
        if self.enum is not None and value not in self.enum:
            allowed = json.dumps(list(self.enum), ensure_ascii=False)
            raise problem("GF146", f"{what} {shown} is not one of {allowed}", None, at=at)
        if self.min is not None and value < self.min:
            raise problem("GF146", f"{what} {shown} is below the minimum {self.min:g}", None, at=at)
        if self.max is not None and value > self.max:
            raise problem("GF146", f"{what} {shown} is above the maximum {self.max:g}", None, at=at)
        return value


class Output(Model, form={"enum": ["string", "int", "float", "bool", "json"]}):
    """A result of a step: a small typed value, or a file or directory kept at a URI."""

    type: OutputType = "string"
    """string, int, float, bool, json for a value; file or directory for an artifact."""
    path: MountPath | None = None
    """Where the container writes it; default: `$GPUFLOW_OUTPUTS/<name>`."""
    uri: TextField = None
    """Where an artifact is kept, like `{join: [s3://models/, {run: id}]}`; default: below `runtime.artifacts` of the
    site. A reference to the output gives the place below it that belongs to the attempt that succeeded."""
    kind: ArtifactKind | None = None
    """What an artifact is to Kubeflow: dataset, model, metrics, classification-metrics, html, markdown or artifact."""
    size: QuantityField | None = None
    """How much room an artifact takes on a node's disk, where it is written and where it is read."""
    default: Any = None
    """The value that other steps read when this step was skipped; required for an output that may be missing."""

    @classmethod
    def shorthand(cls, value: Any) -> Any:
        value = type_name(value)
        if isinstance(value, str):
            return {"type": value}
        if isinstance(value, dict) and "type" in value:
            return {**value, "type": type_name(value["type"])}
        return value

    @model_validator(mode="after")
    def _check_consistency(self) -> Output:
        if self.is_artifact and self.default is not None:
            raise problem("GF147", f"a {self.type} has no default", "give the default to a value, not to an artifact")
        for name in ("uri", "kind", "size"):
            if getattr(self, name) is not None and not self.is_artifact:
                hint = "use type: file or type: directory"
                raise problem("GF147", f"{a(self.type)} is passed by value and takes no {name}", hint, at=(name,))
        if self.kind in SHOWN_FILES and self.type == "directory":
            hint = "use type: file, or kind: artifact for a directory"
            text = f"Kubeflow shows {self.kind} from one file, not from a directory"
            raise problem("GF147", text, hint, at=("kind",))
        if self.default is not None:
            value = check_type(self.default, self.type, "the default", DEFAULT_PATH)
            object.__setattr__(self, "__dict__", {**self.__dict__, "default": value})
        return self

    @property
    def is_artifact(self) -> bool:
        return self.type in ("file", "directory")


class RunClaim(Model):
    """A volume claim that is created for every run and deleted with it."""

    size: QuantityField
    """How much storage, for example 100Gi."""
    storage_class: Str | None = None
    """The StorageClass; default: the cluster's default class."""
    access: Literal["ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany", "ReadWriteOncePod"] = "ReadWriteOnce"
    """How pods may share it."""

    @model_validator(mode="after")
    def _has_room(self) -> RunClaim:
        if not self.size:
            raise problem("GF127", "a claim of 0 is refused by Kubernetes", "for example size: 10Gi", at=("size",))
        return self
