"""What a run says while it goes on, one plain line for each event, and the tree of its steps at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gpuflow.core.printable import line
from gpuflow.local.attempt import End, last_lines
from gpuflow.local.record import FAILED, INTERRUPTED, NOT_RUN, SKIPPED, SUCCEEDED
from gpuflow.local.walk import Node, item_text
from gpuflow.runtime.base.units import format_seconds
from gpuflow.spec.params import text_of

_MOST = 60
Style = Callable[[str, str], str]
"""Paints a text: the text, and the name of a color."""
STYLES = {SUCCEEDED: "green", FAILED: "red", INTERRUPTED: "yellow", SKIPPED: "dim", NOT_RUN: "dim"}
MARKS = {SUCCEEDED: "+", FAILED: "x", INTERRUPTED: "!", SKIPPED: "-", NOT_RUN: "-"}


class Console:
    """Writes the lines. `write` gets each without its end."""

    def __init__(self, write: Callable[[str], None], style: Style = lambda text, _: text) -> None:
        self._write, self._style = write, style

    def say(self, sentence: str, style: str = "") -> None:
        """A line with the time."""
        text = line(sentence)
        self._write(f"{time.strftime('%H:%M:%S')} {self._style(text, style) if style else text}")

    def tell(self, key: str, event: str, facts: Mapping[str, Any]) -> None:
        """An event of a step."""
        if event == "started":
            number, item = facts["attempt"], item_text(facts["item"])
            again = "" if facts["is_first"] and number == 1 else f" (attempt {number})"
            self.say(f"{key} started{again}{f': {item}' if item else ''}")
        elif event == "waits":
            self.say(f"{key} waits for {facts['gpus']} GPU{'s' if facts['gpus'] > 1 else ''}")
        elif event == "remark":
            self.say(f"{key}: {facts['text']}", "dim")
        elif event == "ended":
            self._tell_end(key, facts)
        elif event == "settled":
            self._tell_settled(facts["node"], is_news=facts["is_news"])

    def _tell_end(self, key: str, facts: Mapping[str, Any]) -> None:
        end: End = facts["end"]
        took = format_seconds(round(facts["seconds"], 1))
        if end.state == SUCCEEDED:
            self.say(f"{key} succeeded in {took}{outputs_text(end.outputs)}", STYLES[SUCCEEDED])
            return
        self.say(f"{key} {end.state} after {took}: {end.because}", STYLES[end.state])
        if end.state == FAILED:
            for each in last_lines(facts["log"]):
                self._write(f"         | {line(each)}")
        if facts["again"]:
            wait = facts["wait"]
            self.say(f"{key} is tried again {f'in {format_seconds(wait)}' if wait else 'now'}")

    def _tell_settled(self, node: Node, *, is_news: bool) -> None:
        if not is_news:
            return
        if node.state in (SKIPPED, NOT_RUN):
            self.say(f"{node.key} {node.state}: {node.because}", "dim")
        elif node.state == FAILED and not node.planned.step.runs_container:
            self.say(f"{node.key} failed: {node.because}", STYLES[FAILED])
        elif node.state == SUCCEEDED and not (node.planned.step.runs_container and not node.planned.step.for_each):
            self.say(f"{node.key} succeeded{outputs_text(node.outputs)}", STYLES[SUCCEEDED])
        elif node.state == FAILED and not node.attempts:
            self.say(f"{node.key} failed: {node.because}", STYLES[FAILED])

    def tree(self, nodes: Iterable[Node]) -> None:
        """Every step with its state, those of sub-pipelines below the step that they are in."""
        for node in nodes:
            begun = INTERRUPTED if node.attempts or node.inside else "not begun"
            state = node.state if node.state in MARKS else begun
            mark = MARKS.get(state, ".")
            text = f"{'  ' * node.key.count('.')}{mark} {node.key}  {state}"
            if node.planned.step.for_each and node.results:
                good = sum(1 for each, _ in node.results.values() if each == SUCCEEDED)
                text += f", {good} of {node.total}"
            text += f": {node.because}" if node.because and node.state != SUCCEEDED else ""
            text += outputs_text(node.outputs) if node.state == SUCCEEDED else ""
            self._write("  " + self._style(line(text), STYLES.get(state, "dim")))


def outputs_text(outputs: Mapping[str, str]) -> str:
    """`: loss=0.3, model=/…/files`, long values cut."""
    words = []
    for name, text in outputs.items():
        shown = text_of(text)
        words.append(f"{name}={shown if len(shown) <= _MOST else shown[:_MOST] + '…'}")
    return f": {', '.join(words)}" if words else ""
