"""The command while it runs: its variables, its signals, its checkpoints, and the time left when told to stop."""

from __future__ import annotations

import os
import signal
import time

from gpuflow.runtime import child as children
from gpuflow.runtime import interval, memory
from gpuflow.runtime.child import say
from gpuflow.runtime.ending import Ending
from gpuflow.runtime.outcomes import FINAL, INTERRUPTED, RETRYABLE, SUCCEEDED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuflow.runtime.directory import Directory
    from gpuflow.runtime.keeper import Keeper
    from gpuflow.runtime.ledger import History, Ledger
    from gpuflow.runtime.options import Options
    from gpuflow.runtime.restoring import Restored
    from gpuflow.runtime.store import Store


class Stopped(Exception):
    """Told to stop before the command ran."""


class Running:
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
        restored: Restored | None,
    ) -> None:
        self.options, self.environ, self.outputs_dir = options, environ, outputs_dir
        self.directory, self.store = directory, store
        self.ledger, self.history, self.restored = ledger, history, restored
        self.keeper: Keeper | None = None

    def run(self) -> Ending:
        """Start it, keep its checkpoints, and say how it ended."""
        options = self.options
        if children.stop_is_pending():
            raise Stopped()
        environ = self._variables()
        if self.directory is not None:
            from gpuflow.runtime.keeper import Keeper

            self.keeper = Keeper(options, self.directory, self.ledger, self.store, say, children.wake)
            environ["GPUFLOW_EVERY"] = f"{self.keeper.every:.3f}"
            self.keeper.start()
        kills = memory.oom_kills()
        try:
            child = children.Child(options.command, environ)
        except (FileNotFoundError, PermissionError, NotADirectoryError) as refusal:
            return Ending(FINAL, f"the command cannot be started: {options.command[0]}: {refusal.strerror}", 127)
        if self.keeper is not None and self.directory is not None:
            from gpuflow.runtime import restoring

            restoring.write_owner(self.directory, self.ledger, child.pid if child.own_group else None)
        told = self._supervise(child)
        child.drain()
        assert child.code is not None
        if self.keeper is not None:
            self.keeper.finish(told)
            self._await_keeper(self.keeper, told)
            if self.keeper.lost is not None:
                return Ending(INTERRUPTED, self.keeper.lost, child.code)
        if told is not None:
            return Ending(INTERRUPTED, f"told to stop; the command ended with {child.code}", child.code)
        if child.code == 0:
            return Ending(SUCCEEDED, "the command ended well", 0)
        from gpuflow.runtime import diagnosis

        final, retryable = options.final_exit_codes, options.retryable_exit_codes
        verdict = diagnosis.diagnose(child.code, child.last_words, memory.oom_kills() - kills, final, retryable)
        # A guess from words may end a step for good only where the supervisor is the one who counts.
        guessed = verdict.outcome == FINAL and child.code not in final and retryable is None
        outcome = RETRYABLE if guessed and options.failures is None else verdict.outcome
        return Ending(outcome, f"exit code {child.code}: {verdict.because}", child.code, by_itself=True)

    def _supervise(self, child: children.Child) -> float | None:
        """Until the program has ended. Returns the moment by which everything must be over, once told to stop."""
        options = self.options
        deadline: float | None = None
        killed = False
        while child.code is None or (deadline is not None and not killed and child.group_lives()):
            if self.keeper is not None and self.keeper.lost is not None and deadline is None:
                say(f"{self.keeper.lost}; ending the command")
                deadline = self._tell(child)
            limit = 3600.0
            if deadline is not None:
                uploads = self.keeper is not None and self.keeper.store is not None
                known = self.keeper.upload_seconds if self.keeper is not None else None
                reserve = interval.upload_reserve(options.grace, known) if uploads else 0.5
                limit = deadline - reserve - time.monotonic()
                if limit <= 0 and not killed:
                    child.send(signal.SIGKILL)
                    killed = True
                    limit = 5.0
            if child.code is None:
                heard = child.wait(limit)
            else:
                # The first process of the group is gone; the rest may still be saving.
                heard = None
                time.sleep(0.05)
                child.reap()
            if heard is not None and deadline is None:
                deadline = self._tell(child)
            elif heard == signal.SIGINT and not killed:
                child.send(signal.SIGKILL)
                killed = True
        return deadline

    def _tell(self, child: children.Child) -> float:
        """Tell the program to stop, and the keeper that there is no more time than this."""
        grace: float = self.options.grace
        deadline = time.monotonic() + max(0.2, grace - min(1.0, grace / 10))
        if self.directory is not None:
            _write_stop(self.directory, deadline)
        child.send(signal.SIGTERM)
        if self.keeper is not None:
            self.keeper.hurry(deadline)
        return deadline

    def _await_keeper(self, keeper: Keeper, told: float | None) -> None:
        """The last upload. A stop that comes meanwhile shortens it."""
        while keeper.busy:
            if told is None and children.stop_is_pending():
                told = time.monotonic() + self.options.grace - min(1.0, self.options.grace / 10)
                keeper.finish(told)
            if told is not None and time.monotonic() > told + 0.5:
                return
            time.sleep(0.01)

    def _variables(self) -> dict[str, str]:
        options = self.options
        environ = {key: value for key, value in self.environ.items() if key != "GPUFLOW_RESUME_FROM"}
        environ["GPUFLOW_ATTEMPT"] = str(self.ledger.number)
        environ["GPUFLOW_INTERRUPTIONS"] = str(self.history.counts.interruptions)
        environ["GPUFLOW_OUTPUTS"] = os.path.abspath(self.outputs_dir)
        reserve = interval.upload_reserve(options.grace, None) if self.store is not None else 0.5
        environ["GPUFLOW_GRACE"] = f"{max(0.1, options.grace - reserve):g}"
        environ.pop("GPUFLOW_DEADLINE", None)
        if options.timeout is not None:
            environ["GPUFLOW_DEADLINE"] = f"{time.time() + options.timeout:.0f}"
        if self.directory is not None:
            environ["GPUFLOW_CHECKPOINT_DIR"] = self.directory.path
            environ["GPUFLOW_STOP"] = self.directory.folder.stop
            environ["GPUFLOW_SYNC"] = "0" if self.store is not None else "1"
        if self.restored is not None and self.restored.path is not None:
            environ["GPUFLOW_RESUME_FROM"] = self.restored.path
            if options.resume_env:
                environ[options.resume_env] = self.restored.path
        return environ


def _write_stop(directory: Directory, deadline: float) -> None:
    """For processes that do not get the signal, such as the workers of a launcher."""
    path = directory.folder.stop
    try:
        with open(f"{path}.part", "w", encoding="utf-8") as file:
            file.write(f"{deadline:.3f}\n")
        os.replace(f"{path}.part", path)
    except OSError as refusal:
        say(f"cannot write {path}: {refusal}")
