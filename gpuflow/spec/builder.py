"""Pipelines written in Python: an open pipeline collects steps and is checked when its `with` block ends.

Values from Python code may be members of an Enum, numpy's numbers and other kinds of str, int and float: `plain` makes
Python's own types of them. `gpu` and `mig` are short forms for Python users.

A document that has the wrong shape somewhere is checked as far as possible. The parts with errors are taken out until
the rest has the right shape. What is then found in it counts only where nothing was taken away: a name that leads
nowhere because its declaration was the error is no second error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pydantic import ValidationError

from gpuflow.catalog.catalog import FormName
from gpuflow.core.errors import Finding, GpuflowError, Unsound, Where, did_you_mean, fail
from gpuflow.spec.params import type_name
from gpuflow.spec.problems import MOST, Path, Source, problems
from gpuflow.spec.resources import Gpu, Mig
from gpuflow.spec.rules.file_rules import xcom_faults
from gpuflow.spec.rules.pipeline_rules import broken_rules
from gpuflow.spec.rules.step_rules import judge_hardware
from gpuflow.spec.step import ON_ITS_OWN
from gpuflow.spec.text import Literally, OutputRef, ParamRef

if TYPE_CHECKING:
    from gpuflow.spec.pipeline import Pipeline
    from gpuflow.spec.step import Step


def plain(value: Any) -> Any:
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
        return {plain(key): plain(item) for key, item in value.items()}
    if kind is list or kind is tuple:
        return kind(map(plain, value))
    return value


ROUNDS = 8
BY_ITSELF = ("GF201", "GF202")
"""Findings about a step alone, whatever the rest of the document says."""


class Rest(NamedTuple):
    """What is left of a document without the parts that have the wrong shape."""

    pipeline: Pipeline
    taken: list[Path]
    """Where parts were taken out."""

    def findings(self) -> Iterator[Finding]:
        """Findings about the sound parts of the document."""
        return _that_count(broken_rules(self.pipeline), self.taken)


def rest_of(cls: type[Pipeline], data: Any, error: ValidationError, source: Source) -> Rest | None:
    """The sound rest of a document whose shape gave `error`; None when too little of it is left."""
    rest, taken = _copied(data), list[Path]()
    for _ in range(ROUNDS):
        if error.error_count() > MOST:
            return None
        codes = {path: code for code, _, _, path, _ in problems(error, cls)}
        gone: set[Path] = set()
        for path in sorted(codes, key=_last_first, reverse=True):
            if any(path[:length] in gone for length in range(len(path))):
                continue
            found = _take_out(rest, path)
            if not found:
                return None
            gone.add(found)
            # A key that is unknown may be any key of its owner, misspelled.
            taken.append(found[:-1] if codes[path] == "GF113" else found)
        try:
            pipeline = cls.model_validate(rest)
        except ValidationError as again:
            error = again
        else:
            pipeline._source = source
            return Rest(pipeline, taken)
    return None


def _that_count(findings: Iterator[Finding], taken: list[Path]) -> Iterator[Finding]:
    touched = touched_steps(taken)
    only_settings = all(map(_is_setting, taken))
    for finding in findings:
        whole = finding.where.step is not None and finding.where.step not in touched
        if whole and (only_settings or finding.code in BY_ITSELF):
            yield finding


def touched_steps(taken: Iterable[Path]) -> set[str | None]:
    """The steps that lost something, those of sub-pipelines too."""
    return {str(step) for path in taken for section, step in pairwise(path) if section in ("steps", "exit")}


def _is_setting(path: Path) -> bool:
    """Whether a step lost only a setting, and kept its name and outputs; anything else may have been referred to."""
    section, _, field = (*path, None, None, None)[:3]
    if section not in ("steps", "exit") or field is None:
        return False
    return _is_setting(path[3:]) if field == "pipeline" else field != "outputs"


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value


def _last_first(path: Path) -> tuple[tuple[int, str], ...]:
    """List items are taken out from the last to the first, so that the places of the others stay."""
    return tuple((part, "") if isinstance(part, int) else (0, part) for part in path)


def _take_out(tree: Any, path: Path) -> Path:
    """Delete what stands at `path`, or the nearest thing above it that is there; which one it was."""
    found = []
    for part in path:
        there = part in tree if isinstance(tree, dict) else isinstance(tree, list) and part in range(len(tree))
        if not there:
            break
        found.append((tree, part))
        tree = tree[part]
    if found:
        owner, part = found[-1]
        del owner[part]
    return path[: len(found)]


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
        return _checked(Gpu, model)
    fields = {"model": model, "any_of": any_of, "memory": memory, "form": form}
    given = {key: value for key, value in fields.items() if value is not None}
    return _checked(Gpu, {**given, "count": 1 if count is None else count})


def mig(profile: str, model: str, count: int = 1) -> Mig:
    """MIG slices: `mig("1g.10gb", "a100-80gb")`."""
    return _checked(Mig, {"profile": profile, "model": model, "count": count})


def _checked(kind: type[M], fields: Any) -> M:
    try:
        return kind.model_validate(plain(fields))
    except ValidationError as error:
        where = caller()
        raise GpuflowError(
            Finding(code, message, where, hint) for code, message, hint, _, _ in problems(error, kind)
        ) from None
