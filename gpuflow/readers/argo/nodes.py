"""What is kept while a workflow is followed: where a call stands, what it becomes, and what was found so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gpuflow.demands.model import ClaimDemand, PodSet, StepDemand, Unseen
from gpuflow.errors import Finding, Where
from gpuflow.graph import Tree
from gpuflow.readers.argo.parameters import Scope
from gpuflow.readers.argo.spec import Home, Path


class Readers(NamedTuple):
    """Who reads what: templates that call others, what a step creates, and what runs around a step."""

    steps: Callable[..., Child]
    dag: Callable[..., Child]
    created: Callable[..., Child]
    hooks: Callable[..., Child]


class TooLarge(Exception):
    """The workflow has more steps than are read."""


class Place(NamedTuple):
    """A part of a document."""

    home: Home
    path: Path

    def where(self, *more: str | int) -> Where:
        return self.home.document.where(*self.path, *more)

    def at(self, *more: str | int) -> Place:
        return Place(self.home, (*self.path, *more))


@dataclass(frozen=True)
class At:
    """Where in the run something is called."""

    home: Home
    scope: Scope
    boundary: str = ""
    """Where the template around it wants its pods."""
    stack: tuple[int, ...] = ()
    copies: int | None = 1
    tries: int = 1
    sure: bool = True
    is_exit: bool = False
    on_exit: bool = False
    """Its pods belong to an exit handler, of the run or of a step."""


@dataclass(frozen=True)
class Child:
    """What a call becomes."""

    tree: Tree
    is_pods: bool = True
    """All that its template's parallelism counts are single pods."""
    count: int | None = 1
    """How many nodes that is at most."""
    is_daemon: bool = False
    locks: tuple[tuple[str, int | None], ...] = ()
    is_loop: bool = False
    """Its tree is a loop of what its template's parallelism counts."""


@dataclass
class Found:
    """What was found on the way. Trials are taken back by their marks."""

    steps: list[StepDemand] = field(default_factory=list)
    unseen: list[Unseen] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    at_most: list[str] = field(default_factory=list)
    conditional: dict[str, bool] = field(default_factory=dict)
    inherited: dict[str, None] = field(default_factory=dict)
    """Steps that run only when a conditional one did."""
    later: dict[str, tuple[str, str, tuple[PodSet, ...]]] = field(default_factory=dict)
    """When, the step, and its pod in the last attempt."""
    names: dict[str, None] = field(default_factory=dict)
    locks: list[tuple[str, int | None, int | None, int | None]] = field(default_factory=list)
    """Lock, its limit, how many copies of one call hold it, how many such calls there are."""
    escaped: list[Tree] = field(default_factory=list)
    """What lives on after the step that created it."""
    agent: list[bool] = field(default_factory=list)
    daemons: list[str] = field(default_factory=list)
    limited: list[str] = field(default_factory=list)
    """Templates whose parallelism holds something back."""
    claims: list[ClaimDemand] = field(default_factory=list)
    created: list[str] = field(default_factory=list)
    """Steps of what a step creates."""

    def marks(self) -> list[int]:
        return [len(each) for each in self._all()]

    def take_back(self, marks: list[int]) -> None:
        for each, mark in zip(self._all(), marks, strict=True):
            if isinstance(each, list):
                del each[mark:]
            else:
                while len(each) > mark:
                    each.popitem()

    def _all(self) -> tuple[list[Any] | dict[str, Any], ...]:
        return (
            self.steps, self.unseen, self.findings, self.at_most, self.conditional, self.inherited, self.later,
            self.names, self.locks, self.escaped, self.agent, self.daemons, self.limited, self.claims, self.created,
        )  # fmt: skip
