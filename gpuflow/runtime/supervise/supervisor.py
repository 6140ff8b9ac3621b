"""One attempt: look at the records of the run, restore, run the command, keep its checkpoints, and say how it ended.

With `--repeat` a failed command is started again in the same container, for engines that start no failed pod again.
Each start is an attempt like any other: it reads the records, takes a number, restores the newest checkpoint and has
its own timeout and outputs. Only what happens between two attempts is new: a wait, which a stop signal ends. An attempt
that was interrupted, or that is final, is never repeated here.
"""

from __future__ import annotations

import time

from gpuflow.runtime.artifacts import input_options
from gpuflow.runtime.base import attempt_folder, child, units
from gpuflow.runtime.base.attempt_folder import identity_of
from gpuflow.runtime.base.child import say, stop_is_pending
from gpuflow.runtime.base.options import BadOption, Options, identity_of_options
from gpuflow.runtime.base.outcomes import (
    EXIT_FINAL,
    EXIT_INTERRUPTED,
    EXIT_RUNTIME,
    FINAL,
    INTERRUPTED,
    NEVER_STARTED,
    RETRYABLE,
    SUCCEEDED,
    Ending,
    exit_code,
)
from gpuflow.runtime.base.records import Success, UnknownFormat
from gpuflow.runtime.base.signing import read_keys
from gpuflow.runtime.state import attempts, directory_owner
from gpuflow.runtime.state.attempts import COSTS, TOLD_TO_STOP, Counts, History
from gpuflow.runtime.state.checkpoint_dir import Directory
from gpuflow.runtime.state.directory_owner import Occupancy, records_folder
from gpuflow.runtime.state.ledger import Ledger, OwnershipLost, TooLarge
from gpuflow.runtime.stores import storage_timeout
from gpuflow.runtime.stores.open import open_store
from gpuflow.runtime.stores.storage_timeout import Limit, persist
from gpuflow.runtime.stores.store import Memory, StorageError, Store
from gpuflow.runtime.supervise.running import CommandRun, StopRequested

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from gpuflow.runtime.artifacts.delivery import Delivery
    from gpuflow.runtime.artifacts.input_options import Input
    from gpuflow.runtime.base.records import KeptOutput
    from gpuflow.runtime.checkpoints.keeper import Keeper
    from gpuflow.runtime.checkpoints.restore import RestoreResult
    from gpuflow.runtime.supervise.diagnosis import LastAttempt

_POLL = 0.2
"""How often a wait looks whether it is still wanted."""
_LONGEST = float(2**31)


class Repeats:
    """How often this process may start the command again, and how long it waits before each time."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.records = Memory()
        """Where there is no place that outlives the container, the attempts are counted here."""
        self.done = 0
        self.most: int = options.retries if options.retries is not None else options.failures
        self._longest = _LONGEST if options.backoff_max is None else float(options.backoff_max)
        self._wait = min(self._longest, float(options.backoff))

    def wait(self) -> bool:
        """Wait for the next attempt; False when told to stop meanwhile."""
        self.done += 1
        # What the engine told was about the attempt before this process.
        self.options = Options({**self.options.__dict__, "last": None}, self.options.command)
        when = f"in {units.format_seconds(self._wait)}" if self._wait else "now"
        say(f"the command is started again {when}, in this container ({self.done} of at most {self.most} times)")
        until = time.monotonic() + self._wait
        self._wait = min(self._longest, self._wait * self.options.backoff_factor)
        while not stop_is_pending():
            left = until - time.monotonic()
            if left <= 0:
                return True
            time.sleep(min(_POLL, left))
        return False


def run(options: Options, environ: Mapping[str, str]) -> int:
    """One attempt, and with `--repeat` those that follow its failures here; the exit code of the last."""
    prepare(options)
    if not options.repeat:
        return run_attempt(Attempt(options, environ))
    repeats = Repeats(options)
    while True:
        attempt = Attempt(repeats.options, environ, repeats.records)
        code = run_attempt(attempt)
        attempt.leave()
        # The records count too; this holds where they could not be written.
        if not (attempt.failed and repeats.done < repeats.most):
            return code
        if not repeats.wait():
            return attempt.stop_waiting()


def prepare(options: Options) -> None:
    """What this process does once, before its first attempt."""
    child.block_signals()
    storage_timeout.CALL_DEFAULTS.seconds, storage_timeout.CALL_DEFAULTS.say = options.storage_timeout, say


def run_attempt(attempt: Attempt) -> int:
    """One attempt from its beginning to its end, whatever happens: its exit code."""
    try:
        return attempt.run()
    except StopRequested:
        return attempt.close(attempt.stop_ending())
    except (BadOption, UnknownFormat) as refusal:
        return attempt.refuse(str(refusal))
    except StorageError as refusal:
        return attempt.refuse(f"storage cannot be used: {refusal}")
    except OSError as refusal:
        return attempt.refuse(f"the supervisor could not work: {type(refusal).__name__}: {refusal}")
    except Exception as fault:
        # Ours, and never the command's: an exit code of 1 would be counted as its failure.
        return attempt.refuse(f"a bug in gpuflow-run: {type(fault).__name__}: {fault}")
    finally:
        attempt.clean_up()


class Attempt:
    """What one attempt knows while it runs."""

    def __init__(self, options: Options, environ: Mapping[str, str], memory: Memory | None = None) -> None:
        """`memory`: the records of all attempts in this process, where there is no other place for them."""
        self.options, self.environ, self._memory = options, environ, memory
        self.failed = False
        """Whether it ended with a failure that its budget allows."""
        self.directory: Directory | None = None
        self.store: Store | None = None
        self.ledger: Ledger | None = None
        self.keeper: Keeper | None = None
        self.delivery: Delivery | None = None
        self._lasting = True
        self._own_code: int | None = None
        self._told_at: float | None = None
        self._outputs: Mapping[str, KeptOutput] = {}
        """What was delivered."""
        self._last: tuple[LastAttempt | None, ...] = ()
        """What the engine said, once it was read."""

    def run(self) -> int:
        from gpuflow.runtime.artifacts.delivery import Delivery
        from gpuflow.runtime.artifacts.outputs import BadOutput

        options = self.options
        inputs = input_options.parse(options)
        delivery = Delivery(options, self.environ, say, self._persist, self._add_progress, open_place)
        self.delivery = delivery
        ledger = self._open_ledger()
        # Artifacts without a URI of their own are kept beside the checkpoints.
        store = self.store if self.store is not None else ledger.store
        # Without records nobody knows which of the others there are dead: nothing of theirs is touched.
        root = delivery.root()
        ledger.artifacts = root if self._lasting else None
        self._gather()
        begun = self._begin(ledger)
        if isinstance(begun, Success):
            return self._deliver_again(delivery, begun, ledger, store)
        history = begun
        if history.final is not None and options.after_final == "stop":
            return self._refuse_final(ledger, history)
        self._best_effort(ledger.tidy)
        # Attempts that left no word are found out only now.
        if (spent := attempts.spent_budget(options, ledger.counts)) is not None:
            return self.close(Ending(NEVER_STARTED, spent, final=True))  # costs nothing: the command did not run
        self._free_of_charge(ledger, lambda: delivery.try_places(ledger))
        restored = self._restore(ledger, history)
        if inputs:
            self._bring(inputs, ledger)
        delivery.look()
        running = self._make_run(delivery.folder, ledger, history, restored)
        running.outputs = delivery.declared
        try:
            ending = self._gang_ending(running, running.run())
        finally:
            self.keeper = running.keeper
        if ending.outcome != SUCCEEDED:
            return self.close(self._ending_unless_lost(ledger, ending))
        self._own_code = ending.own_code
        if running.deadline is not None:
            # The notice came during the last upload: the grace has begun, and does not begin again.
            self._told_at = running.deadline - running.grace[1]
        try:
            kept = delivery.collect(ledger, store, lasting=self._lasting)
            self._fit(kept)
            marker: Success = self._persist(lambda: ledger.succeed(kept))
            delivery.deliver(marker, ledger, store)
            self._outputs = marker.outputs
            if marker.id == ledger.id and delivery.kept_in:
                self._best_effort(lambda: delivery.remove_earlier(ledger))
        except (BadOutput, TooLarge) as refusal:
            return self.close(self._ending_unless_lost(ledger, Ending(RETRYABLE, str(refusal), 0)))
        except OwnershipLost as loss:
            return self.close(Ending(INTERRUPTED, str(loss), 0))
        return self.close(ending)

    # -- where a gang does more

    def _gather(self) -> None:
        """Before anything is counted."""

    def _for_all(self, ledger: Ledger) -> bool:
        """Whether others must be able to get the checkpoint that is restored, too."""
        return False

    def _make_run(self, folder: str, ledger: Ledger, history: History, restored: RestoreResult | None) -> CommandRun:
        return CommandRun(self.options, self.environ, folder, self.directory, self.store, ledger, history, restored)

    def _gang_ending(self, running: CommandRun, ending: Ending) -> Ending:
        """How the attempt ended, now that its command has."""
        return ending

    def _fit(self, kept: Mapping[str, KeptOutput]) -> None:
        """BadOutput for outputs that cannot be handed on."""

    def _more_facts(self) -> dict[str, Any]:
        """Further facts for the termination message."""
        return {}

    def _deliver_again(self, delivery: Delivery, done: Success, ledger: Ledger, store: Store) -> int:
        return delivery.deliver_again(done, ledger, store)

    # -- the rest

    def _ending_unless_lost(self, ledger: Ledger, ending: Ending) -> Ending:
        """The ending; an interruption when another attempt has taken over, so that it does not count as a failure."""
        if self._lasting and (ending.by_itself or ending.outcome != INTERRUPTED):
            try:
                self._best_effort(ledger.assert_owner)
            except OwnershipLost as loss:
                return Ending(INTERRUPTED, f"{loss}; the command had ended with {ending.own_code}", ending.own_code)
        return ending

    def clean_up(self) -> None:
        """Leave nothing in temporary places that nobody looks for."""
        if self.delivery is not None:
            self.delivery.clean_up()

    def leave(self) -> None:
        """Give the directory back: the next attempt in this process takes it as any other would."""
        if self.directory is not None and self.directory.occupancy is not None:
            self.directory.occupancy.leave()

    def stop_waiting(self) -> int:
        """Told to stop before the next attempt began: nothing ran, so nothing more is counted."""
        sentence = "told to stop while waiting for the next attempt"
        say(f"{sentence} (exit code {EXIT_INTERRUPTED})")
        return self._last_words(sentence, INTERRUPTED, EXIT_INTERRUPTED, because=sentence)

    def _begin(self, ledger: Ledger) -> History | Success:
        """Become the newest attempt, or find that there is nothing to do. When someone else came, all is read again."""
        options = self.options
        while True:
            done: Success | None = self._persist(ledger.success)
            if done is not None and options.after_success == "skip":
                return done
            history: History = self._persist(ledger.history)
            if history.previous is not None and history.final is None and done is None:
                history = self._settle_last(ledger, history)
            if history.final is not None and options.after_final == "stop" and done is None:
                return history
            renew = history.final is not None
            if self._persist(lambda h=history, d=done, r=renew: ledger.claim(h, fresh=d is not None, renew=r)):
                break
        # Between the look and the claim someone may have succeeded, or ended for good.
        again: Success | None = self._persist(ledger.success)
        if again is not None:
            self._best_effort(lambda: ledger.end(NEVER_STARTED, final=False, exit_code=0, because="succeeded already"))
            return again
        if done is not None:
            return History(history.last, Counts(), None, None, since=ledger.since, fresh=True)
        if renew:
            counts = Counts(0, 0, history.counts.seconds)
            return History(history.last, counts, None, history.last_id, since=history.since, kept=history.kept)
        looked: History = self._persist(lambda: ledger.look_again(history))
        return looked

    def _settle_last(self, ledger: Ledger, history: History) -> History:
        """What the engine, or the memory of the attempt before, says about how that one ended: before it is counted."""
        from gpuflow.runtime.supervise import diagnosis

        if not self._last:
            self._last = (diagnosis.read_last(self.options.last, say),)
        if not self._persist(lambda: diagnosis.settle_last(ledger, history, self._last[0])):
            return history
        again: History = self._persist(ledger.history)
        return again

    def stop_ending(self) -> Ending:
        """Told to stop while the supervisor itself was at work."""
        self._must_stop()  # the grace has begun
        if self._own_code is None:
            return Ending(INTERRUPTED, "told to stop before the command ran", until=self._deadline(), told=True)
        because = f"told to stop after the command had ended with {self._own_code}, before its success could be stored"
        return Ending(INTERRUPTED, because, self._own_code, until=self._deadline(), told=True)

    def refuse(self, sentence: str) -> int:
        """Exit with 78. The records leave the attempt's outcome open, since it is not the command's failure."""
        say(sentence)
        return self._last_words(sentence, RETRYABLE, EXIT_RUNTIME, because=sentence)

    def _last_words(self, sentence: str, outcome: str, code: int, **facts: Any) -> int:
        """Leave the termination message; the exit code in it."""
        from gpuflow.runtime.base import termination_message

        return termination_message.write(self.options.termination_log, sentence, outcome, code, **facts)

    def close(self, ending: Ending) -> int:
        """Count the ending, tell everyone, and give the exit code."""
        options, ledger = self.options, self.ledger
        counts = ledger.counts.with_outcome(ending.outcome) if ledger else None
        final = ending.final or ending.outcome == FINAL
        because = ending.because
        if ledger and counts is not None and not final and ending.outcome != SUCCEEDED:
            spent = attempts.spent_budget(options, counts, ledger.counts)
            if spent is not None and not (ending.told and attempts.may_be_failure(options, ledger.counts)):
                final = True
                because += f"; {spent}"
        code = exit_code(ending, final)
        self.failed = not final and COSTS.get(ending.outcome) == "failures"
        if ledger is not None and ledger.number and ending.outcome != SUCCEEDED:
            kept = self.keeper.kept if self.keeper is not None else None
            cause = TOLD_TO_STOP if ending.told else None
            self._best_effort(
                lambda: ledger.end(
                    ending.outcome, final=final, exit_code=code, because=because, checkpoint=kept, cause=cause
                ),
                self._time_for_the_end(ending),
            )
        outcome = FINAL if final else ending.outcome
        facts: dict[str, Any] = {"because": because}
        if ending.own_code not in (None, code):
            facts["own_exit_code"] = ending.own_code
        if ledger is not None and counts is not None:
            facts.update(attempt=ledger.number, failures=counts.failures, interruptions=counts.interruptions)
        if self.keeper is not None:
            facts["checkpoint"] = self.keeper.kept
            if self.keeper.trouble:
                facts["storage"] = self.keeper.trouble[:500]
        facts.update(self._more_facts())
        number = f"attempt {ledger.number} " if ledger is not None and ledger.number else ""
        sentence = f"{number}{outcome}: {because} (exit code {code})"
        if ending.outcome != SUCCEEDED:
            say(sentence)
        return self._last_words(sentence, outcome, code, **facts)

    def _open_ledger(self) -> Ledger:
        """Open the records: in --state, the store, the checkpoint directory, or only in memory."""
        options = self.options
        keys = read_keys(options.key_file, say)
        base = identity_of_options(options)
        if options.checkpoint_dir:
            own = identity_of(base) if options.own_folder else ""
            self.directory = Directory(options.checkpoint_dir, options.marker, own)
            self.directory.follow = options.follow
            if own:
                say(f"checkpoints of this item are in {self.directory.path} ($GPUFLOW_CHECKPOINT_DIR)")
        self.store = open_place(options.store) if options.store else None
        place: Store
        if options.state:
            place = open_place(options.state)
        elif self.store is not None:
            place = self.store
        elif self.directory is not None and options.run_id:
            place = records_folder(options, base)
        else:
            place, self._lasting = self._memory if self._memory is not None else Memory(), False
        if keys is not None and self.directory is not None and self.store is None:
            say("there is no --store: the run's records are signed, the checkpoints in the directory are not")
        self.ledger = Ledger(place, base, self.store, say, keys)
        self.ledger.engine_attempt = attempt_folder.engine_attempt(options.engine_attempt, say)
        return self.ledger

    def _restore(self, ledger: Ledger, history: History) -> RestoreResult | None:
        if self.directory is not None:
            try:
                Occupancy(self.directory, ledger, say, arbitrated=bool(self.options.run_id)).enter()
            except BadOption as refusal:
                self._record_never_started(ledger, str(refusal))
                raise
        directory_owner.end_orphans(self.options, self.directory, ledger, history)
        if self.directory is None:
            return None
        from gpuflow.runtime.checkpoints import restore, transfer

        for_all = self._for_all(ledger)
        try:
            restored = restore.Restore(
                self.directory,
                ledger,
                history,
                self.store,
                Limit(self.options.storage_timeout),
                lambda: not child.stop_is_pending(),
                say,
                for_all=for_all,
                parts=for_all and self.options.sharded,
            ).newest()
        except (transfer.TransferAbandoned, StorageError):
            if child.stop_is_pending():
                raise StopRequested() from None
            raise
        if restored.path is not None:
            took = f" in {units.format_seconds(restored.seconds)}" if restored.seconds > 0.05 else ""
            say(f"attempt {ledger.number} resumes from {restored.name} ({restored.how}){took}")
        return restored

    def _bring(self, inputs: list[Input], ledger: Ledger) -> None:
        """Place the inputs. A failure here is not the command's, and uses no retry budget."""
        from gpuflow.runtime.artifacts.inputs import Inputs

        options = self.options
        beat = self.directory.folder.beat if self.directory is not None else lambda: None
        bringing = Inputs(
            inputs, ledger.keys, options.storage_timeout, open_place, say, lambda: not child.stop_is_pending(), beat
        )
        bringing.later = ledger.number > 1
        self._free_of_charge(ledger, bringing.bring)

    def _free_of_charge(self, ledger: Ledger, action: Callable[[], object]) -> None:
        """What must be before the command can start: where it cannot be, that costs no budget."""
        from gpuflow.runtime.checkpoints import transfer

        try:
            action()
        except (transfer.TransferAbandoned, StorageError, BadOption) as refusal:
            if child.stop_is_pending():
                raise StopRequested() from None
            self._record_never_started(ledger, str(refusal))
            raise

    def _record_never_started(self, ledger: Ledger, because: str) -> None:
        """The command did not run."""
        self._best_effort(lambda: ledger.end(NEVER_STARTED, final=False, exit_code=EXIT_RUNTIME, because=because))

    def _refuse_final(self, ledger: Ledger, history: History) -> int:
        assert history.final is not None
        sentence = (
            f"attempt {history.last} was final: {history.final.because}; start a new run, or forget this one "
            "with gpuflow-run forget"
        )
        if ledger.number:
            # It became final while this attempt was claimed: the newest word must say so too.
            return self.close(Ending(NEVER_STARTED, sentence, final=True))
        say(sentence)
        return self._last_words(sentence, FINAL, EXIT_FINAL, because=sentence, attempt=history.last)

    def _persist(self, action: Any, limit: Limit | None = None, settled: Callable[[], int] = lambda: 0) -> Any:
        """A thing that must be stored or read: tried again for a while. Told to stop, it is given up at once before
        the command ran, and at the end of the grace after it."""
        try:
            limit = limit or Limit(self.options.storage_timeout)
            return persist(action, limit, self._must_stop, settled=settled, say=say)
        except StorageError:
            if self._must_stop():
                raise StopRequested() from None
            raise

    def _add_progress(self, limit: Limit, count: int) -> None:
        """So many bytes have passed."""
        limit.progress(count)
        if self._must_stop():
            raise StopRequested()

    def _must_stop(self) -> bool:
        if self._told_at is None and child.stop_is_pending():
            self._told_at = time.monotonic()
        if self._told_at is None:
            return False
        return self._own_code is None or time.monotonic() >= self._deadline()

    def _is_too_late(self) -> bool:
        """Whether too little of the grace period is left to write the termination message."""
        return self._must_stop() and time.monotonic() >= self._deadline() + min(0.5, self.options.grace / 20)

    def _deadline(self) -> float:
        """Once told to stop: when the grace is over, less what the last words take."""
        grace: float = self.options.grace
        return (self._told_at or time.monotonic()) + max(0.0, grace - min(1.0, grace / 10))

    def _time_for_the_end(self, ending: Ending) -> float:
        """How long the end of an attempt is tried to be written. One that is missing reads as an interruption."""
        limit: float = self.options.storage_timeout
        grace: float = self.options.grace
        if ending.until is not None:
            return max(min(0.5, grace / 20), min(limit, ending.until - time.monotonic()))
        return min(5.0, limit) if ending.outcome == INTERRUPTED else limit

    def _best_effort(self, action: Any, seconds: float = 5.0) -> None:
        limit = Limit(min(seconds, self.options.storage_timeout))
        try:
            persist(action, limit, self._is_too_late)
        except StorageError as refusal:
            say(f"storage failed: {refusal}")


def open_place(where: str) -> Store:
    """A store, or the sentence that says what is missing."""
    try:
        return open_store(where)
    except Exception as refusal:
        if type(refusal).__name__ == "NoDriver":
            raise BadOption(str(refusal)) from None
        raise StorageError(f"{where}: {refusal}") from refusal
