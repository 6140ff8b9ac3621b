"""The side of the program: when to save, how to save so that a half-written checkpoint is never taken, when to stop.

    with checkpointing() as ckpt:
        state = load(ckpt.resume_from) if ckpt.resume_from else fresh()
        while state.step < steps:
            state = train(state)
            if ckpt.due():
                ckpt.save(state.write)
            if ckpt.interrupted:
                break

Works the same without the supervisor, so that a script can be tried on a desk.
"""

from __future__ import annotations

import os
import signal
import threading
import time

from gpuflow.runtime.directory import MARKER, Directory, discard

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, TracebackType
    from typing import Any

PREFIX = "checkpoint-"
_GLANCE = 1.0


def checkpointing(directory: str | None = None, *, every: float | None = None, keep: int = 2) -> Checkpointing:
    """The program's checkpoints, in `$GPUFLOW_CHECKPOINT_DIR` or `directory`."""
    return Checkpointing(directory, every=every, keep=keep)


class Checkpointing:
    """Says when to save and when to stop, and saves whole or not at all. Use it in a `with` block, main thread."""

    def __init__(self, directory: str | None = None, *, every: float | None = None, keep: int = 2) -> None:
        where = os.environ.get("GPUFLOW_CHECKPOINT_DIR") or directory or "checkpoints"
        self.supervised = "GPUFLOW_CHECKPOINT_DIR" in os.environ
        self.directory = Directory.of_program(where, os.environ.get("GPUFLOW_STOP"), MARKER)
        self.directory.prepare()
        self.keep = keep
        self.attempt = int(os.environ.get("GPUFLOW_ATTEMPT", "1"))
        self.save_seconds: float | None = None
        self._every = every if every is not None else float(os.environ.get("GPUFLOW_EVERY", "600"))
        self._fixed = every is not None
        self._grace = float(os.environ.get("GPUFLOW_GRACE", "30"))
        # Without a store, the directory itself must survive the machine.
        self._sync = os.environ.get("GPUFLOW_SYNC", "1") == "1"
        self._last_save = self._last_glance = time.monotonic()
        self._told: float | None = None
        self._saved_since_told = False
        self._previous: Any = None
        self._installed = False
        self._background: threading.Thread | None = None
        self._failure: BaseException | None = None

    def __enter__(self) -> Checkpointing:
        self.listen()
        self._beat()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.wait()
        finally:
            if self._installed:
                signal.signal(signal.SIGTERM, self._previous or signal.SIG_DFL)
                self._installed = False

    def listen(self) -> None:
        """Hear SIGTERM, also after a framework has put its own handler in the way."""
        if threading.current_thread() is threading.main_thread():
            replaced = signal.signal(signal.SIGTERM, self._hear)
            if not self._installed:
                self._previous, self._installed = replaced, True

    @property
    def resume_from(self) -> str | None:
        """The checkpoint to resume from, or None for a fresh start."""
        given = os.environ.get("GPUFLOW_RESUME_FROM")
        if given or self.supervised:
            return given
        finished = self.directory.finished()
        return finished[-1].path if finished else None

    @property
    def interrupted(self) -> bool:
        """Whether the program was told to stop. Save if `due()`, then leave."""
        self._glance()
        return self._told is not None

    def due(self) -> bool:
        """Whether to save now: the interval has passed, or this is the last chance and a save still fits."""
        self._glance()
        if self._told is not None:
            left = self._told + self._grace - time.monotonic()
            return not self._saved_since_told and left > (self.save_seconds or 0.0)
        return time.monotonic() - self._last_save >= self._every

    def save(self, write: Callable[[str], object], name: str | None = None) -> str:
        """Let `write(path)` write a file or a directory, then make it a finished checkpoint. Its path."""
        self.wait()
        return self._write(write, name or self._next_name(), time.monotonic())

    def save_in_background(
        self, write: Callable[[str], object], name: str | None = None, *, stall: float = 0.0
    ) -> None:
        """Like `save`, in a thread: `write` must use data that the program no longer changes. One at a time.

        `stall` is how long the program stood still to make that data; the interval is chosen by it.
        """
        self.wait()
        chosen, began = name or self._next_name(), time.monotonic()
        self._last_save = began
        self._saved_since_told = self._told is not None

        def work() -> None:
            try:
                self._write(write, chosen, began, stall)
            except BaseException as failure:
                self._failure = failure

        self._background = threading.Thread(target=work, name="checkpoint")
        self._background.start()

    def finish(self, folder: str) -> None:
        """Mark a directory that was written in place, by someone else's code, as a finished checkpoint."""
        with open(os.path.join(folder, self.directory.marker), "w", encoding="ascii"):
            pass
        self._last_save = time.monotonic()
        self._saved_since_told = self._told is not None
        self.directory.record(os.path.basename(folder))

    def wait(self) -> None:
        """Until a save in the background is finished; raises what went wrong there."""
        if self._background is not None:
            self._background.join()
            self._background = None
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _write(self, write: Callable[[str], object], name: str, began: float, stall: float | None = None) -> str:
        told = self._told is not None
        temporary = os.path.join(self.directory.path, f".{name}.{os.getpid()}")
        discard(temporary)
        try:
            write(temporary)
            if self._sync:
                _sync(temporary)
            path = os.path.join(self.directory.path, name)
            if os.path.isdir(path):
                discard(path)
            os.replace(temporary, path)
        finally:
            discard(temporary)
        took = time.monotonic() - began
        self.save_seconds = took
        self._last_save = time.monotonic()
        self._saved_since_told = self._saved_since_told or told
        self.directory.record(name, by="api", stall_seconds=round(took if stall is None else stall, 4))
        self._prune()
        return path

    def _next_name(self) -> str:
        numbers = [
            int(entry.name[len(PREFIX) :])
            for entry in self.directory.finished()
            if entry.name.startswith(PREFIX) and entry.name[len(PREFIX) :].isdigit()
        ]
        return f"{PREFIX}{1 + max(numbers, default=0):08d}"

    def _prune(self) -> None:
        """Keep the newest few here; the store keeps its own."""
        own = [entry for entry in self.directory.finished() if entry.by_api or entry.name.startswith(PREFIX)]
        for entry in own[: -self.keep]:
            discard(entry.path)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self._stop()

    def _stop(self) -> None:
        if self._told is None:
            self._told = time.monotonic()

    def _glance(self) -> None:
        """Once a second: a sign of life, the interval now in force, and whether to stop."""
        if time.monotonic() - self._last_glance < _GLANCE:
            return
        self._last_glance = time.monotonic()
        self._beat()
        if not self._fixed:
            try:
                with open(self.directory.folder.interval, encoding="ascii") as file:
                    self._every = float(file.read())
            except (OSError, ValueError):
                pass
        if self.supervised and os.path.exists(self.directory.folder.stop):
            self._stop()

    def _beat(self) -> None:
        try:
            with open(self.directory.folder.heartbeat, "w", encoding="ascii"):
                pass
        except OSError:
            pass


def _sync(path: str) -> None:
    """Files on disk for good before their name says that they are finished."""
    if not os.path.isdir(path):
        _sync_one(path)
        return
    for folder, _, names in os.walk(path):
        for name in names:
            _sync_one(os.path.join(folder, name))
        _sync_one(folder)


def _sync_one(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)
