"""One pipeline to run on the real KFP, and what must come of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Complaints = list[str]
Lines = Mapping[str, list[str]]


@dataclass(frozen=True)
class Seen:
    """What became of a run, as KFP and the cluster tell it."""

    state: str
    run: Mapping[str, Any]
    pods: Mapping[str, list[dict[str, Any]]]
    """The pods of steps, by step, in the order in which they were made."""
    drivers: int
    logs: Lines
    """What all pods of a step printed, by step, one text for each pod."""
    workflow: Mapping[str, Any]
    facts: Mapping[str, str]

    def said(self, step: str) -> str:
        return "\n".join(self.logs.get(step, ()))

    def count(self, step: str) -> int:
        return len(self.pods.get(step, ()))


def nothing(name: str, item: Mapping[str, Any]) -> bool:
    return False


@dataclass(frozen=True)
class Case:
    """`document`: the pipeline; `leaves_out(step, item)`: which copies have no pod; `check`: what else must hold."""

    name: str
    document: Mapping[str, Any]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    state: str = "SUCCEEDED"
    leaves_out: Callable[[str, Mapping[str, Any]], bool] = nothing
    made: Mapping[str, str] = field(default_factory=dict)
    """Outputs that are written by no stand-in, by `step.output`."""
    check: Callable[[Seen], Complaints] | None = None
    settings: str = "always"
    constructs: tuple[str, ...] = ()
    """What of the table it shows."""
    compares: bool = True
    """Whether the pods must be those of the spec, one for one; not where pods are repeated or taken away."""
    edit: Callable[[list[dict[str, Any]]], None] | None = None
    """Changes the compiled documents, to say what gpuflow refuses to say."""
    unrefused: bool = False
    """Compiled although gpuflow refuses it, to see what KFP makes of it."""
    lossy: bool = False
    service_account: str | None = None
    note: str = ""
