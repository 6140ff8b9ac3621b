"""The answer to "why does it not start": a state, what keeps it, and what would let it start."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

State = Literal["runs", "ended", "starts", "waits", "never", "unknown"]
"""`starts`: nothing keeps it, whoever decides is about to. `never`: it does not start as it is, whatever ends."""
Blocker = Literal["quota", "queue", "nodes", "gate", "containers", "engine", "snapshot"]
"""Who keeps it: what decides, not who owns it."""
ORDER: tuple[State, ...] = ("never", "unknown", "waits", "starts", "runs", "ended")
"""Of several causes the first of these decides."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing that keeps it from starting, with what would change that."""

    by: Blocker
    message: str
    state: State = "waits"
    starts_when: tuple[str, ...] = ()
    kubernetes: str | None = None
    """The words of the API server, the scheduler, Kueue or the engine."""

    def document(self) -> dict[str, Any]:
        return {**asdict(self), "starts_when": list(self.starts_when)}


@dataclass(frozen=True)
class Answer:
    """Of one object, and of the objects that it waits for."""

    subject: str
    """As it is asked for: `pod/NAME`."""
    namespace: str
    state: State
    summary: str
    causes: tuple[Cause, ...] = ()
    parts: tuple[Answer, ...] = ()
    """Of a workflow or a job: its pods."""

    def document(self) -> dict[str, Any]:
        return {
            "object": self.subject,
            "namespace": self.namespace,
            "state": self.state,
            "summary": self.summary,
            "causes": [cause.document() for cause in self.causes],
            "parts": [part.document() for part in self.parts],
        }


def answer_of(subject: str, namespace: str, causes: Iterable[Cause]) -> Answer:
    """The answer that causes come to: the gravest decides."""
    found = tuple(causes)
    state = worst_state(cause.state for cause in found)
    first = next(cause for cause in found if cause.state == state)
    return Answer(subject, namespace, state, first.message, found)


def worst_state(states: Iterable[State]) -> State:
    """The state that decides among several."""
    return min(states, key=ORDER.index)
