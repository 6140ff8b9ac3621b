"""How far a program is: one line `step/total` in the file `$GPUFLOW_PROGRESS`, and after a blank what else it says.

A program replaces the file, or adds lines to it; the last whole line counts: `120/1000 loss=0.31`. The supervisor hands
it on in a file of its own (`pack`), of which Argo reads the last line: `120/1000`.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import re
import time
from collections import namedtuple

from gpuflow.runtime.base import files, units

VARIABLE = "GPUFLOW_PROGRESS"
TAIL = 4096  # bytes at the end of the program's file that are looked at, and the most that ours has
_EVERY, _LONGEST = 0.5, 200
_LINE = re.compile(r"([0-9]{1,18})/([0-9]{1,18})(?: +(.*))?")


class Progress(namedtuple("Progress", "step total words left", defaults=("", None))):
    """So many steps of a total, the program's other words, and the seconds that are left, where that can be known."""

    def __str__(self) -> str:
        left = "" if self.left is None else f", about {units.format_seconds(self.left)} left"
        return f"{self.step} of {self.total}{left}{f', {self.words}' if self.words else ''}"

    def document(self) -> dict[str, object]:
        """Step, total and metrics, as JSON has them."""
        metrics = dict(word.split("=", 1) for word in self.words.split() if "=" in word)
        return {"step": self.step, "total": self.total, "metrics": metrics}


def parse(line: str) -> Progress | None:
    """What a line says; None for any other text, and for more steps than there are."""
    found = _LINE.fullmatch(line.strip())
    if found is None or not 0 < int(found[2]) >= int(found[1]):
        return None
    return Progress(int(found[1]), int(found[2]), units.one_line(found[3] or "")[:_LONGEST])


def pause(running: float) -> float:
    """Seconds between two lines about a program that has run for so long: they must not fill its log."""
    return min(300.0, max(10.0, running / 20))


def pack(found: Progress) -> bytes:
    """The file for engines: all of it as JSON, and in the last line what Argo reads."""
    return f"{json.dumps(found)}\n{found.step}/{found.total}\n".encode()


def read(path: str) -> Progress | None:
    """What was packed there; None where that is nothing, or cannot be read."""
    with contextlib.suppress(OSError, ValueError, TypeError, RecursionError):
        step, total, words, left = json.loads(files.read(path, TAIL).partition(b"\n")[0])
        found = parse(f"{step}/{total} {words}")
        return found and found._replace(left=left if isinstance(left, int) and 0 <= left < 1 << 53 else None)
    return None


@functools.lru_cache(maxsize=1)
class _Writer:
    """The program's side: it writes seldom, however often it is called, and at the program's end what is left."""

    def __init__(self, path: str) -> None:
        self._path, self._wrote, self._unwritten, self._words = path, 0.0, "", ""
        atexit.register(self._write)

    def tell(self, step: int, total: int, metrics: dict[str, object]) -> None:
        self._unwritten = f"{step}/{total}"
        if time.monotonic() - self._wrote >= _EVERY or step == total:
            # A number on a GPU is waited for: only where it is written.
            self._words = "".join(f" {_word(name)}={_word(value)}" for name, value in metrics.items())
            self._wrote = time.monotonic()
            self._write()

    def _write(self) -> None:
        line, self._unwritten = self._unwritten, ""
        with contextlib.suppress(OSError):
            if line:
                files.write(self._path, f"{line}{self._words}\n".encode("utf-8", "replace"))


def _word(value: object) -> str:
    if not isinstance(value, (str, int)):
        with contextlib.suppress(TypeError, ValueError):
            value = f"{float(value):.4g}"  # type: ignore[arg-type]  # what is no number stays as it is
    return "_".join(str(value).split())[:60]


def progress(step: int, total: int, /, **metrics: object) -> None:
    """Say that so many steps of a total are done, and metrics (`loss=loss`). It may be called at every step, raises
    nothing, and does nothing without a supervisor."""
    if path := os.environ.get(VARIABLE):
        with contextlib.suppress(Exception):  # the training is worth more than a word about it
            _Writer(path).tell(step, total, metrics)
