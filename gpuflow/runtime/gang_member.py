"""A rank other than 0: it restores what rank 0 restores, runs the command, reports, and exits as the gang does."""

from __future__ import annotations

import hashlib
import os

from gpuflow.runtime import child as children
from gpuflow.runtime import farewell, files, identity, input_options, orphans, supervisor
from gpuflow.runtime import gang_words as words
from gpuflow.runtime.alive import Alive, remove_if_dead
from gpuflow.runtime.attempt_folder import identity_of
from gpuflow.runtime.child import say
from gpuflow.runtime.directory import Directory, discard
from gpuflow.runtime.gang_attempt import GangRunning
from gpuflow.runtime.gang_spoke import Ended, Spoke, Verdict
from gpuflow.runtime.ledger import Counts, History, Ledger
from gpuflow.runtime.options import BadOption
from gpuflow.runtime.outcomes import EXIT_INTERRUPTED, EXIT_RUNTIME, INTERRUPTED, RETRYABLE, SUCCEEDED
from gpuflow.runtime.retrying import Limit
from gpuflow.runtime.running import Stopped
from gpuflow.runtime.store import Memory, StorageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gpuflow.runtime.gang_words import Message, Place
    from gpuflow.runtime.keeper import Keeper
    from gpuflow.runtime.mpi_relay import Relay
    from gpuflow.runtime.options import Options
    from gpuflow.runtime.restoring import Restored
    from gpuflow.runtime.signing import Keys


def run(options: Options, environ: Mapping[str, str], place: Place, keys: Keys | None, proving: Keys | None) -> int:
    """This rank from its hello to the gang's exit code. `keys` are the store's, `proving` is for rank 0."""
    member = Member(options, environ, place, keys, proving)
    try:
        verdict = member.run()
    except Ended:
        assert member.spoke.verdict is not None
        verdict = member.spoke.verdict
    except Stopped:
        verdict = Verdict(EXIT_INTERRUPTED, INTERRUPTED, "told to stop before the command ran")
    except (BadOption, StorageError, OSError) as refusal:
        verdict = member.refuse(str(refusal))
    except Exception as fault:
        verdict = member.refuse(f"a bug in gpuflow-run: {type(fault).__name__}: {fault}")
    finally:
        member.clean_up()
    return member.leave(verdict)


class MemberRunning(GangRunning):
    """A member's command. Nobody keeps checkpoints here, unless each rank writes a part of them."""

    keeps_parts = False
    attempt_id = ""

    def _make_keeper(self) -> Keeper | None:
        if not self.keeps_parts:
            return None
        from gpuflow.runtime.gang_keepers import PartKeeper

        assert self.directory is not None and isinstance(self.star, Spoke)
        keeper = PartKeeper(self.options, self.directory, self.ledger, self.store, say, children.wake)
        keeper.spoke, keeper.attempt_id = self.star, self.attempt_id
        return keeper

    def _finish_keeper(self) -> None:
        """Rank 0 says when nothing more is asked for. Until then this rank waits for the verdict, and its keeper works.

        A stop that comes meanwhile must be told to the others at once, so nobody waits here.
        """
        if self.keeper is not None:
            self.keeper.finish(self.deadline)


class Member:
    """What one member knows."""

    def __init__(
        self, options: Options, environ: Mapping[str, str], place: Place, keys: Keys | None, proving: Keys | None
    ) -> None:
        self.options, self.environ, self.place = options, environ, place
        self.spoke = Spoke(place, proving)
        base = identity.path(options.pipeline, options.run_id or "unnamed", options.step, options.item, options.task)
        self.ledger = Ledger(Memory(), base, None, say, keys)
        """Never written: it only says which attempt this is."""
        self.directory: Directory | None = None
        if options.checkpoint_dir:
            own = identity_of(base) if options.own_folder else ""
            self.directory = Directory(options.checkpoint_dir, options.marker, own)
            self.directory.follow = options.follow
        self._shared = False
        self._alive = Alive()
        self._outputs = ""
        self._relay: Relay | None = None
        """Who takes the orders of rank 0's mpirun, where that is the program."""
        self.own_code: int | None = None

    def run(self) -> Verdict:
        options, spoke = self.options, self.spoke
        inputs = input_options.parse(options)
        spoke.connect(options.gang_timeout)
        if self.directory is not None:
            self._look(spoke.wait_for("look"))
        word = spoke.wait_for("begin")
        self.ledger.number = words.number(word, "attempt") or 0
        self.ledger.id = _own_id(words.text(word, "id"), self.place.rank)
        history = History(0, Counts(interruptions=words.number(word, "interruptions") or 0), None, None)
        orphans.end_all(options, None, self.ledger, history)
        restored = self._restore(word)
        if inputs:
            self._bring(inputs)
        self._outputs = files.private_folder([self.environ.get("TMPDIR") or "/tmp", "/dev/shm"], "gpuflow")
        if options.mpi is not None:
            from gpuflow.runtime.mpi_relay import Relay

            self._relay = Relay(spoke, self.environ, self._outputs)
        spoke.say("ready")
        spoke.go()
        store = supervisor.open_place(options.store) if options.store else None
        given = (options, self.environ, self._outputs, self.directory, store, self.ledger, history, restored)
        running = MemberRunning(*given) if self._relay is None else _ordered(self._relay, *given)
        running.star = spoke
        running.keeps_parts = options.sharded and self.directory is not None and not self._shared and store is not None
        running.attempt_id = words.text(word, "id")
        ending = running.run()
        running._ended(ending)
        self.own_code = ending.own_code
        verdict = spoke.await_verdict(None if running.by_gang else running.deadline, options.grace)
        if verdict.outcome == SUCCEEDED and ending.outcome != SUCCEEDED:
            # Rank 0 had given up on this one, or is none: never green without our own success.
            return Verdict(EXIT_INTERRUPTED, INTERRUPTED, f"the gang succeeded without this rank: {ending.because}")
        return verdict

    def refuse(self, sentence: str) -> Verdict:
        """This rank cannot start: rank 0 hears of it, and then all leave with the same code."""
        if self.spoke.is_alive() and self.spoke.verdict is None:
            self.spoke.say("refuse", because=sentence)
            return self.spoke.await_verdict(None, self.options.grace)
        return Verdict(EXIT_RUNTIME, RETRYABLE, sentence)

    def leave(self, verdict: Verdict) -> int:
        """Say goodbye and the last words; the gang's exit code."""
        self.spoke.leave()
        code, rank = verdict.code, self.place.rank
        sentence = f"rank {rank} of {self.place.size} ends with its gang: {verdict.because} (exit code {code})"
        if code:
            say(sentence)
        facts: dict[str, Any] = {
            "outcome": verdict.outcome,
            "exit_code": code,
            "because": verdict.because,
            "rank": rank,
        }
        if self.own_code not in (None, code):
            facts["own_exit_code"] = self.own_code
        farewell.write(self.options.termination_log, f"gpuflow-run: {sentence}", facts)
        return code

    def clean_up(self) -> None:
        if self._relay is not None:
            self._relay.close()
        if self._outputs:
            discard(self._outputs)
        self._alive.leave()
        if self.directory is not None and self.ledger.id:
            remove_if_dead(self.directory.shared, self.directory.attempt_folder)

    def _look(self, word: Message) -> None:
        """Whether the folder of rank 0's attempt is in our checkpoint directory: then it is the same directory."""
        assert self.directory is not None
        self.directory.prepare()
        parent, name = os.path.split(os.path.join(self.directory.path, words.text(word, "folder", "?")))
        try:
            self._shared = name in os.listdir(parent)  # a listing, since a mount may remember that it was not there
        except OSError:
            self._shared = False
        self.spoke.say("seen", shared=self._shared)

    def _restore(self, word: Message) -> Restored | None:
        from gpuflow.runtime import restoring, transfer

        directory, options = self.directory, self.options
        if directory is None:
            return None
        directory.enter(identity_of(self.ledger.base), self.ledger.id)
        self._alive.hold(directory.shared, directory.attempt_folder)
        directory.prepare()
        path, name = words.text(word, "path"), words.text(word, "checkpoint")
        if not path:
            return None
        if self._shared:
            return restoring.Restored(os.path.join(directory.path, path), os.path.basename(path), "rank 0's own")
        if not options.store or not name:
            raise BadOption(
                f"rank 0 resumes from {path} in its checkpoint directory, which is not there on this rank, and there "
                "is no --store to fetch it from; give one, or put the directory on a volume that all ranks share"
            )
        proceed = self._proceed
        if options.sharded:
            directory.disown()
        try:
            restored = restoring.restore_named(
                directory, self.ledger, name, supervisor.open_place(options.store), Limit(options.storage_timeout),
                proceed, say,
            )  # fmt: skip
        except (transfer.Abandoned, StorageError):
            self._leave_if_over()
            raise
        say(f"rank {self.place.rank} resumes from {restored.name} ({restored.how}), as rank 0 does")
        return restored

    def _bring(self, inputs: list[Any]) -> None:
        from gpuflow.runtime import transfer
        from gpuflow.runtime.inputs import Inputs

        options = self.options
        bringing = Inputs(
            inputs, self.ledger.keys, options.storage_timeout, supervisor.open_place, say, self._proceed, lambda: None
        )
        try:
            bringing.bring()
        except (transfer.Abandoned, StorageError, BadOption):
            self._leave_if_over()
            raise

    def _proceed(self) -> bool:
        return self.spoke.order is None and not children.stop_is_pending()

    def _leave_if_over(self) -> None:
        """A transfer that was given up, since there is no more use for it."""
        if children.stop_is_pending():
            self.spoke.stopping(INTERRUPTED, f"rank {self.place.rank} was told to stop", told=True)
            raise Stopped() from None
        if self.spoke.order is not None:
            self.spoke.wait_for("verdict")
            raise Ended() from None


def _ordered(relay: Relay, *given: Any) -> MemberRunning:
    """The command of a rank that waits for what rank 0's mpirun starts here."""
    from gpuflow.runtime.mpi_running import OrderedRunning

    running = OrderedRunning(*given)
    running.relay = relay
    return running


def _own_id(attempt_id: str, rank: int) -> str:
    """The name of this rank's folder: one of its own, also where all ranks share the directory."""
    return hashlib.sha256(f"{attempt_id}/{rank}".encode()).hexdigest()[:16]
