"""A run on an engine as everybody shows it, and what a client of an engine answers.

The words of states are those of a run on this machine (`local/record.py`), so that a tree looks the same everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from gpuflow.core.errors import EnvironmentFailure, Finding, Where
from gpuflow.local.record import FAILED, INTERRUPTED, NOT_RUN, RUNNING, SKIPPED, SUCCEEDED, WAITING
from gpuflow.plan import Plan
from gpuflow.runtime.base.outcomes import EXIT_INTERRUPTED
from gpuflow.runtime.base.progress import Progress
from gpuflow.targets.target import Compiled

ENDS = {SUCCEEDED: 0, FAILED: 1, INTERRUPTED: EXIT_INTERRUPTED}
"""The states in which a run is over, with the exit code of who watched it. Interrupted: somebody stopped it."""
STEP_ENDS = (SUCCEEDED, FAILED, INTERRUPTED, SKIPPED, NOT_RUN)


@dataclass(frozen=True)
class StepState:
    """One step of a run, a copy of one (`train@2`), or a step inside a sub-pipeline (`tune.train`)."""

    name: str
    """Its full name in the pipeline, as in a run on this machine."""
    state: str = WAITING
    attempts: int = 0
    outputs: Mapping[str, str] = field(default_factory=dict)
    because: str = ""
    """Why it failed, or what it waits for."""
    started: str = ""
    ended: str = ""
    """RFC 3339; empty: not yet, or the engine does not say."""
    progress: Progress | None = None
    pods: tuple[str, ...] = ()
    """Of its attempts, oldest first, where the engine says."""

    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = {"name": self.name, "state": self.state, "attempts": self.attempts}
        found["outputs"] = dict(self.outputs)
        found |= {key: value for key in ("because", "started", "ended") if (value := getattr(self, key))}
        if self.progress:
            found["progress"] = self.progress.document()
        return found


@dataclass(frozen=True)
class RunState:
    """A run on an engine at one moment."""

    run: str
    """The name by which `gpuflow status`, `logs`, `stop` and `retry` find it."""
    engine: str
    pipeline: str
    url: str
    """Its page in the engine's UI; empty where nobody told where the UI is."""
    state: str
    steps: tuple[StepState, ...]
    """In the order of the pipeline; copies behind their step, those of a sub-pipeline behind the one they are in."""
    because: str = ""
    findings: tuple[Finding, ...] = ()
    """What was said when it was started."""

    @property
    def is_over(self) -> bool:
        return self.state in ENDS

    @property
    def exit_code(self) -> int:
        return ENDS.get(self.state, 0)

    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = {"run": self.run, "engine": self.engine, "pipeline": self.pipeline, "url": self.url}
        found |= {"state": self.state, "steps": [each.document() for each in self.steps]}
        found |= {"because": self.because} if self.because else {}
        return found | ({"findings": [each.document() for each in self.findings]} if self.findings else {})


@dataclass(frozen=True)
class Submission:
    """What is to be started: a pipeline that was checked and compiled."""

    plan: Plan
    compiled: Compiled
    namespace: str | None
    params: Mapping[str, Any]
    """Values of `--param`, as their types; what is not in it has its default."""
    name: str | None = None
    """`--name`: the same name twice is one run."""
    apply: bool = False
    """`--apply`: create what the run needs and the engine lacks (ConfigMaps, the pipeline itself)."""


@dataclass(frozen=True)
class Started:
    """The answer to a submission."""

    run: str
    url: str
    is_new: bool = True
    """False: a run of this name was there, and nothing was started."""
    findings: tuple[Finding, ...] = ()
    """What was done or left beside: applied, paused, stale."""


@dataclass(frozen=True)
class LogPart:
    """A piece of a log, and whose it is."""

    title: str
    """`train@2, attempt 1, rank 0`"""
    text: str


@dataclass(frozen=True)
class LogQuery:
    step: str
    attempt: int | None = None
    rank: int | None = None
    follow: bool = False


@dataclass(frozen=True)
class Connection:
    """How an engine is reached, as far as somebody said: `connect` of an engine's module makes its client of this."""

    namespace: str | None = None
    context: str | None = None
    kubeconfig: str | None = None
    timeout: float = 60
    url: str | None = None
    """Of the engine's UI, or of its API where that is the same."""
    site_url: str | None = None
    """The same as the site says it: where nothing else says it."""


class RunClient(Protocol):
    """One engine, reached. Every failure is a `GpuflowError` with one sentence and a way out.

    A moment without an answer while a run is watched is `Unreachable`, and the watcher asks again.
    """

    engine: str

    def submit(self, submission: Submission) -> Started:
        """Start one run. Nothing is left half done: what was created for it is removed when it cannot start."""
        ...

    def state(self, run: str, plan: Plan | None = None) -> RunState:
        """The run now. With the plan, steps that the engine does not know yet are there too, as waiting."""
        ...

    def logs(self, run: str, query: LogQuery) -> Iterator[LogPart]:
        """What programs wrote, attempt after attempt, copy after copy, rank after rank."""
        ...

    def stop(self, run: str) -> RunState:
        """End it: programs are interrupted and have their grace. The state right after."""
        ...

    def retry(self, run: str) -> Started:
        """Run again what failed, and what follows from it; a finding where the engine cannot."""
        ...


class Unreachable(EnvironmentFailure):
    """No answer now: the engine restarts, or the network is gone. Who asks once fails with the sentence (GF950)."""

    def __init__(self, sentence: str) -> None:
        super().__init__(Finding("GF950", sentence, Where("engine"), "ask again, or give it longer with --timeout"))

    def __str__(self) -> str:
        return self.findings[0].message


__all__ = [
    "RUNNING",
    "WAITING",
    "Connection",
    "LogPart",
    "LogQuery",
    "RunClient",
    "RunState",
    "Started",
    "StepState",
    "Submission",
    "Unreachable",
]
