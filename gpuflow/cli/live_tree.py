"""The tree of a run that moves on a terminal: a spinner for what runs, a bar for what tells how far it is.

Drawn by rich, an extra of its own (`gpuflow[terminal]`): without it a run is shown in lines.
"""

from __future__ import annotations

from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from gpuflow.core.printable import line
from gpuflow.local.console import MARKS, STYLES
from gpuflow.local.record import NOT_RUN, RUNNING, SKIPPED, SUCCEEDED
from gpuflow.runs.model import RunState, StepState
from gpuflow.runs.watch import progress_text, step_text

_BAR = 16
_MOST = 40
"""So many steps are shown; of more, those that run, wait or have failed."""


class LiveTree:
    """Shows a run until it ends, and then nothing: the lines of the end come after it."""

    def __init__(self, out: TextIO) -> None:
        self._live = Live(console=Console(file=out), transient=True, refresh_per_second=8)

    def __enter__(self) -> LiveTree:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def say(self, sentence: str) -> None:
        self._live.console.print(Text(line(sentence)))

    def update(self, state: RunState) -> None:
        self._live.update(picture(state))


def picture(state: RunState) -> RenderableType:
    """The run as rich draws it, cut to what a screen shows."""
    head = Text(line(f"{state.run}  {state.state}" + (f": {state.because}" if state.because else "")), style="bold")
    shown = list(state.steps)
    if len(shown) > _MOST:
        shown = ([each for each in shown if each.state not in (SUCCEEDED, SKIPPED, NOT_RUN)] or shown)[:_MOST]
    rows = Table.grid(padding=(0, 1))
    for step in shown:
        rows.add_row(_mark(step), _name(step), _rest(step))
    left = len(state.steps) - len(shown)
    return Group(head, rows, *([Text(f"  and {left} more", style="dim")] if left else []))


def _mark(step: StepState) -> RenderableType:
    if step.state == RUNNING:
        return Spinner("line", style="cyan")
    return Text(MARKS.get(step.state, "."), style=STYLES.get(step.state, "dim"))


def _name(step: StepState) -> Text:
    return Text("  " * (step.name.count(".") + step.name.count("@")) + line(step.name), no_wrap=True)


def _rest(step: StepState) -> RenderableType:
    if step.state != RUNNING or step.progress is None:
        return Text(line(step_text(step)), style=STYLES.get(step.state, "dim"), no_wrap=True, overflow="ellipsis")
    bar = Table.grid(padding=(0, 1))
    bar.add_row(
        ProgressBar(total=step.progress.total, completed=step.progress.step, width=_BAR),
        Text(line(progress_text(step))),
    )
    return bar
