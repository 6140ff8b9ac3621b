"""Steps that wait for a person: asked at the terminal, answered by `--approve`, or by a file where nobody is there."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path

from gpuflow.local.events import Events
from gpuflow.local.walk import Copy, Walk

EVERY = 1.0
"""How often the file of an answer is looked for."""
_YES, _NO = ("y", "yes"), ("n", "no")


class Approvals:
    """The questions of one run."""

    def __init__(
        self, walk: Walk, events: Events, say: Callable[[str], None], way: str, approved: Collection[str]
    ) -> None:
        """`way`: ask, fail or wait. `approved`: the steps that are approved already, by key or by name."""
        self._walk, self._events, self._say, self._way, self._approved = walk, events, say, way, set(approved)
        self._typed = b""
        self._reads = False
        walk.approve, walk.ask = self._answer_so_far, self._ask

    def close(self) -> None:
        """Listen no more."""
        if self._reads:
            self._events.forget(0)

    def _answer_so_far(self, copy: Copy) -> bool | None:
        said = self._walk.run.step(copy.key).answer
        if {copy.key, copy.node.key, copy.node.planned.name} & self._approved:
            return True
        return True if said else None  # one that was rejected is asked again

    def _ask(self, copy: Copy) -> None:
        approval = copy.node.planned.step.approval
        assert approval is not None
        question = f"{copy.key} asks: {approval.message}"
        if self._way == "ask" and _is_terminal():
            self._say(f"{question} Approve? [y/n]")
            if not self._reads:
                self._reads = True
                self._events.read(0, self._read)
        elif self._way == "wait":
            file = self._file(copy)
            self._say(f"{question} It waits: echo yes > {file} approves, echo no > {file} rejects")
            self._events.at(time.monotonic() + EVERY, lambda: self._look(copy))
        else:
            self._say(f"{question} Nobody is here to approve; --approve {copy.node.planned.name} does")
            self._walk.answer(copy, yes=False)

    def _file(self, copy: Copy) -> Path:
        return self._walk.run.path / "answers" / copy.key

    def _look(self, copy: Copy) -> None:
        if copy not in self._walk.questions or self._walk.is_stopping:
            return
        file = self._file(copy)
        file.parent.mkdir(exist_ok=True)
        try:
            word = file.read_text(encoding="utf-8", errors="replace").strip().lower()
        except OSError:
            word = ""
        if word in _YES or word in _NO:
            file.unlink(missing_ok=True)
            self._walk.answer(copy, yes=word in _YES)
        else:
            self._events.at(time.monotonic() + EVERY, lambda: self._look(copy))

    def _read(self) -> None:
        data = os.read(0, 4096)
        self._typed += data
        while b"\n" in self._typed and self._walk.questions:
            text, _, self._typed = self._typed.partition(b"\n")
            word = text.decode("utf-8", "replace").strip().lower()
            if word in (*_YES, *_NO):
                self._walk.answer(self._walk.questions[0], yes=word in _YES)
            else:
                self._say("answer y or n")
        for copy in () if data else list(self._walk.questions):  # nobody will type anything more
            self._walk.answer(copy, yes=False)
        if not data or not self._walk.questions:
            self._events.forget(0)
            self._reads = False


def _is_terminal() -> bool:
    return sys.stdin is not None and not sys.stdin.closed and os.isatty(0)
