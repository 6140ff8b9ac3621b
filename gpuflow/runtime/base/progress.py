"""How far a program is: one line `step/total` in the file `$GPUFLOW_PROGRESS`, and after a blank what else it says.

    from gpuflow.runtime import progress

    for step in range(start, steps):
        loss = train(step)
        progress(step + 1, steps, loss=loss)

A program in any language replaces the file, or adds lines to it; the last whole line counts: `120/1000 loss=0.31`. The
supervisor hands it on in a file of its own (`pack`), of which engines read the last line, as Argo does: `120/1000`.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import sys
import time
from collections import namedtuple

from gpuflow.runtime.base import files, units

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VARIABLE = "GPUFLOW_PROGRESS"
ARGO = "ARGO_PROGRESS_FILE"
EVERY = 0.5
"""The program's file is written at most so often, in seconds."""
TAIL = 4096
"""Bytes at the end of the program's file that are looked at, and the most that ours has."""
_LONGEST = 200
_LINE = re.compile(r"([0-9]{1,18})/([0-9]{1,18})(?: +(.*))?")


class Progress(namedtuple("Progress", "step total words left", defaults=("", None))):
    """So many steps of a total, the program's other words, and the seconds that are left, where that can be known."""

    # `typing.NamedTuple` would load a module that a command starts without.
    step: int
    total: int
    words: str
    left: int | None

    @property
    def metrics(self) -> dict[str, str]:
        """The words that are `name=value`."""
        pairs = [word.partition("=") for word in self.words.split()]
        return {name: value for name, equals, value in pairs if name and equals and value}

    def __str__(self) -> str:
        left = "" if self.left is None else f", about {units.format_seconds(self.left)} left"
        return f"{self.step} of {self.total}{left}{f', {self.words}' if self.words else ''}"


def parse(line: str) -> Progress | None:
    """What a line says; None for any other text, and for more steps than there are."""
    found = _LINE.fullmatch(line.strip())
    if found is None or not 0 < int(found[2]) >= int(found[1]):
        return None
    return Progress(int(found[1]), int(found[2]), units.one_line(found[3] or "")[:_LONGEST])


_SAID = re.compile(r"gpuflow-run: progress ([0-9]{1,18}) of ([0-9]{1,18})(?:,.*)?")


def relay(line: str, path: str | None) -> None:
    """Write down what another supervisor's line says of its program's progress, if it does."""
    if path and (said := _SAID.fullmatch(line)) and (found := parse(f"{said[1]}/{said[2]}")):
        with contextlib.suppress(OSError):
            files.write(path, pack(found))


def last_line(data: bytes) -> str:
    """The last whole line of a file's end. The only line of a file needs no end."""
    whole = data[: data.rfind(b"\n") + 1] or data
    return whole.decode("utf-8", "replace").rstrip("\n").rpartition("\n")[2]


def pause(running: float) -> float:
    """Seconds between two lines about a program that has run for so long: they must not fill its log."""
    return min(300.0, max(10.0, running / 20))


def pack(found: Progress) -> bytes:
    """The file for engines: all of it as JSON, and in the last line what Argo reads."""
    return f"{json.dumps(found)}\n{found.step}/{found.total}\n".encode()


def read(path: str) -> Progress | None:
    """What was packed there; None where that is nothing, or cannot be read."""
    try:
        step, total, words, left = json.loads(files.read(path, TAIL).split(b"\n")[0])
        found = parse(f"{int(step)}/{int(total)} {words}")
        return None if found is None else found._replace(left=None if left is None else int(left))
    except (OSError, ValueError, TypeError, RecursionError, OverflowError):
        return None


class _Writer:
    """The program's side: writes seldom, however often it is called, and never fails."""

    def __init__(self, path: str) -> None:
        self.path, self.pid = path, os.getpid()
        self._wrote, self._words, self._open = 0.0, "", ""
        """When it was written, the metrics then, and the step of total that is not written yet."""
        self._broken = False
        atexit.register(self.flush)

    def tell(self, step: Any, total: Any, metrics: dict[str, Any]) -> None:
        try:
            now, self._open = time.monotonic(), f"{int(step)}/{int(total)}"
            if now - self._wrote < EVERY and step < total:
                return
            # A number on a GPU is waited for: only where it is written.
            self._words = "".join(f" {_word(name)}={_word(_text(value))}" for name, value in metrics.items())
            self._wrote = now
            self.flush()
        except Exception as failure:  # the training is worth more than a word about it
            self._open = ""
            if not self._broken:
                self._broken = True
                print(f"gpuflow: progress is not told: {failure!r}", file=sys.stderr, flush=True)

    def flush(self) -> None:
        """Write what is not written; at the end of the program that must not fail either."""
        line, self._open = self._open, ""
        if line and os.getpid() == self.pid:
            try:
                files.write(self.path, f"{line}{self._words}\n".encode("utf-8", "replace"))
            except OSError as failure:
                if not self._broken:
                    print(f"gpuflow: progress is not told: {failure}", file=sys.stderr, flush=True)
                self._broken = True


def _text(value: Any) -> str:
    if isinstance(value, (str, int)):
        return str(value)
    try:
        return f"{float(value):.4g}"
    except (TypeError, ValueError):
        return str(value)


def _word(text: str) -> str:
    return "_".join(text.split())[:60]


_writer: _Writer | None = None


def progress(step: int, total: int, /, **metrics: object) -> None:
    """Say that so many steps of a total are done, and what else is worth a look, such as `loss=loss`.

    Without a supervisor nothing happens. It may be called at every step: little is written, and nothing is raised.
    """
    global _writer
    path = os.environ.get(VARIABLE)
    if not path:
        return
    if _writer is None or _writer.path != path or _writer.pid != os.getpid():
        _writer = _Writer(path)
    _writer.tell(step, total, metrics)
