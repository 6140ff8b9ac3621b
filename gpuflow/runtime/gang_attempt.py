"""One attempt of a gang as rank 0 sees it: the only one that counts, keeps checkpoints and collects outputs.

    all ranks say hello ── rank 0 claims the attempt ── restores ── the others restore the same ── all start
    one outcome ── rank 0 writes it down ── every rank exits with the same code

The other ranks are in `gang_member`, what is decided in `gang_agree`, the connections in `gang_hub` and `gang_spoke`.
"""

from __future__ import annotations

import json
import os

from gpuflow.runtime import child as children
from gpuflow.runtime import farewell, gang_tether, supervisor
from gpuflow.runtime import gang_words as words
from gpuflow.runtime.child import say
from gpuflow.runtime.ending import Ending
from gpuflow.runtime.gang_hub import Hub
from gpuflow.runtime.gang_parts import Parts
from gpuflow.runtime.gang_words import RANK
from gpuflow.runtime.options import BadOption
from gpuflow.runtime.outcomes import EXIT_INTERRUPTED, FINAL, INTERRUPTED, RETRYABLE, SUCCEEDED, TIMED_OUT
from gpuflow.runtime.running import LATE, TOLD, Running
from gpuflow.runtime.signing import read_keys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gpuflow.runtime.delivery import Delivery
    from gpuflow.runtime.gang_spoke import Spoke
    from gpuflow.runtime.gang_words import Place
    from gpuflow.runtime.keeper import Keeper
    from gpuflow.runtime.ledger import History, Ledger
    from gpuflow.runtime.mpi_desk import Desk
    from gpuflow.runtime.options import Options
    from gpuflow.runtime.records import Kept, Success
    from gpuflow.runtime.restoring import Restored
    from gpuflow.runtime.store import Store

NODE_RANKS = (RANK, "PET_NODE_RANK")
"""Variables that Kubernetes fills with the pod's index: `--rank-offset` makes ranks of them."""
OUTPUTS_MOST = 3000
"""Bytes of the outputs in the last words, of which Kubernetes keeps 4096."""


def run(options: Options, environ: Mapping[str, str]) -> int:
    """One rank of a gang; the exit code is the same on all."""
    try:
        place = words.place(options, environ)
        keys = read_keys(options.key_file)
        proving = words.proving(keys, environ)
    except BadOption as refusal:
        from gpuflow.runtime.main import refuse

        return refuse(str(refusal), options.termination_log)
    environ = with_rank(environ, place, options.rank_offset)
    if place.rank:
        from gpuflow.runtime import gang_member

        return gang_member.run(options, environ, place, keys, proving)
    gang_tether.hold(environ, place)
    attempt = KeeperAttempt(options, environ, Hub(place, proving))
    code = supervisor.one(attempt)
    attempt.hub.conclude(code, *attempt.word)
    return code


def with_rank(environ: Mapping[str, str], place: Place, offset: int) -> Mapping[str, str]:
    """The program's variables: an index that Kubernetes gave becomes the rank, where they are not the same."""
    if not offset:
        return environ
    own = {name: str(place.rank) for name in NODE_RANKS if name in environ}
    return {**environ, **own}


class GangRunning(Running):
    """The command of one rank: the others hear of its notice and its end, and it of theirs."""

    star: Hub | Spoke
    by_gang = False
    """Whether the gang told it to stop. What it does then says nothing."""
    reported = False

    def _order(self) -> str | None:
        return self.star.order

    def _tell(self, child: children.Child, why: str) -> None:
        rank = self.star.place.rank
        if why == self.star.order:
            self.by_gang = True
        elif why == LATE:
            self.star.stopping(TIMED_OUT, f"rank {rank} ran for longer than its --timeout")
        elif why == TOLD:
            self.star.stopping(INTERRUPTED, f"rank {rank} was told to stop", told=True)
        else:
            self.star.stopping(INTERRUPTED, f"rank {rank}: {why}")
        super()._tell(child, why)

    def _ended(self, ending: Ending) -> None:
        if not self.reported:
            self.reported = True
            self.star.ended(ending, collateral=self.by_gang)


class KeeperRunning(GangRunning):
    """Rank 0's command."""

    parts: Parts | None = None
    """The members' parts of checkpoints, where they have some."""

    def _make_keeper(self) -> Keeper | None:
        if self.parts is None or self.directory is None:
            return super()._make_keeper()
        from gpuflow.runtime.gang_keepers import GatheringKeeper

        keeper = GatheringKeeper(self.options, self.directory, self.ledger, self.store, say, children.wake)
        keeper.parts = self.parts
        return keeper


class KeeperAttempt(supervisor.Attempt):
    """Rank 0's attempt."""

    def __init__(self, options: Options, environ: Mapping[str, str], hub: Hub) -> None:
        super().__init__(options, environ)
        self.hub = hub
        self.word = (RETRYABLE, "rank 0 did not say why")
        """Outcome and reason, as the others are told."""
        self._apart: list[int] = []
        """Members that do not see our checkpoint directory."""
        self._cause: int | None = None
        """The rank that ended the gang: all exit alike, and whoever looks from outside cannot see it."""
        self.desk: Desk | None = None
        """Where the agents of mpirun ask, if that is the program."""

    def _meet(self) -> None:
        self.hub.listen(self.options.gang_timeout)
        self.hub.gather(self.options.gang_timeout)

    def _for_all(self, ledger: Ledger) -> bool:
        """Ask who sees our folder: whoever does, resumes from where we do, and fetches nothing."""
        assert self.directory is not None
        inside = os.path.relpath(self.directory.attempt_folder, self.directory.path)
        found = self.hub.ask("look", "seen", folder=inside)
        self._apart = [rank for rank, answer in found.items() if answer.get("shared") is not True]
        if self._apart and self.options.sharded and self.store is None:
            refusal = (
                f"rank {', '.join(map(str, sorted(self._apart)))} has a checkpoint directory of its own, and without "
                "--store the parts of a checkpoint never come together; give a store, or put the directory on a volume "
                "that all ranks share"
            )
            self._costs_nothing(ledger, refusal)
            raise BadOption(refusal)
        return bool(self._apart)

    def _run_of(self, folder: str, ledger: Ledger, history: History, restored: Restored | None) -> Running:
        given = (self.options, self.environ, folder, self.directory, self.store, ledger, history, restored)
        running = KeeperRunning(*given) if self.options.mpi is None else self._launching(*given)
        running.star = self.hub
        if self.options.sharded and self._apart:
            # Whoever shares our directory has its files there already.
            running.parts = self.hub.parts = Parts(self.hub, self._apart)
        try:
            self.hub.ask("begin", "ready", **self._word_of(ledger, history, restored))
            if self.desk is not None:
                self.desk.open(self.environ, folder)
        except BadOption as refusal:
            self._costs_nothing(ledger, str(refusal))
            raise
        self.hub.go()
        return running

    def _launching(self, *given: Any) -> KeeperRunning:
        """Rank 0's command where it is mpirun."""
        from gpuflow.runtime.mpi_desk import Desk
        from gpuflow.runtime.mpi_running import LaunchingRunning

        running = LaunchingRunning(*given)
        running.desk = self.desk = Desk(self.hub)
        return running

    def _word_of(self, ledger: Ledger, history: History, restored: Restored | None) -> dict[str, Any]:
        """What a member must know. `checkpoint` is the name in the store, `path` the place in the directory."""
        path = restored.path if restored is not None else None
        inside = os.path.relpath(path, self.directory.path) if path and self.directory is not None else None
        return {
            "attempt": ledger.number,
            "id": ledger.id,
            "interruptions": history.counts.interruptions,
            "path": inside,
            "checkpoint": ledger.resumed if path else None,
        }

    def _agreed(self, running: Running, ending: Ending) -> Ending:
        """The gang's ending instead of rank 0's own."""
        assert isinstance(running, GangRunning)
        running._ended(ending)
        if running.keeper is not None and running.keeper.lost is not None:
            self.hub.stopping(INTERRUPTED, running.keeper.lost)
        gang = self.hub.outcome(lambda: running.deadline)
        if gang.outcome == SUCCEEDED:
            return ending
        # mpirun says that a process of it failed, and not to us where: -1 is no rank, so that no node is avoided.
        by_mpirun = self.desk is not None and gang.rank == 0 and gang.outcome in (RETRYABLE, FINAL)
        self._cause = -1 if by_mpirun else gang.rank
        because = gang.because if gang.because.startswith(f"rank {gang.rank}") else f"rank {gang.rank}: {gang.because}"
        return Ending(gang.outcome, because, gang.code, until=running.deadline, told=gang.told)

    # -- the end

    def clean_up(self) -> None:
        if self.desk is not None:
            self.desk.close()
        super().clean_up()

    def stopped(self) -> Ending:
        decided = self.hub.tally.decided
        if decided is None or decided.outcome == SUCCEEDED:
            return super().stopped()
        return Ending(INTERRUPTED, f"{decided.because}, before the command ran", told=decided.told)

    def close(self, ending: Ending) -> int:
        self.word = (ending.outcome, ending.because)
        if ending.outcome == INTERRUPTED and (self.ledger is None or not self.ledger.number):
            # It waited for its gang and had taken no number: nothing is counted.
            sentence = f"{ending.because} (exit code {EXIT_INTERRUPTED})"
            say(sentence)
            facts = {"outcome": INTERRUPTED, "exit_code": EXIT_INTERRUPTED, "because": ending.because}
            farewell.write(self.options.termination_log, f"gpuflow-run: {sentence}", facts)
            return EXIT_INTERRUPTED
        return super().close(ending)

    def refuse(self, sentence: str) -> int:
        self.word = (RETRYABLE, sentence)
        return super().refuse(sentence)

    # -- outputs, which the launcher reads in the last words

    def _fit(self, kept: Mapping[str, Kept]) -> None:
        from gpuflow.runtime.outputs import BadOutput

        size = len(json.dumps(_values(kept), ensure_ascii=False).encode("utf-8", "backslashreplace"))
        if size > OUTPUTS_MOST and os.path.exists(self.options.termination_log):
            raise BadOutput(
                f"the outputs of a gang are handed on in the pod's last words: they take {size} bytes, and the most is "
                f"{OUTPUTS_MOST}; make large values outputs of type file"
            )

    def _more(self) -> dict[str, Any]:
        cause = {} if self._cause is None else {"cause_rank": self._cause}
        return {**cause, **({"outputs": _values(self._outputs)} if self._outputs else {})}

    def _give_again(self, delivery: Delivery, done: Success, ledger: Ledger, store: Store) -> int:
        code = super()._give_again(delivery, done, ledger, store)
        because = f"attempt {done.attempt} has succeeded already"
        self.word = (SUCCEEDED, because)
        facts = {"outcome": SUCCEEDED, "exit_code": code, "because": because, "outputs": _values(done.outputs)}
        farewell.write(self.options.termination_log, f"gpuflow-run: {because}", facts)
        return code


def _values(outputs: Mapping[str, Kept]) -> dict[str, str]:
    """Each output's value; of a file or directory, where it is kept."""
    found = {name: kept.uri if kept.value is None else kept.value for name, kept in outputs.items()}
    return {name: value for name, value in found.items() if value is not None}
