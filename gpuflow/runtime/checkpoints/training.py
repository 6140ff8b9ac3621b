"""The side of the program: when to save, how to save so that a half-written checkpoint is never taken, when to stop.

    with checkpointing() as ckpt:
        state = load(ckpt.resume_from) if ckpt.resume_from else fresh()
        while state.step < steps:
            state = train(state)
            if ckpt.due():
                ckpt.save(state.write)
            if ckpt.interrupted:
                break

Works the same without the supervisor, so that a script can be tried on a workstation. Several processes of one training
ask `gpuflow.runtime.elastic.agree` instead, so that all of them save and stop at the same step.

A regular checkpoint, one that `due()` asked for, that the disk refuses (full, over quota, broken) is reported on
standard error and tried again later: the training is worth more than one of its checkpoints, the one before is still
there, and a store that fails does not end the training either. A save that nobody asked for is the program's own wish,
perhaps its result: that one raises. Errors that are not the disk's always raise, from the background at the next
`due()`.

Rank 0 alone cannot save a state that is spread over the ranks: that would hang, or keep one piece of many. Such a state
is refused; `gpuflow.runtime.dcp` saves it, rank by rank.
"""

from __future__ import annotations

import errno
import os
import signal
import stat
import sys
import threading
import time

from gpuflow.runtime.base import attempt_folder, files
from gpuflow.runtime.base.files import discard
from gpuflow.runtime.state.checkpoint_dir import MARKER, Directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import FrameType, TracebackType
    from typing import Any, Protocol

    class CollectiveWriter(Protocol):
        """Several processes that write one checkpoint; `elastic` has them."""

        leads: bool

        def write(self, write: Callable[[str], object], path: str, *, sync: bool) -> None: ...


_REFUSALS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.EFBIG, errno.EROFS)
_CANNOT_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)


def is_disk_refusal(error: BaseException) -> bool:
    """Whether the disk caused the error: full, over quota, broken, gone. Wrong paths and permissions are not."""
    return isinstance(error, OSError) and error.errno in _REFUSALS


def probe_disk(folder: str) -> None:
    """Write one megabyte into the folder; raises the error when the disk refuses it."""
    path = os.path.join(folder, f".probe-{os.getpid()}-{os.urandom(3).hex()}")
    try:
        with files.close_after(files.create(path)) as handle:
            files.write_all(handle, b"\0" * (1 << 20))
    finally:
        if os.path.lexists(path):
            os.unlink(path)


def sync(path: str) -> None:
    """Files on disk for good before their name says that they are finished."""
    if not os.path.isdir(path):
        sync_one(path)
        return
    shared = files.SharedFolder(path)
    for relative, status in shared.walk():
        # A pipe that somebody put there has nothing on disk, and would be waited for.
        if stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode):
            with shared.open_parent(relative) as (folder, name):
                sync_one(name, folder)
    sync_one(path)


def sync_one(path: str, folder: int | None = None) -> None:
    """One file or folder. A file system that cannot sync is taken as it is; one that fails is an error."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | (0 if folder is None else os.O_NOFOLLOW), dir_fd=folder)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise
    finally:
        os.close(handle)


_SHARDED_NAMES = {
    "FullyShardedDataParallel", "FSDPModule", "FlatParameter", "DTensor", "ShardedTensor", "DeepSpeedEngine",
    "DeepSpeedZeroOptimizer", "DeepSpeedZeroOptimizer_Stage3", "ZeroRedundancyOptimizer", "FSDPStrategy",
    "ModelParallelStrategy", "DeepSpeedStrategy",
}  # fmt: skip
_SHARDED_PACKAGES = ("torch", "deepspeed", "fairscale", "lightning", "pytorch_lightning")
_sharded_seen: dict[type, str | None] = {}


class ShardedState(TypeError):
    """A state that rank 0 alone cannot save."""


def sharded_kind(value: object) -> str | None:
    """The name of the sharded thing that this object is, else None. By name: nothing is imported to find out."""
    cls = type(value)
    if cls not in _sharded_seen:
        bases = [base for base in cls.__mro__ if base.__module__.split(".")[0] in _SHARDED_PACKAGES]
        _sharded_seen[cls] = next((base.__name__ for base in bases if base.__name__ in _SHARDED_NAMES), None)
    return _sharded_seen[cls]


def refuse_sharded(name: str, part: Any) -> None:
    """Raise when this part's state is sharded; before anyone asks for its `state_dict`, which may be a collective."""
    if (found := sharded_kind(part)) is None and hasattr(part, "modules") and hasattr(part, "parameters"):
        found = next(filter(None, map(sharded_kind, part.modules())), None) or next(
            filter(None, map(sharded_kind, part.parameters())), None
        )
    if found is None and isinstance(getattr(part, "param_groups", None), list):
        found = next(
            (sharded_kind(value) for group in part.param_groups for value in group["params"] if sharded_kind(value)),
            None,
        )
    if found is not None:
        raise ShardedState(sharded_sentence(name, found))


def sharded_sentence(name: str, found: str) -> str:
    """What to say about it."""
    return (
        f'"{name}" is sharded over the ranks ({found}), and gpuflow saves only whole states here; in a loop of your '
        "own gpuflow.runtime.dcp.Saver saves every rank's shards (FSDP, DTensor); else train with "
        "DistributedDataParallel"
    )


PREFIX = "checkpoint-"
_POLL = 1.0
_FIRST_PAUSE = 10.0
"""Seconds until a save that the disk refused is tried again; twice as long each time, up to the interval."""


def checkpointing(directory: str | None = None, *, every: float | None = None, keep: int = 2) -> Checkpointing:
    """The program's checkpoints, in `$GPUFLOW_CHECKPOINT_DIR` or `directory`."""
    return Checkpointing(directory, every=every, keep=keep)


class Checkpointing:
    """Says when to save and when to stop, and saves whole or not at all. Use it in a `with` block, main thread."""

    def __init__(self, directory: str | None = None, *, every: float | None = None, keep: int = 2) -> None:
        where = os.environ.get("GPUFLOW_CHECKPOINT_DIR") or directory or "checkpoints"
        self.supervised = "GPUFLOW_CHECKPOINT_DIR" in os.environ
        self.directory = Directory.of_program(where, os.environ.get(attempt_folder.VARIABLE), MARKER)
        self.directory.prepare()
        self.word = attempt_folder.of_program(os.environ, self.directory.hidden)
        self.word.prepare()
        if keep < 1:
            raise ValueError(f"keep={keep}: at least one checkpoint must stay")
        self.keep = keep
        self.attempt = int(os.environ.get("GPUFLOW_ATTEMPT", "1"))
        self.save_seconds: float | None = None
        self.of_each_rank: dict[str, Callable[[], Any]] = {}
        """What every rank has of its own and a checkpoint must hold; `elastic.agree` gathers it when a save is due."""
        self.gathered: list[dict[str, Any]] | None = None
        self._every = every if every is not None else float(os.environ.get("GPUFLOW_EVERY", "600"))
        self._fixed = every is not None
        self._grace = float(os.environ.get("GPUFLOW_GRACE", "30"))
        # Without a store, the directory itself must survive the machine.
        self._sync = os.environ.get("GPUFLOW_SYNC", "1") == "1"
        self._last_save = self._last_glance = time.monotonic()
        self._asked = self._asked_on_notice = False
        self._refusals, self._not_before = 0, 0.0
        self._told = False
        self._heard = 0.0
        self._deadline: float | None = None
        self._has_stop_file = attempt_folder.VARIABLE in os.environ
        if not self._has_stop_file:
            self._sweep()
        self._saved_since_told = False
        self._said_stopped = False
        self._previous: Any = None
        self._installed = False
        self._background: threading.Thread | None = None
        self._began = 0.0
        self._failure: BaseException | None = None

    def __enter__(self) -> Checkpointing:
        self.listen()
        self.word.beat()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.wait()
        finally:
            self.word.unlisten()
            if self._installed:
                signal.signal(signal.SIGTERM, self._previous or signal.SIG_DFL)
                self._installed = False

    def listen(self) -> None:
        """Hear SIGTERM, also after a framework has put its own handler in the way, and say that this process does."""
        if threading.current_thread() is not threading.main_thread():
            return
        replaced = signal.signal(signal.SIGTERM, self._on_signal)
        if not self._installed:
            self._previous, self._installed = replaced, True
        try:
            self.word.listen()
        except OSError as error:
            say(f"the supervisor is not told that this process listens: {error}")

    @property
    def resume_from(self) -> str | None:
        """The checkpoint to resume from, or None for a fresh start."""
        given = os.environ.get("GPUFLOW_RESUME_FROM")
        if given or self.supervised:
            return given
        finished = self.directory.finished_entries()
        return finished[-1].path if finished else None

    @property
    def interrupted(self) -> bool:
        """Whether the program was told to stop. Save if `due()`, then leave."""
        if self.time_left() is None:
            return False
        if not self._said_stopped:
            self._said_stopped = True
            try:
                self.word.say_stopped()
            except OSError as error:
                say(f"the supervisor is not told that this program leaves early: {error}")
        return True

    def time_left(self) -> float | None:
        """Seconds until the grace period ends; None while there is no stop request."""
        self._poll()
        if not self._told:
            return None
        if self._deadline is None and self._has_stop_file:
            self._deadline = self.word.read_stop()
        deadline = self._heard + self._grace if self._deadline is None else self._deadline
        return deadline - time.monotonic()

    def tell(self, left: float) -> None:
        """Another rank was told to stop, and has `left` seconds."""
        mine = self.time_left()
        self._told = True
        self._deadline = time.monotonic() + (left if mine is None else min(left, mine))

    def due(self) -> bool:
        """Whether to save now: the interval has passed, or this is the last chance and a save still fits.

        Ask it where the state is whole: after an optimizer step, not in the middle of an accumulation of gradients.
        Raises what went wrong in the background since.
        """
        self._raise_failure()
        left, now = self.time_left(), time.monotonic()
        if left is not None:
            takes = self.save_seconds or 0.0
            if self._is_saving():
                # The one on its way is finished first.
                takes += max(0.0, self._began + takes - now)
            self._asked = not self._saved_since_told and left > takes
        else:
            late = now - self._last_save >= self._every and now >= self._not_before
            self._asked = late and not self._is_saving()
        self._asked_on_notice = self._told
        return self._asked

    def hear_due(self, due: bool) -> None:
        """Rank 0 was asked whether a save is due, and says so: what the disk refuses then ends no rank's training."""
        self._asked, self._asked_on_notice = due, self._told

    def save(
        self, write: Callable[[str], object], name: str | None = None, *, together: CollectiveWriter | None = None
    ) -> str | None:
        """Let `write(path)` write a file or a directory, then make it a finished checkpoint.

        Its path; None when `due()` asked for it and the disk refused it, which is said on standard error. `together`:
        the other processes that write parts of it, all of which save now (`gpuflow.runtime.dcp`).
        """
        self.wait()
        asked, self._asked = self._asked, False
        chosen = name or self._next_name()
        try:
            return self._write(write, chosen, time.monotonic(), together=together)
        except OSError as error:
            if not (asked and is_disk_refusal(error)):
                raise
            self._put_off(chosen, error)
            return None

    def save_in_background(
        self,
        write: Callable[[str], object],
        name: str | None = None,
        *,
        stall: float = 0.0,
        together: CollectiveWriter | None = None,
    ) -> None:
        """Like `save`, in a thread: `write` must use data that the program no longer changes. One at a time. `stall` is
        how long the program stood still to make that data; the interval is chosen by it."""
        self.wait()
        asked, self._asked = self._asked, False
        before, chosen, began = self._last_save, name or self._next_name(), time.monotonic()
        self._last_save = self._began = began
        self._saved_since_told = self._told

        def work() -> None:
            try:
                self._write(write, chosen, began, stall, together)
            except BaseException as error:
                self._last_save, self._saved_since_told = before, False
                if asked and is_disk_refusal(error):
                    self._put_off(chosen, error)
                else:
                    say(f"checkpoint {chosen} failed: {error!r}")
                    self._failure = error

        self._background = threading.Thread(target=work, name="checkpoint")
        self._background.start()

    def finish(self, folder: str, *, seconds: float | None = None, protect: Iterable[str] = ()) -> None:
        """Mark a directory that was written in place, by someone else's code, as a finished checkpoint.

        `seconds` is how long the program stood still for it. Older ones beyond `keep` are removed, but none of those
        in `protect`.
        """
        name = os.path.basename(os.path.normpath(folder))
        if os.path.realpath(os.path.dirname(os.path.abspath(folder))) != os.path.realpath(self.directory.path):
            raise ValueError(
                f"{folder} does not lie in the checkpoint directory {self.directory.path}: nothing would be kept of it"
            )
        asked, self._asked = self._asked, False
        try:
            self._mark(folder)
        except OSError as error:
            discard(os.path.join(folder, self.directory.marker))
            if not (asked and is_disk_refusal(error)):
                raise
            self._put_off(name, error)
            return
        self._record_save(name, seconds, seconds, self._asked_on_notice)
        self._prune(protect)

    def reopen(self, folder: str) -> None:
        """Say that a finished directory is going to be written again: until `finish` it is not one."""
        discard(os.path.join(folder, self.directory.marker))

    def wait(self) -> None:
        """Until a save in the background is finished; raises what went wrong there."""
        if self._background is not None:
            self._background.join()
            self._background = None
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _is_saving(self) -> bool:
        return self._background is not None and self._background.is_alive()

    def _put_off(self, name: str, error: BaseException) -> None:
        """The disk refused a regular checkpoint: say so and try again later."""
        pause = min(_FIRST_PAUSE * 2**self._refusals, max(_FIRST_PAUSE, self._every))
        self._refusals += 1
        self._not_before = time.monotonic() + pause
        say(f"checkpoint {name} could not be written: {error}; the program goes on, the next try is in {pause:.0f} s")

    def _mark(self, folder: str) -> None:
        """The marker, after everything else is on disk."""
        if self._sync:
            sync(folder)
        marker = os.path.join(folder, self.directory.marker)
        # By rename: a link that somebody put there makes way, and what it leads to stays as it is.
        self.directory.shared.write(f"{os.path.basename(os.path.normpath(folder))}/{self.directory.marker}", b"")
        if self._sync:
            for path in (marker, folder, self.directory.path):
                sync_one(path)

    def _write(
        self,
        write: Callable[[str], object],
        name: str,
        began: float,
        stall: float | None = None,
        together: CollectiveWriter | None = None,
    ) -> str:
        told = self._told
        path = os.path.join(self.directory.path, name)
        if together is not None:
            together.write(write, path, sync=self._sync)
        else:
            self._write_alone(write, path)
        took = time.monotonic() - began
        self._record_save(name, took, took if stall is None else stall, told)
        if together is None or together.leads:
            self._prune()
        return path

    def _write_alone(self, write: Callable[[str], object], path: str) -> None:
        temporary = self.directory.temporary(f"{os.path.basename(path)}.{os.getpid()}.part")
        self.directory.shared.discard(temporary)
        try:
            write(temporary)
            if self._sync:
                sync(temporary)
            if os.path.isdir(path):
                discard(path)
            self.directory.shared.rename(temporary, path)
            if self._sync:
                sync_one(self.directory.path)
        finally:
            self.directory.shared.discard(temporary)

    def _record_save(self, name: str, took: float | None, stall: float | None, told: bool) -> None:
        """A new finished checkpoint; `told` when it was begun after the notice, and is the last one."""
        if took is not None:
            self.save_seconds = took
        self._last_save = time.monotonic()
        self._saved_since_told = self._saved_since_told or told
        self._refusals, self._not_before = 0, 0.0
        facts: dict[str, Any] = {} if stall is None else {"stall_seconds": round(stall, 4)}
        self.directory.record(name, by="api", **facts)
        while self.directory.remarks:
            say(self.directory.remarks.pop(0))

    def _next_name(self) -> str:
        numbers = [
            int(entry.name[len(PREFIX) :])
            for entry in self.directory.finished_entries()
            if entry.name.startswith(PREFIX) and _is_number(entry.name[len(PREFIX) :])
        ]
        return f"{PREFIX}{1 + max(numbers, default=0):08d}"

    def _prune(self, protect: Iterable[str] = ()) -> None:
        """Keep the newest few here; the store keeps its own."""
        spared = {os.path.realpath(path) for path in protect}
        own = [entry for entry in self.directory.finished_entries() if entry.by_api or entry.name.startswith(PREFIX)]
        for entry in own[: -self.keep]:
            if os.path.realpath(entry.path) not in spared:
                discard(entry.path)

    def _sweep(self) -> None:
        """Remove half-written files of a killed program; with a supervisor, the supervisor does it."""
        for name in self.directory.shared.names(self.directory.attempt_folder):
            pid = name[: -len(".part")].rpartition(".")[2] if name.endswith(".part") else ""
            if _is_number(pid) and attempt_folder.process_began(int(pid)) is None:
                self.directory.shared.discard(self.directory.temporary(name))

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # A signal comes at any point of the program: no file is touched here.
        if not self._told:
            self._heard = time.monotonic()
            self._told = True

    def _poll(self) -> None:
        """Once a second: a sign of life, the interval now in force, and whether to stop."""
        now = time.monotonic()
        if now - self._last_glance < _POLL:
            return
        self._last_glance = now
        self.word.beat()
        if (every := None if self._fixed else self.word.read_interval()) is not None:
            self._every = every
        if self._has_stop_file and self._deadline is None:
            self._deadline = self.word.read_stop()
            self._told = self._told or self._deadline is not None


def say(sentence: str) -> None:
    """Print one line to the program's log."""
    print(f"gpuflow: {sentence}", file=sys.stderr, flush=True)


def _is_number(text: str) -> bool:
    """Of the digits 0 to 9: `isdigit` alone says yes to others too, such as ², which are no numbers."""
    return text.isascii() and text.isdigit()
