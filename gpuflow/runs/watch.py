"""Follows a run until it ends. What waits long is asked why; an engine that is silent is asked again for a while."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Protocol

from gpuflow.core.errors import EnvironmentFailure, Finding, GpuflowError, Where
from gpuflow.core.printable import line
from gpuflow.local.console import MARKS, STYLES, Style, outputs_text
from gpuflow.local.record import FAILED, INTERRUPTED, NOT_RUN, RUNNING, SKIPPED, SUCCEEDED, WAITING
from gpuflow.plan import Plan
from gpuflow.runs.model import Connection, RunClient, RunState, StepState, Unreachable
from gpuflow.runtime.base.units import format_seconds

EVERY = 2.0
PATIENCE = 300.0
"""How long an engine may be silent."""
LONG = 10.0
"""How long a step waits before it is asked why."""
AGAIN = 30.0
"""How often the same step is asked."""
Why = Callable[[StepState], str]


class View(Protocol):
    """What shows a run."""

    def say(self, sentence: str) -> None: ...

    def update(self, state: RunState) -> None: ...


def follow(
    client: RunClient,
    run: str,
    view: View,
    *,
    plan: Plan | None = None,
    why: Why | None = None,
    every: float = EVERY,
    patience: float = PATIENCE,
) -> RunState:
    """Show a run until it ends; GF950 when its engine has been silent for too long."""
    silent_since: float | None = None
    reasons = Reasons(why)
    while True:
        try:
            state = client.state(run, plan)
        except Unreachable as trouble:
            if silent_since is None:
                silent_since = time.monotonic()
                view.say(f"{trouble}; it is asked again for {format_seconds(patience)}")
            elif time.monotonic() - silent_since >= patience:
                text = f"{client.engine} has not answered for {format_seconds(patience)}: {trouble}"
                hint = f"the run goes on without you: gpuflow status {run} --engine {client.engine} --watch"
                raise EnvironmentFailure(Finding("GF950", text, Where(client.engine), hint)) from None
            time.sleep(every)
            continue
        if silent_since is not None:
            view.say(f"{client.engine} answers again, after {format_seconds(round(time.monotonic() - silent_since))}")
            silent_since = None
        view.update(state := reasons.added_to(state))
        if state.is_over:
            return state
        time.sleep(every)


class Reasons:
    """Why steps wait, each asked once it has waited for long, and not at every look."""

    def __init__(self, why: Why | None, *, long: float = LONG, again: float = AGAIN) -> None:
        self._why, self._long, self._again = why, long, again
        self._since: dict[str, float] = {}
        self._known: dict[str, tuple[float, str]] = {}

    def added_to(self, state: RunState) -> RunState:
        """The run, its waiting steps with their reasons."""
        waiting = {each.name for each in state.steps if each.state == WAITING and each.pods}
        now = time.monotonic()
        self._since = {name: self._since.get(name, now) for name in waiting}
        return replace(state, steps=tuple(self._with_reason(each, now) for each in state.steps))

    def _with_reason(self, step: StepState, now: float) -> StepState:
        if self._why is None or step.name not in self._since or now - self._since[step.name] < self._long:
            return step
        asked, sentence = self._known.get(step.name, (0.0, ""))
        if not asked or now - asked >= self._again:
            sentence = self._why(step)
            self._known[step.name] = (time.monotonic(), sentence)
        return replace(step, because=sentence or step.because)


def why_on_cluster(connection: Connection) -> Why:
    """What `gpuflow why` says of the last pod of a step; nothing where the cluster does not let us see it."""

    def ask(step: StepState) -> str:
        # Imported here: most runs do not wait.
        from gpuflow.checker.snapshot.validation import PreparedCluster
        from gpuflow.cluster.api_server import Reader
        from gpuflow.cluster.live import read_live
        from gpuflow.why.answer import POD, find_in, with_live
        from gpuflow.why.pods import why_pod

        if connection.namespace is None:
            return ""
        try:
            reader = Reader(connection.context, connection.kubeconfig, connection.timeout)
            cluster = read_live(connection.namespace, connection.context, reader)
            cluster = with_live(cluster, reader, POD, step.pods[-1], connection.namespace)
            ready = PreparedCluster(cluster, connection.namespace)
            body = find_in(ready.cluster, POD, step.pods[-1], connection.namespace)
            answer = None if body is None else why_pod(body, ready)
        except GpuflowError:
            return ""
        return "" if answer is None or answer.state in ("runs", "ended") else answer.summary

    return ask


class PlainView:
    """One line with the time for everything that changes."""

    def __init__(self, write: Callable[[str], None], style: Style = lambda text, _: text) -> None:
        self._write, self._style = write, style
        self._seen: dict[str, StepState] = {}
        self._run = ""

    def say(self, sentence: str, style: str = "") -> None:
        text = line(sentence)
        self._write(f"{time.strftime('%H:%M:%S')} {self._style(text, style) if style else text}")

    def update(self, state: RunState) -> None:
        if state.because != self._run and not state.is_over:
            self._run = state.because
            self.say(f"{state.run} waits: {state.because}" if state.because else f"{state.run} has begun")
        for step in state.steps:
            before = self._seen.get(step.name, StepState(step.name))
            self._seen[step.name] = step
            for sentence in _news(before, step):
                self.say(sentence, STYLES.get(step.state, ""))

    def end(self, state: RunState) -> None:
        """The tree, and how it ended."""
        for each in tree_lines(state, self._style):
            self._write(each)
        self.say(f"run {state.run} {state.state}{f': {state.because}' if state.because else ''}", STYLES[state.state])


def _news(before: StepState, step: StepState) -> Iterator[str]:
    """What is new of a step."""
    if step.attempts > before.attempts and before.attempts and step.state not in (SUCCEEDED, SKIPPED):
        yield f"{step.name} is tried again (attempt {step.attempts})"
    if step.state == before.state:
        if step.state == WAITING and step.because not in ("", before.because):
            yield f"{step.name} waits: {step.because}"
        elif step.state == RUNNING and step.progress and step.progress != before.progress:
            yield f"{step.name}: {progress_text(step)}"
        return
    told = f": {step.because}" if step.because else ""
    if step.state == RUNNING:
        yield f"{step.name} started"
    elif step.state == SUCCEEDED:
        yield f"{step.name} succeeded{outputs_text(step.outputs)}"
    elif step.state == WAITING:
        yield f"{step.name} waits{told}"
    else:
        yield f"{step.name} {step.state}{told}"


def progress_text(step: StepState) -> str:
    """`40 of 100, loss=0.3`; nothing where nobody told."""
    return "" if step.progress is None else str(step.progress)


def tree_lines(state: RunState, style: Style = lambda text, _: text) -> Iterator[str]:
    """Every step with its state, copies and what is inside a step below it."""
    for step in state.steps:
        depth = step.name.count(".") + step.name.count("@")
        text = f"{'  ' * depth}{MARKS.get(step.state, '.')} {step.name}  {step_text(step)}"
        yield "  " + style(line(text), STYLES.get(step.state, "dim"))


def step_text(step: StepState) -> str:
    """A step's state, and what belongs to it."""
    text = step.state + (f", {step.attempts} attempts" if step.attempts > 1 and step.pods else "")
    if step.state == RUNNING and step.progress:
        return f"{text}: {progress_text(step)}"
    if step.state in (WAITING, FAILED, INTERRUPTED, SKIPPED, NOT_RUN):
        return text + (f": {step.because}" if step.because else "")
    return text + outputs_text(step.outputs)
