"""One attempt: open the book, restore, run the command, keep its checkpoints, and say how it ended."""

from __future__ import annotations

import os
import time

from gpuflow.runtime import child as children
from gpuflow.runtime import identity, orphans, units
from gpuflow.runtime.attempt_folder import identity_of
from gpuflow.runtime.child import say
from gpuflow.runtime.directory import Directory, discard
from gpuflow.runtime.ending import Ending, exit_code
from gpuflow.runtime.ledger import History, Ledger, Lost
from gpuflow.runtime.options import BadOption
from gpuflow.runtime.outcomes import (
    EXIT_FINAL,
    EXIT_RUNTIME,
    FINAL,
    INTERRUPTED,
    NEVER_STARTED,
    RETRYABLE,
    SUCCEEDED,
)
from gpuflow.runtime.owner import Occupancy
from gpuflow.runtime.running import Running, Stopped
from gpuflow.runtime.store import Folder, StorageError, Store, open_store, persist

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gpuflow.runtime.keeper import Keeper
    from gpuflow.runtime.options import Options
    from gpuflow.runtime.restoring import Restored


def run(options: Options, environ: Mapping[str, str]) -> int:
    """One attempt; the exit code."""
    children.block_signals()
    attempt = Attempt(options, environ)
    try:
        return attempt.run()
    except Stopped:
        return attempt.close(Ending(INTERRUPTED, "told to stop before the command ran"))
    except BadOption as refusal:
        return attempt.refuse(str(refusal))
    except (StorageError, OSError) as refusal:
        return attempt.refuse(f"storage cannot be used: {refusal}")
    finally:
        if attempt.outputs_dir and not (options.outputs_dir or options.output):
            discard(attempt.outputs_dir)


class Attempt:
    """What one attempt knows while it runs."""

    def __init__(self, options: Options, environ: Mapping[str, str]) -> None:
        self.options, self.environ = options, environ
        self.until = time.monotonic() + options.storage_timeout
        self.directory: Directory | None = None
        self.store: Store | None = None
        self.ledger: Ledger | None = None
        self.keeper: Keeper | None = None
        self.outputs_dir = options.outputs_dir or ""

    def run(self) -> int:
        from gpuflow.runtime import outputs

        options = self.options
        declared = outputs.parse(options.output)
        artifacts = outputs.pairs(options.artifact, "artifact")
        places = outputs.pairs(options.deliver, "deliver")
        self.outputs_dir = options.outputs_dir or os.path.join(
            self.environ.get("TMPDIR", "/tmp"), f"gpuflow-{os.getpid()}"
        )
        os.makedirs(self.outputs_dir, exist_ok=True)
        ledger = self._open()
        done = self._stored(ledger.success)
        if done is not None and options.after_success == "skip":
            outputs.deliver(done["outputs"], options.engine, self.outputs_dir, places)
            say(f"attempt {done['attempt']} has succeeded already; its outputs are given again")
            return 0
        if done is not None:
            self._stored(lambda: ledger.forget(attempts=True))
        history = self._stored(ledger.history)
        if history.final is not None:
            if options.after_final == "stop":
                return self._still_final(history)
            history.counts.failures = history.counts.interruptions = 0
        self._stored(lambda: ledger.claim(history))
        self._best_effort(ledger.tidy)
        spent = self._spent(history)
        if spent is not None:
            return self.close(Ending(NEVER_STARTED, spent, final=True))  # costs nothing: the command did not run
        restored = self._restore(ledger, history)
        running = Running(
            options, self.environ, self.outputs_dir, self.directory, self.store, ledger, history, restored
        )
        try:
            ending = running.run()
        finally:
            self.keeper = running.keeper
        if ending.outcome != SUCCEEDED:
            return self.close(ending)
        try:
            marker = outputs.collect(declared, self.outputs_dir, artifacts)
            outputs.deliver(marker, options.engine, self.outputs_dir, places)
            self._stored(lambda: ledger.succeed(marker))
        except outputs.BadOutput as refusal:
            return self.close(Ending(RETRYABLE, str(refusal), 0))
        except Lost as loss:
            return self.close(Ending(INTERRUPTED, str(loss), 0))
        return self.close(ending)

    def refuse(self, sentence: str) -> int:
        """The runtime could not work: 78. What the book says about the attempt stays open: it was no one's failure."""
        from gpuflow.runtime import farewell

        say(sentence)
        facts = {"outcome": RETRYABLE, "exit_code": EXIT_RUNTIME, "because": sentence}
        farewell.write(self.options.termination_log, f"gpuflow-run: {sentence}", facts)
        return EXIT_RUNTIME

    def close(self, ending: Ending) -> int:
        """Count the ending, tell everyone, and give the exit code."""
        from gpuflow.runtime import farewell

        options, ledger = self.options, self.ledger
        counts = ledger.counts.after(ending.outcome) if ledger else None
        final = ending.final or ending.outcome == FINAL
        because = ending.because
        if ledger and counts is not None and not final and ending.outcome != SUCCEEDED:
            for budget in ("failures", "interruptions"):
                most, used = getattr(options, budget), getattr(counts, budget)
                if most is not None and used > most and used > getattr(ledger.counts, budget):
                    final = True
                    because += f"; the budget of {most} {budget} is spent"
        code = exit_code(ending, final)
        if ledger is not None and ledger.number and ending.outcome != SUCCEEDED:
            self._best_effort(lambda: ledger.end(ending.outcome, final=final, exit_code=code, because=because))
        facts: dict[str, Any] = {"outcome": FINAL if final else ending.outcome, "exit_code": code, "because": because}
        if ending.own_code not in (None, code):
            facts["own_exit_code"] = ending.own_code
        if ledger is not None and counts is not None:
            facts.update(attempt=ledger.number, failures=counts.failures, interruptions=counts.interruptions)
        if self.keeper is not None:
            facts["checkpoint"] = self.keeper.kept
            if self.keeper.trouble:
                facts["storage"] = self.keeper.trouble[:500]
        number = f"attempt {ledger.number} " if ledger is not None and ledger.number else ""
        sentence = f"{number}{facts['outcome']}: {because} (exit code {code})"
        if ending.outcome != SUCCEEDED:
            say(sentence)
        farewell.write(options.termination_log, f"gpuflow-run: {sentence}", facts)
        return code

    def _open(self) -> Ledger:
        """The book: in the state, the store, or hidden in the checkpoint directory; else for this attempt only."""
        options = self.options
        base = identity.path(options.pipeline, options.run_id or "unnamed", options.step, options.item)
        if options.checkpoint_dir:
            own = identity_of(base) if options.own_folder else ""
            self.directory = Directory(os.path.join(options.checkpoint_dir, own), options.marker)
        from_url = _open_place
        self.store = from_url(options.store) if options.store else None
        if options.state:
            book = from_url(options.state)
        elif self.store is not None:
            book = self.store
        elif self.directory is not None and options.run_id:
            book = Folder(os.path.join(self.directory.hidden, "state"))
        else:
            book = Folder(os.path.join(self.outputs_dir, ".gpuflow"), lasting=False)
        self.ledger = Ledger(book, base)
        return self.ledger

    def _restore(self, ledger: Ledger, history: History) -> Restored | None:
        if self.directory is not None:
            Occupancy(self.directory, ledger, say, arbitrated=bool(self.options.run_id)).enter()
        orphans.end_all(self.options, self.directory, ledger, history)
        if self.directory is None:
            return None
        from gpuflow.runtime import restoring, transfer

        try:
            restored = restoring.restore(
                self.directory, ledger, history, self.store, self.until, lambda: not children.stop_is_pending(), say
            )
        except (transfer.Abandoned, StorageError):
            if children.stop_is_pending():
                raise Stopped() from None
            raise
        if restored.path is not None:
            took = f" in {units.spoken(restored.seconds)}" if restored.seconds > 0.05 else ""
            say(f"attempt {ledger.number} resumes from {restored.name} ({restored.how}){took}")
        return restored

    def _spent(self, history: History) -> str | None:
        """Why no further attempt may run: attempts that left no word are found out only now."""
        for budget in ("failures", "interruptions"):
            most, used = getattr(self.options, budget), getattr(history.counts, budget)
            if most is not None and used > most:
                return f"{used} {budget} so far; the budget of {most} is spent"
        return None

    def _still_final(self, history: History) -> int:
        from gpuflow.runtime import farewell

        assert history.final is not None
        sentence = (
            f"attempt {history.last} was final: {history.final.get('because')}; start a new run, or forget this one "
            "with gpuflow-run forget"
        )
        say(sentence)
        facts = {"outcome": FINAL, "exit_code": EXIT_FINAL, "because": sentence, "attempt": history.last}
        farewell.write(self.options.termination_log, f"gpuflow-run: {sentence}", facts)
        return EXIT_FINAL

    def _stored(self, action: Any) -> Any:
        """A thing that must be stored or read: tried again for a while, and given up at once when told to stop."""
        until = max(self.until, time.monotonic() + self.options.storage_timeout)
        try:
            return persist(action, until, children.stop_is_pending)
        except StorageError:
            if children.stop_is_pending():
                raise Stopped() from None
            raise

    def _best_effort(self, action: Any) -> None:
        try:
            persist(action, time.monotonic() + min(5.0, self.options.storage_timeout))
        except StorageError as refusal:
            say(f"storage failed: {refusal}")


def _open_place(where: str) -> Store:
    """A store, or the sentence that says what is missing."""
    try:
        return open_store(where)
    except Exception as refusal:
        if type(refusal).__name__ == "NoDriver":
            raise BadOption(str(refusal)) from None
        raise StorageError(f"{where}: {refusal}") from refusal
