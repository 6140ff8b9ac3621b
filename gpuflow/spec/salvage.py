"""What else is wrong with a document that has the wrong shape somewhere: the sound rest of it is checked too.

The parts with errors are taken out until the rest has the right shape. What is then found in it counts only where
nothing was taken away: a name that leads nowhere because its declaration was the error is no second error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError

from gpuflow.errors import Finding
from gpuflow.spec.problems import MOST, Path, problems
from gpuflow.spec.rules import broken_rules
from gpuflow.spec.source import Source

if TYPE_CHECKING:
    from gpuflow.spec.pipeline import Pipeline

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
