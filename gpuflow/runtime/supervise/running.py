"""The command while it runs: its variables, its signals, its checkpoints, its memory, and the time left to stop.

The memory that is used is written to the store as part of the attempt's sign of life: the next attempt can read it when
this one is killed with its pod. It is looked at often, since memory fills fast; written seldom, since a store may be
far away: at once when the share of the limit rises over one of the marks, else at most every 30 seconds, and nothing
at all below the first mark.
"""

from __future__ import annotations

import os
import signal
import threading
import time

from gpuflow.runtime.base import attempt_folder, container, files, progress, units
from gpuflow.runtime.base import child as children
from gpuflow.runtime.base import options as table
from gpuflow.runtime.base.attempt_folder import AttemptFolder
from gpuflow.runtime.base.child import say
from gpuflow.runtime.base.outcomes import FINAL, INTERRUPTED, RETRYABLE, SUCCEEDED, TIMED_OUT, Ending
from gpuflow.runtime.base.records import Usage
from gpuflow.runtime.checkpoints import interval
from gpuflow.runtime.state.attempts import utc_now
from gpuflow.runtime.stores.store import Memory, StorageError
from gpuflow.runtime.supervise.progress_watch import ProgressWatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpuflow.runtime.artifacts.outputs import Output
    from gpuflow.runtime.base.options import Options
    from gpuflow.runtime.checkpoints.keeper import Keeper
    from gpuflow.runtime.checkpoints.restore import RestoreResult
    from gpuflow.runtime.state.attempts import History
    from gpuflow.runtime.state.checkpoint_dir import Directory
    from gpuflow.runtime.state.ledger import Ledger
    from gpuflow.runtime.stores.store import Store

MEMORY_MARKS = (0.80, 0.90, 0.95)
MEMORY_EVERY = 30.0
MEMORY_SELDOM, MEMORY_OFTEN = 1.0, 0.1
"""Seconds between two looks, below the first mark and above it."""


class MemoryWatch:
    """One attempt's memory."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._over = threading.Event()
        self._mark = 0
        self._share = 0.0
        self._wrote: float | None = None

    def begin(self) -> None:
        """Watch from now on."""
        threading.Thread(target=self._run, name="memory", daemon=True).start()

    def end(self) -> None:
        """The command has ended: what it used is no sign of anything any more."""
        self._over.set()

    def _run(self) -> None:
        while not self._over.wait(MEMORY_OFTEN if self._mark else MEMORY_SELDOM):
            if (seen := container.working_set()) is not None:
                self.look(*seen, time.monotonic())
        if (seen := container.working_set()) is not None and self._mark:
            # Whoever kills the supervisor from now on does not do it for the command's memory.
            self._write(*seen)

    def look(self, used: int, limit: int, moment: float) -> bool:
        """Write it down if it is time to; whether it was."""
        share = used / limit
        mark = sum(share >= each for each in MEMORY_MARKS)
        rises = mark > self._mark
        due = self._wrote is not None and moment - self._wrote >= MEMORY_EVERY and abs(share - self._share) >= 0.01
        if not (rises or due):
            return False
        self._wrote = moment
        if not self._write(used, limit):
            return False  # a mark that was not written is tried again at the next look
        self._mark, self._share = mark, share
        return True

    def _write(self, used: int, limit: int) -> bool:
        ledger = self._ledger
        key = ledger.memory_key(ledger.number, ledger.id)
        try:
            ledger.store.write(key, ledger.pack(Usage(used=used, limit=limit, time=utc_now()), key))
        except (StorageError, OSError):
            return False
        return True


_LEFTOVER_SECONDS = 1.0
"""What a command leaves behind when it ends may take this long to end by itself, such as a `tee` that still writes."""
TOLD, LATE = "told to stop", "ran too long"
"""Why the command is told to stop, where it is no sentence."""
_OWN = (
    "CHECKPOINT_DIR", "RESUME_FROM", "ATTEMPT", "INTERRUPTIONS", "OUTPUTS", "GRACE", "DEADLINE", "EVERY", "SYNC",
    "GANG_SECRET", "PROGRESS",
)  # fmt: skip
"""Variables of another supervisor, or of an image, that this command must not take for its own."""


class StopRequested(Exception):
    """Told to stop before the command ran."""


class CommandRun:
    """One run of the command. `keeper` is there once checkpoints are watched for."""

    def __init__(
        self,
        options: Options,
        environ: Mapping[str, str],
        outputs_dir: str,
        directory: Directory | None,
        store: Store | None,
        ledger: Ledger,
        history: History,
        restored: RestoreResult | None,
    ) -> None:
        self.options, self.environ, self.outputs_dir = options, environ, outputs_dir
        self.directory, self.store = directory, store
        self.ledger, self.history, self.restored = ledger, history, restored
        self.keeper: Keeper | None = None
        self.folder: AttemptFolder | None = None
        self.deadline: float | None = None
        """The moment by which everything must be over, once told to stop."""
        whole = max(0.2, options.grace - min(1.0, options.grace / 10))
        reserve = interval.upload_reserve(options.grace, None) if store is not None else min(0.5, whole / 4)
        self.grace: tuple[float, float] = (max(0.1, whole - reserve), whole)
        """Seconds from a notice to the program's end, and to the end of everything."""
        self._program_deadline = 0.0
        self._ends_at: float | None = None
        """When `--timeout` is over."""
        self._timed_out = False
        self.outputs: Sequence[Output] = ()
        """What must be whole for a success."""

    def run(self) -> Ending:
        """Start it, keep its checkpoints, and say how it ended."""
        if children.stop_is_pending():
            raise StopRequested()
        self.folder = self._make_folder()
        try:
            return self._run()
        finally:
            if self.directory is None and self.folder is not None:
                files.discard(self.folder.path)

    def _run(self) -> Ending:
        options = self.options
        environ = self._variables()
        self.keeper = self._make_keeper()
        if self.keeper is not None:
            environ["GPUFLOW_EVERY"] = f"{self.keeper.every:.3f}"
            self.keeper.start()
        if self.folder is not None:
            self.folder.beat()
        kills = container.oom_kills()
        # What the next attempt can go by, where this one is killed with its container. Nobody reads `Memory` after us.
        watch = MemoryWatch(self.ledger)
        if not isinstance(self.ledger.store, Memory) and container.working_set() is not None:
            watch.begin()
        try:
            child = self._start(environ)
        except OSError as refusal:
            from gpuflow.runtime.supervise import diagnosis

            self._finish_keeper()
            return diagnosis.cannot_start(options.command[0], refusal)
        if options.timeout is not None:
            self._ends_at = time.monotonic() + options.timeout
        showing = ProgressWatch(self.folder, options.progress_file or self.environ.get("ARGO_PROGRESS_FILE"))
        try:
            return self._follow(child, kills)
        except BaseException:
            # Whatever went wrong: the program does not outlive it.
            child.end(0.0)
            raise
        finally:
            watch.end()
            showing.end()

    def _start(self, environ: Mapping[str, str]) -> children.Child:
        return children.Child(self.options.command, environ)

    def _make_keeper(self) -> Keeper | None:
        if self.directory is None:
            return None
        from gpuflow.runtime.checkpoints.keeper import Keeper

        return Keeper(self.options, self.directory, self.ledger, self.store, say, children.wake)

    def _follow(self, child: children.Child, kills: int) -> Ending:
        if self.keeper is not None and self.directory is not None:
            from gpuflow.runtime.state.directory_owner import write_owner

            write_owner(self.directory, self.ledger, child.pid if child.own_group else None)
        self._supervise(child)
        told = self.deadline is not None
        witness = None
        if self.deadline is None:
            if self.outputs and child.code == 0:
                from gpuflow.runtime.artifacts.outputs import OutputWatch

                witness = OutputWatch(self.outputs, self.outputs_dir)
            ended, left = child.end(_LEFTOVER_SECONDS, witness=witness)
        else:
            now = time.monotonic()
            ended, left = child.end(min(_LEFTOVER_SECONDS, self._program_deadline - now), max(0.2, self.deadline - now))
        if left:
            say(f"these cannot be ended, not even by SIGKILL: {container.format_processes(left)}")
        elif ended and not told:
            say(f"ended what the command left behind: {container.format_processes(ended)}")
        child.drain()
        ending = self._judge(child, kills, told=told)
        if ended and witness is not None and ending.outcome == SUCCEEDED:
            torn = witness.damage()
            ending = ending if torn is None else Ending(RETRYABLE, torn, child.code)
        self._report_end(ending)
        self._finish_keeper()
        if self.keeper is not None and self.keeper.lost is not None:
            return Ending(INTERRUPTED, self.keeper.lost, child.code, until=self.deadline)
        return ending

    def _judge(self, child: children.Child, kills: int, *, told: bool) -> Ending:
        """How the command ended, before its last checkpoint is kept."""
        options = self.options
        if told:
            how = f"ended with {child.code}" if child.code is not None else "did not end in time, not even by SIGKILL"
            if self._timed_out:
                # Whatever the command makes of its notice. Nobody else ends us: there is time to write it down.
                why = f"it ran longer than {units.format_seconds(options.timeout)}; told to stop, the command {how}"
                return Ending(TIMED_OUT, why, child.code)
            return Ending(INTERRUPTED, f"told to stop; the command {how}", child.code, until=self.deadline, told=True)
        assert child.code is not None
        if self.folder is not None and self.folder.has_stopped():
            why = f"the command was told to stop, but not by its supervisor; it left early with {child.code}"
            return Ending(INTERRUPTED, why, child.code)
        if child.code == 0:
            return Ending(SUCCEEDED, "the command ended well", 0)
        from gpuflow.runtime.supervise import diagnosis

        final, retryable = options.final_exit_codes, options.retryable_exit_codes
        verdict = diagnosis.diagnose(child.code, child.last_words, container.oom_kills() - kills, final, retryable)
        # A guess from words may end a step for good only where the supervisor is the one who counts.
        guessed = verdict.outcome == FINAL and child.code not in final and retryable is None
        counted = options.failures is not None or options.retries is not None
        outcome = RETRYABLE if guessed and not counted else verdict.outcome
        return Ending(outcome, f"exit code {child.code}: {verdict.because}", child.code, by_itself=True)

    def _report_end(self, ending: Ending) -> None:
        """Hook: the command has ended. A gang reports it to the other ranks."""

    def _stop_order(self) -> str | None:
        """Why the command must stop without a signal to this supervisor: a message of its gang."""
        return None

    def _supervise(self, child: children.Child) -> None:
        """Until the program has ended. Once told to stop, `deadline` says so."""
        killed: float | None = None
        while child.code is None or (self.deadline is not None and killed is None and child.group_lives()):
            if self.keeper is not None and self.keeper.lost is not None and self.deadline is None:
                say(f"{self.keeper.lost}; ending the command")
                self._tell_to_stop(child, self.keeper.lost)
            elif self.deadline is None and (order := self._stop_order()) is not None:
                self._tell_to_stop(child, order)
            limit = 3600.0
            if self.deadline is None and self._ends_at is not None:
                limit = min(limit, max(0.0, self._ends_at - time.monotonic()))
            if self.deadline is not None:
                limit = self._program_deadline - time.monotonic()
                if limit <= 0 and killed is None:
                    child.send(signal.SIGKILL)
                    killed = time.monotonic()
                if killed is not None:
                    limit = max(killed + 0.5, self.deadline) - time.monotonic()
                    if limit <= 0:
                        return  # it waits in the kernel; the end must still be written
                elif child.remind(last=limit <= min(2.0, self.grace[0] / 10)):
                    limit = min(limit, 0.1)
            if child.code is None:
                heard = child.wait(limit)
            else:
                # The command itself is gone; those it started may still be saving.
                heard = None
                time.sleep(0.05)
                child.reap()
            if heard is not None and self.deadline is None:
                self._tell_to_stop(child, TOLD)
            elif self._is_timed_out(child):
                self._timed_out = True
                say(f"the command has run for its {units.format_seconds(self.options.timeout)}; it is told to stop")
                self._tell_to_stop(child, LATE)
            elif heard == signal.SIGINT and killed is None:
                child.send(signal.SIGKILL)
                killed = time.monotonic()

    def _is_timed_out(self, child: children.Child) -> bool:
        """Whether the time is over for a command that runs, and nobody else was first to tell it to stop."""
        if self._ends_at is None or self.deadline is not None or time.monotonic() < self._ends_at:
            return False
        child.reap()
        return child.code is None and not children.stop_is_pending()

    def _tell_to_stop(self, child: children.Child, why: str) -> None:
        """Tell the program to stop, and the keeper that there is no more time than this."""
        now = time.monotonic()
        self._program_deadline = now + self.grace[0]
        self.deadline = now + self.grace[1]
        if self.folder is not None:
            try:
                self.folder.write_stop(self._program_deadline)
            except OSError as refusal:
                say(f"cannot write {self.folder.stop}: {refusal}")
        child.send(signal.SIGTERM)
        if self.keeper is not None:
            self.keeper.hurry(self.deadline)

    def _finish_keeper(self) -> None:
        """The last upload. A stop that comes meanwhile shortens it."""
        keeper = self.keeper
        if keeper is None:
            return
        keeper.finish(self.deadline)
        while keeper.is_busy:
            if self.deadline is None and children.stop_is_pending():
                self.deadline = time.monotonic() + self.grace[1]
                keeper.finish(self.deadline)
            if self.deadline is not None and time.monotonic() > self.deadline + min(0.3, self.options.grace / 40):
                return
            time.sleep(0.01)

    def _make_folder(self) -> AttemptFolder | None:
        """The attempt's own folder: in the checkpoint directory, else in the first temporary place that can be had."""
        if self.directory is not None:
            self.directory.folder.prepare()
            return self.directory.folder
        roots = [self.environ.get("TMPDIR") or "/tmp", "/dev/shm", *([self.outputs_dir] if self.outputs_dir else [])]
        try:
            folder = AttemptFolder(files.private_folder(roots, "gpuflow-attempt"))
            folder.prepare()
            return folder
        except OSError as refusal:
            say(f"no folder can be made to tell the command to stop: {refusal}; it is told by signal only")
            return None

    def _variables(self) -> dict[str, str]:
        options = self.options
        # What one supervisor is told is not for another one inside its command.
        mine = {*(f"GPUFLOW_{name}" for name in _OWN), attempt_folder.VARIABLE}
        environ = {
            key: value
            for key, value in self.environ.items()
            if key not in mine and not key.startswith(table.VARIABLE_PREFIX)
        }
        environ["GPUFLOW_ATTEMPT"] = str(self.ledger.number)
        environ["GPUFLOW_INTERRUPTIONS"] = str(self.history.counts.interruptions)
        for name in ("ATTEMPT", "INTERRUPTIONS") if options.gang is not None else ():
            # The launcher counts the attempts of a gang; its ranks may have no records of their own.
            environ[f"GPUFLOW_{name}"] = self.environ.get(f"GPUFLOW_GANG_{name}") or environ[f"GPUFLOW_{name}"]
        if self.outputs_dir:
            environ["GPUFLOW_OUTPUTS"] = os.path.abspath(self.outputs_dir)
        environ["GPUFLOW_GRACE"] = f"{self.grace[0]:.3f}"
        if self.folder is not None:
            environ[attempt_folder.VARIABLE] = self.folder.stop
            environ[progress.VARIABLE] = self.folder.progress
        family = table.family(options, self.ledger.base)
        environ[container.VARIABLE] = container.mark(family, self.ledger.id, self.environ)
        if options.timeout is not None:
            environ["GPUFLOW_DEADLINE"] = f"{time.time() + options.timeout:.0f}"
        if self.directory is not None:
            environ["GPUFLOW_CHECKPOINT_DIR"] = self.directory.path
            environ["GPUFLOW_SYNC"] = "0" if self.store is not None else "1"
        if self.restored is not None and self.restored.path is not None:
            environ["GPUFLOW_RESUME_FROM"] = self.restored.path
            if options.resume_env:
                environ[options.resume_env] = self.restored.path
        return environ
