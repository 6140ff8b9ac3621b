"""What the tasks of a DAG wait for, and which of them may not run.

Mirrors GetTaskDependencies of workflow/common/ancestry.go, and evaluateDependsLogic of workflow/controller, v4.0.2.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Final

from gpuflow.readers.argo.expressions import NotConstant, depends_holds
from gpuflow.readers.argo.values import listing, text_of

_NAME: Final = re.compile(r"([a-zA-Z0-9][-a-zA-Z0-9]*?\.[A-Z][a-zA-Z]+)|([a-zA-Z0-9][-a-zA-Z0-9]*)")
_PLAIN: Final = re.compile(r"[\w\s&()-]*")
DONE: Final = ("Succeeded", "Skipped", "Daemoned")
UNHAPPY: Final = frozenset({"Failed", "Errored", "AllFailed", "Skipped", "Omitted"})
RESULTS: Final = frozenset({*DONE, *UNHAPPY, "AnySucceeded"})
MOST_CASES: Final = 64


@dataclass(frozen=True)
class Waits:
    """What one task waits for."""

    names: tuple[str, ...]
    logic: str | None = None
    """None: until all of them are done, and none was left out."""
    unhappy: frozenset[str] = frozenset()
    """Tasks whose failure, or being left out, it asks about."""


class BadDepends(ValueError):
    """Text that Argo refuses."""


def waits_of(task: Mapping[str, Any]) -> Waits:
    """What a task waits for. Raises `BadDepends`."""
    written = text_of(task.get("depends"))
    if not written:
        names = [text_of(each) for each in listing(task.get("dependencies"))]
        return Waits(tuple(dict.fromkeys(name for name in names if name)))
    if task.get("dependencies"):
        raise BadDepends("it has both depends and dependencies")
    found: dict[str, None] = {}
    unhappy: set[str] = set()
    for result, bare in _NAME.findall(written):
        if bare:
            found[bare] = None
            continue
        name, _, word = result.partition(".")
        if word not in RESULTS:
            raise BadDepends(f"task result {word} does not exist")
        found[name] = None
        if word in UNHAPPY:
            unhappy.add(name)
    if "!" in written:
        unhappy |= found.keys()
    if _PLAIN.fullmatch(written):
        return Waits(tuple(found))
    logic = _NAME.sub(lambda match: match[0] if match[1] else _done(match[2]), written)
    return Waits(tuple(found), logic, frozenset(unhappy))


def _done(name: str) -> str:
    return "(" + " || ".join(f"{name}.{word}" for word in DONE) + ")"


@dataclass
class Outcomes:
    """How each task may end when nothing fails."""

    of: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def answer(self, waits: Waits) -> tuple[bool, bool]:
        """Whether the task may run when nothing fails, and whether it surely does."""
        cases = [self.of.get(name, ("Succeeded",)) for name in waits.names]
        if waits.logic is None:
            surely = not any("Omitted" in case for case in cases)
            return all(set(case) - {"Omitted"} for case in cases), surely
        many = 1
        for case in cases:
            many *= len(case)
        if many > MOST_CASES:
            return True, False
        answers = set()
        for case in product(*cases):
            results = {f"{name}.{word}": True for name, word in zip(waits.names, case, strict=True)}
            results |= {
                f"{name}.AnySucceeded": True
                for name, word in zip(waits.names, case, strict=True)
                if word == "Succeeded"
            }
            try:
                answers.add(depends_holds(waits.logic, results))
            except NotConstant:
                return True, False
        return True in answers, answers == {True}


def with_daemons(edges: Mapping[str, Collection[str]], daemons: Collection[str]) -> dict[str, list[str]]:
    """Edges where nobody waits for the end of a daemon: what waits for one waits for what it waited for.

    `edges`: for each task, those that it waits for, in an order in which they come first.
    """
    found: dict[str, list[str]] = {}
    for name, before in edges.items():
        wanted: dict[str, None] = {}
        for each in before:
            if each in daemons:
                wanted.update(dict.fromkeys(found.get(each, ())))
            else:
                wanted[each] = None
        found[name] = list(wanted)
    return found
