"""Pipelines written in Python: an open pipeline collects steps and is checked when its `with` block ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from gpuflow.errors import Finding, GpuflowError, Unsound, Where, did_you_mean, fail
from gpuflow.spec.hardware import judge_hardware
from gpuflow.spec.params import type_name
from gpuflow.spec.problems import problems
from gpuflow.spec.python_values import plain
from gpuflow.spec.rules import broken_rules
from gpuflow.spec.salvage import rest_of
from gpuflow.spec.source import Path, Source
from gpuflow.spec.step import ON_ITS_OWN
from gpuflow.spec.text import OutputRef, ParamRef
from gpuflow.spec.xcom_outputs import xcom_faults

if TYPE_CHECKING:
    from gpuflow.spec.pipeline import Pipeline
    from gpuflow.spec.step import Step


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

    def entered(self, pipeline: Pipeline) -> Pipeline:
        self.inside = True
        return pipeline

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
            raise fail(
                "GF109",
                f'"{name}" is used twice in {section}, first on line {first.line}',
                where=where,
                hint="choose another name",
            )
        entries[name] = value
        self.places[section, name] = where

    def locate(self, path: Path, key: bool) -> Where:
        for length in range(len(path), 0, -1):
            if path[:length] in self.places:
                return self.places[path[:length]]
        return self.origin

    def finish(self, pipeline: Pipeline) -> None:
        """Check everything at once and make the open pipeline the checked one."""
        source = Source(self.origin.file, self.locate)
        checked = check(type(pipeline), plain(self.fields), source)
        object.__setattr__(pipeline, "__dict__", checked.__dict__)
        object.__setattr__(pipeline, "__pydantic_fields_set__", checked.__pydantic_fields_set__)
        pipeline._source = source


def draft_of(pipeline: Pipeline, what: str) -> Draft:
    """The draft of an open pipeline; GF191 when it is closed."""
    if pipeline._draft is None:
        raise fail(
            "GF191",
            f'pipeline "{pipeline.name}" is finished; {what} is for an open one',
            where=caller(),
            hint="add steps inside its first `with` block",
        )
    return pipeline._draft


def open_or_checked(cls: type[Pipeline], fields: dict[str, Any]) -> Pipeline:
    """`Pipeline(...)`: checked at once when it has steps, open when it has none yet."""
    origin = caller()
    if "steps" in fields:
        return check(cls, plain(fields), Source(origin.file, lambda path, key: origin))
    pipeline = cls.model_construct(**{"name": "unnamed", **fields})
    pipeline._draft = Draft(dict(fields), origin)
    return pipeline


def checked_step(cls: type[Step], name: str | None, fields: dict[str, Any]) -> Step:
    """`Step(...)` in user code: a step on its own. What its references mean is decided where it is used."""
    where = caller()
    try:
        given = {key: plain(value) for key, value in fields.items() if value is not None}
        step = cls.model_validate(given, context=ON_ITS_OWN)
    except ValidationError as error:
        raise GpuflowError(
            Finding(code, ".".join(map(str, path)) + f": {message}" if path else message, where, hint)
            for code, message, hint, path, _ in problems(error, cls)
        ) from None
    found = [Finding(code, message, where, hint) for code, message, _, hint in judge_hardware(step)]
    found += [Finding("GF364", message, where, hint) for message, _, hint in xcom_faults(step)]
    if step.runs_container and not step.runs_nothing and step.image is None:
        found.append(Finding("GF176", f'step "{name or "?"}" has no image', where, "give it one"))
    if found:
        raise GpuflowError(found)
    step._name = name
    return step


def check(cls: type[Pipeline], data: Any, source: Source) -> Pipeline:
    """A pipeline from plain data: every problem of shape and meaning in one error."""
    try:
        pipeline = cls.model_validate(data)
    except ValidationError as error:
        findings = [
            Finding(code, _named(message, path, key), _place(source, path, key), hint)
            for code, message, hint, path, key in problems(error, cls)
        ]
        rest = rest_of(cls, data, error, source)
        if rest is None:
            raise GpuflowError(_ordered(findings)) from None
        raise Unsound(_ordered([*findings, *rest.findings()]), rest.pipeline, rest.taken) from None
    pipeline._source = source
    findings = list(broken_rules(pipeline))
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors:
        raise Unsound(_ordered(errors), pipeline)
    return pipeline


def _named(message: str, path: Path, key: bool) -> str:
    """Messages about a step begin with its name, so that they can be read without the file."""
    below = len(path) > 2 or (len(path) == 2 and not key)
    return f'step "{path[1]}": {message}' if below and path[0] in ("steps", "exit") else message


def _place(source: Source, path: Path, key: bool) -> Where:
    where = source.locate(path, key)
    step = str(path[1]) if len(path) > 1 and path[0] in ("steps", "exit") else None
    return Where(where.file or source.file, where.line, where.column, step)


def _ordered(findings: list[Finding]) -> list[Finding]:
    return sorted(dict.fromkeys(findings), key=lambda f: (f.where.file or "", f.where.line or 0, f.where.column or 0))


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
