"""Who an attempt is, and the folder in which its supervisor and its program exchange small files.

The identity is pipeline / run / step / fan-out item, as a path that any file system and object store accepts.

`GPUFLOW_STOP` names the file `stop` in the attempt folder, and with that the folder. Only this attempt looks there, so
that no program ever obeys the notice of another attempt.

| file | written by | says |
|---|---|---|
| `stop` | supervisor | stop; the program's deadline, as `time.monotonic()` |
| `interval` | supervisor | seconds between saves |
| `heartbeat` | both | when there was a sign of life last, as `time.monotonic()` |
| `listeners/<pid>` | program | this process hears SIGTERM by itself; when the process began |
| `stopped` | program | it is leaving early because it was told to, whatever its exit code then says |
| `progress` | program | how far it is (`$GPUFLOW_PROGRESS`) |
"""

from __future__ import annotations

import contextlib
import os
import time

from gpuflow.runtime.base.files import SharedFolder, close_after

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")
_LONGEST = 120


def path_part(text: str) -> str:
    """One part of a path: other characters as %XX; long names cut, with a hash so that they stay apart."""
    encoded = "".join(
        chr(byte) if chr(byte) in _PLAIN and not (index == 0 and byte == 0x2E) else f"%{byte:02X}"
        for index, byte in enumerate(text.encode("utf-8", "surrogateescape"))
    )
    if len(encoded) <= _LONGEST:
        return encoded or "%"
    import hashlib

    digest = hashlib.sha256(encoded.encode()).hexdigest()[:16]
    return f"{encoded[: _LONGEST - 18]}%~{digest}"


def identity_path(pipeline: str, run: str, step: str, item: str | None, task: str | None = None) -> str:
    """Where a run's state lives under the store. Items lie in a folder of their own, so none meets the step itself."""
    own = step if task is None else f"{without_attempt_numbers(task)}/{step}"
    whole = f"{path_part(pipeline)}/{path_part(run)}/{path_part(own)}"
    return whole if item is None else f"{whole}/items/{path_part(item)}"


def without_attempt_numbers(task: str) -> str:
    """The name of a task without the numbers of attempts: Argo calls them `train(0)` and `train(1)`. The turns of its
    loops are called `train(0:item)`, and stay apart."""
    import re

    return re.sub(r"\(\d+\)", "", task)


def engine_attempt(text: str | None, say: Callable[[str], None]) -> int | None:
    """The engine's own number of an attempt. What is no number, such as a variable it did not fill in, is left out."""
    if text is None or (text.isascii() and text.isdigit() and len(text) < 10):
        return None if text is None else int(text)
    say(f"--engine-attempt is no number, and is left out: {text[:80]!r}")
    return None


VARIABLE = "GPUFLOW_STOP"
UNSUPERVISED = "desk"
"""Stands for the identity and the attempt where there is no supervisor."""


def identity_of(base: str) -> str:
    """The name of a run, step and item among others in one checkpoint directory."""
    import hashlib

    return hashlib.sha256(base.encode()).hexdigest()[:16]


class AttemptFolder:
    """One attempt's folder, in a shared one or by itself. Reading never fails: what is not whole was not said."""

    def __init__(self, path: str, shared: SharedFolder | None = None) -> None:
        self.path, self._shared = path, shared or SharedFolder(path)
        self.stop = os.path.join(path, "stop")
        self.interval = os.path.join(path, "interval")
        self.heartbeat = os.path.join(path, "heartbeat")
        self.listeners = os.path.join(path, "listeners")
        self.stopped = os.path.join(path, "stopped")
        self.progress = os.path.join(path, "progress")

    def prepare(self) -> None:
        self._shared.make(self.listeners)

    # -- the supervisor's word

    def write_stop(self, deadline: float) -> None:
        """Tell the program to stop; its deadline is a moment of `time.monotonic()`."""
        self._write(self.stop, f"{deadline:.3f}\n")

    def read_stop(self) -> float | None:
        """The program's deadline once it is told to stop, else None. A notice that says no time leaves none."""
        if not self._shared.has(self.stop):
            return None
        deadline = self._number(self.stop)
        return 0.0 if deadline is None else deadline

    def write_interval(self, seconds: float) -> None:
        self._write(self.interval, f"{seconds:.3f}\n")

    def read_interval(self) -> float | None:
        return self._number(self.interval)

    # -- signs of life

    def beat(self) -> None:
        """A sign of life. Not by a clock that can be set: a probe compares it with its own `time.monotonic()`."""
        flags = os.O_WRONLY | os.O_CREAT
        with contextlib.suppress(OSError), close_after(self._shared.open(self.heartbeat, flags)) as handle:
            # In place and always as long as before: a reader never finds it empty.
            os.write(handle, f"{time.monotonic():017.3f}\n".encode("ascii"))

    def last_beat(self) -> float | None:
        return self._number(self.heartbeat)

    # -- the program's word

    def listen(self, pid: int | None = None) -> None:
        """Record that this process handles SIGTERM and stops cleanly, so that its workers need no signal."""
        pid = os.getpid() if pid is None else pid
        self._shared.make(self.listeners)
        self._write(os.path.join(self.listeners, str(pid)), f"{process_began(pid)}\n")

    def unlisten(self, pid: int | None = None) -> None:
        with contextlib.suppress(OSError):
            self._shared.unlink(os.path.join(self.listeners, str(os.getpid() if pid is None else pid)))

    def listening_pids(self) -> set[int]:
        """The processes that listen and live: a number used again by another process is not one of them."""
        try:
            names = self._shared.names(self.listeners)
        except OSError:
            return set()
        found = set()
        for name in names:
            began = self._number(os.path.join(self.listeners, name)) if name.isascii() and name.isdigit() else None
            if began is not None and began == process_began(int(name)):
                found.add(int(name))
        return found

    def say_stopped(self) -> None:
        """Say that the program is leaving early because it was told to."""
        self._write(self.stopped, f"{os.getpid()}\n")

    def has_stopped(self) -> bool:
        return self._shared.has(self.stopped)

    def _number(self, path: str) -> float | None:
        try:
            return float(self._shared.read(path, 64).decode("ascii"))
        except (OSError, ValueError):
            return None

    def _write(self, path: str, text: str) -> None:
        """Whole or not at all."""
        self._shared.write(path, text.encode("ascii"))


def of_program(environ: Mapping[str, str], hidden: str) -> AttemptFolder:
    """The program's attempt folder: from its environment, or without a supervisor in `<directory>/.gpuflow`."""
    stop = environ.get(VARIABLE)
    path = os.path.dirname(stop) if stop else os.path.join(hidden, UNSUPERVISED)
    own = bool(hidden) and os.path.abspath(path).startswith(f"{hidden}/")
    return AttemptFolder(os.path.abspath(path), SharedFolder(os.path.dirname(hidden)) if own else None)


def process_began(pid: int) -> int | None:
    """When a process began, in clock ticks since boot: with its id, that names it for good. None for a dead one."""
    found = process_status(pid)
    return None if found is None else int(found[1][19])


def process_status(pid: int) -> tuple[str, list[str]] | None:
    """A process's name, and the words after it in /proc; None for a dead one."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            head, _, tail = file.read().rpartition(")")
    except OSError:
        return None
    fields = tail.split()
    # A main thread that has ended while others go on looks dead and is not.
    dead = len(fields) < 20 or (fields[0] in "ZX" and int(fields[17]) < 2)
    return None if dead else (head.partition("(")[2], fields)
