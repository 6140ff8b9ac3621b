"""The pipeline as everybody sees it: its model together with the rules, which are written about the model.

A document that has the wrong shape somewhere is checked as far as possible. The parts with errors are taken out until
the rest has the right shape. What is then found in it counts only where nothing was taken away: a name that leads
nowhere because its declaration was the error is no second error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from pydantic import ValidationError

from gpuflow.core.errors import Finding, GpuflowError, Unsound, Where
from gpuflow.spec.builder import as_plain, caller
from gpuflow.spec.problems import MAX_PROBLEMS, Path, Source, problems
from gpuflow.spec.rules.pipeline_rules import broken_rules
from gpuflow.spec.rules.step_rules import check_hardware, xcom_faults
from gpuflow.spec.step import STEP_CONTEXT, Checks, Pipeline, Step

__all__ = ["Pipeline", "Step", "changed_steps", "check"]

ROUNDS = 8
STEP_ONLY_CODES = ("GF201", "GF202")
"""Findings about a step alone, whatever the rest of the document says."""


class Remainder(NamedTuple):
    """What is left of a document without the parts that have the wrong shape."""

    pipeline: Pipeline
    taken: list[Path]
    """Where parts were taken out."""

    def findings(self) -> Iterator[Finding]:
        """Findings about the sound parts of the document."""
        touched, only_settings = changed_steps(self.taken), all(map(_is_setting, self.taken))
        for finding in broken_rules(self.pipeline):
            whole = finding.where.step is not None and finding.where.step not in touched
            if whole and (only_settings or finding.code in STEP_ONLY_CODES):
                yield finding


def rest_of(cls: type[Pipeline], data: Any, error: ValidationError, source: Source) -> Remainder | None:
    """The valid remainder of a document whose shape gave `error`; None if too little of it is left."""
    rest, taken = _copy_tree(data), list[Path]()
    for _ in range(ROUNDS):
        if error.error_count() > MAX_PROBLEMS:
            return None
        codes = {path: code for code, _, _, path, _ in problems(error, cls)}
        gone: set[Path] = set()
        for path in sorted(codes, key=_last_first, reverse=True):
            if any(path[:length] in gone for length in range(len(path))):
                continue
            found = _delete_at(rest, path)
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
            return Remainder(pipeline, taken)
    return None


def changed_steps(taken: Iterable[Path]) -> set[str | None]:
    """The steps that lost something, those of sub-pipelines too."""
    return {str(step) for path in taken for section, step in pairwise(path) if section in ("steps", "exit")}


def _is_setting(path: Path) -> bool:
    """Whether a step lost only a setting, and kept its name and outputs; anything else may have been referred to."""
    section, _, field = (*path, None, None, None)[:3]
    if section not in ("steps", "exit") or field is None:
        return False
    return _is_setting(path[3:]) if field == "pipeline" else field != "outputs"


def _copy_tree(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy_tree(item) for key, item in value.items()}
    return [_copy_tree(item) for item in value] if isinstance(value, list) else value


def _last_first(path: Path) -> tuple[tuple[int, str], ...]:
    """List items are taken out from the last to the first, so that the places of the others stay."""
    return tuple((part, "") if isinstance(part, int) else (0, part) for part in path)


def _delete_at(tree: Any, path: Path) -> Path:
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


def checked_step(cls: type[Step], name: str | None, fields: dict[str, Any]) -> Step:
    """`Step(...)` in user code: a step on its own. What its references mean is decided where it is used."""
    where = caller()
    try:
        given = {key: as_plain(value) for key, value in fields.items() if value is not None}
        step = cls.model_validate(given, context=STEP_CONTEXT)
    except ValidationError as error:
        raise GpuflowError(
            Finding(code, ".".join(map(str, path)) + f": {message}" if path else message, where, hint)
            for code, message, hint, path, _ in problems(error, cls)
        ) from None
    found = [Finding(code, message, where, hint) for code, message, _, hint in check_hardware(step)]
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
            Finding(code, _with_step_name(message, path, key), _where_in(source, path, key), hint)
            for code, message, hint, path, key in problems(error, cls)
        ]
        rest = rest_of(cls, data, error, source)
        if rest is None:
            raise GpuflowError(_sort_findings(findings)) from None
        raise Unsound(_sort_findings([*findings, *rest.findings()]), rest.pipeline, rest.taken) from None
    pipeline._source = source
    findings = list(broken_rules(pipeline))
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors:
        raise Unsound(_sort_findings(errors), pipeline)
    return pipeline


def _with_step_name(message: str, path: Path, key: bool) -> str:
    """Messages about a step begin with its name, so that they can be read without the file."""
    below = len(path) > 2 or (len(path) == 2 and not key)
    return f'step "{path[1]}": {message}' if below and path[0] in ("steps", "exit") else message


def _where_in(source: Source, path: Path, key: bool) -> Where:
    where = source.locate(path, key)
    step = str(path[1]) if len(path) > 1 and path[0] in ("steps", "exit") else None
    return Where(where.file or source.file, where.line, where.column, step)


def _sort_findings(findings: list[Finding]) -> list[Finding]:
    return sorted(dict.fromkeys(findings), key=lambda f: (f.where.file or "", f.where.line or 0, f.where.column or 0))


Checks.step, Checks.pipeline = checked_step, check
