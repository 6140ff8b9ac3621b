"""Pipelines written in Python: an open pipeline collects steps in a draft and is checked when its `with` block ends.

Values from Python code may be members of an Enum, numpy's numbers and other kinds of str, int and float: `as_plain`
makes Python's own types of them. `gpu` and `mig` are short forms for Python users.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any, TypeVar

from pydantic import ValidationError

from gpuflow.catalog.catalog import FormName
from gpuflow.core.errors import Finding, GpuflowError, Where, did_you_mean, fail
from gpuflow.spec.params import type_name
from gpuflow.spec.problems import Path, problems
from gpuflow.spec.resources import Gpu, Mig
from gpuflow.spec.text import Literally, OutputRef, ParamRef


def as_plain(value: Any) -> Any:
    """`value` with every text and number in it of Python's own type; what is neither, and no map or list, stays."""
    kind = type(value)
    if kind is str or kind is bool or kind is int or kind is float or kind is Literally:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, dict):
        return {as_plain(key): as_plain(item) for key, item in value.items()}
    if kind is list or kind is tuple:
        return kind(map(as_plain, value))
    return value


class Outputs:
    """The outputs of a step, by attribute: `train.outputs.model`."""

    def __init__(self, step: str, names: Mapping[str, Any]) -> None:
        self._step, self._names = step, tuple(names)

    def __getattr__(self, name: str) -> OutputRef:
        if name.startswith("_") or name not in self._names:
            hint = did_you_mean(name, self._names) or f'declare it: outputs={{"{name}": …}}'
            raise AttributeError(f'step "{self._step}" has no output "{name}"; {hint}')
        return OutputRef(self._step, name)

    __getitem__ = __getattr__


@dataclass(frozen=True, slots=True)
class Handle:
    """A step that was added: name it in `needs`, or use its outputs."""

    name: str
    outputs: Outputs


@dataclass
class Draft:
    """What has been said so far about an open pipeline."""

    fields: dict[str, Any]
    origin: Where
    places: dict[Path, Where] = field(default_factory=dict)
    inside: bool = False

    def _open(self, what: str, where: Where) -> None:
        if not self.inside:
            raise fail("GF191", f"{what}() is only for use inside a `with Pipeline(…) as p:` block", where=where)

    def param(self, name: str, kind: Any, fields: dict[str, Any]) -> ParamRef:
        where = caller()
        self._open("param", where)
        self._add("params", name, {"type": type_name(kind), **fields}, where)
        return ParamRef(name)

    def step(self, section: str, name: str, command: Any, fields: dict[str, Any]) -> Handle:
        where = caller()
        self._open("step", where)
        if command is not None:
            fields = {"command": command, **fields}
        needs = fields.get("needs", ())
        if isinstance(needs, str | Handle):
            needs = [needs]
        fields["needs"] = [need.name if isinstance(need, Handle) else need for need in needs]
        self._add(section, name, fields, where)
        # A sub-pipeline's outputs are the step's.
        outputs = fields.get("outputs") or getattr(fields.get("pipeline"), "outputs", None)
        return Handle(name, Outputs(name, outputs if isinstance(outputs, Mapping) else {}))

    def _add(self, section: str, name: str, value: Any, where: Where) -> None:
        entries = self.fields.setdefault(section, {})
        if name in entries:
            first = self.places[section, name]
            text = f'"{name}" is used twice in {section}, first on line {first.line}'
            raise fail("GF109", text, where=where, hint="choose another name")
        entries[name] = value
        self.places[section, name] = where

    def locate(self, path: Path, key: bool) -> Where:
        for length in range(len(path), 0, -1):
            if path[:length] in self.places:
                return self.places[path[:length]]
        return self.origin


CALLS_BACK = ("pydantic", "airflow.")
"""Packages through which gpuflow calls itself."""


def caller() -> Where:
    """The nearest line of code outside gpuflow."""
    here = str(FilePath(__file__).parents[1]) + os.sep
    frame = sys._getframe(1)
    while frame.f_back is not None and (
        frame.f_code.co_filename.startswith(here) or frame.f_globals.get("__name__", "").startswith(CALLS_BACK)
    ):
        frame = frame.f_back
    return Where(frame.f_code.co_filename, frame.f_lineno, 1)


M = TypeVar("M", Gpu, Mig)


def gpu(
    model: str | int | None = None,
    count: int | None = None,
    *,
    any_of: tuple[str, ...] | list[str] | None = None,
    memory: Any = None,
    form: FormName | None = None,
) -> Gpu:
    """Whole GPUs: `gpu(2)` (any), `gpu("a100-80gb", 2)`, `gpu("a100-80gb", form="sxm")`,
    `gpu(any_of=["a100-80gb", "h100-80gb"])`, `gpu(memory="24Gi")`.
    """
    if isinstance(model, int) and count is None and any_of is None and memory is None and form is None:
        return _validate(Gpu, model)
    fields = {"model": model, "any_of": any_of, "memory": memory, "form": form}
    given = {key: value for key, value in fields.items() if value is not None}
    return _validate(Gpu, {**given, "count": 1 if count is None else count})


def mig(profile: str, model: str, count: int = 1) -> Mig:
    """MIG slices: `mig("1g.10gb", "a100-80gb")`."""
    return _validate(Mig, {"profile": profile, "model": model, "count": count})


def _validate(kind: type[M], fields: Any) -> M:
    try:
        return kind.model_validate(as_plain(fields))
    except ValidationError as error:
        where = caller()
        raise GpuflowError(
            Finding(code, message, where, hint) for code, message, hint, _, _ in problems(error, kind)
        ) from None
