"""One attempt of a gang as each of its ranks runs it.

    all ranks say hello ── rank 0 claims the attempt ── restores ── the others restore the same ── all start
    one outcome ── rank 0 writes it down ── every rank exits with the same code

Rank 0 is the only one that counts, keeps checkpoints and collects outputs. A rank other than 0 restores what rank 0
restores, runs the command, reports, and exits as the gang does. What is decided is in `protocol`, the connections are
in `hub` and `spoke`.

Where the program is mpirun, rank 0 runs it, and a member waits for its orders.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading

from gpuflow.runtime.artifacts import input_options
from gpuflow.runtime.base import child as children
from gpuflow.runtime.base import container, files, termination_message
from gpuflow.runtime.base.attempt_folder import identity_of
from gpuflow.runtime.base.child import say
from gpuflow.runtime.base.files import discard
from gpuflow.runtime.base.options import BadOption, identity_of_options
from gpuflow.runtime.base.outcomes import (
    EXIT_INTERRUPTED,
    EXIT_RUNTIME,
    FINAL,
    INTERRUPTED,
    OUT_OF_MEMORY,
    RETRYABLE,
    SUCCEEDED,
    TIMED_OUT,
    Ending,
)
from gpuflow.runtime.base.signing import read_keys
from gpuflow.runtime.gangs import launcher_liveness
from gpuflow.runtime.gangs.ranks import protocol
from gpuflow.runtime.gangs.ranks.hub import Hub, Parts
from gpuflow.runtime.gangs.ranks.protocol import RANK
from gpuflow.runtime.gangs.ranks.spoke import GangEnded, Spoke, Verdict
from gpuflow.runtime.state import directory_owner
from gpuflow.runtime.state.attempts import Counts, History
from gpuflow.runtime.state.checkpoint_dir import Directory
from gpuflow.runtime.state.directory_owner import AttemptLock, remove_if_dead
from gpuflow.runtime.state.ledger import Ledger
from gpuflow.runtime.stores import storage_timeout
from gpuflow.runtime.stores.storage_timeout import Limit
from gpuflow.runtime.stores.store import Memory, StorageError
from gpuflow.runtime.supervise import supervisor
from gpuflow.runtime.supervise.running import LATE, TOLD, CommandRun, StopRequested

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from gpuflow.runtime.artifacts.delivery import Delivery
    from gpuflow.runtime.base.options import Options
    from gpuflow.runtime.base.records import KeptOutput, Success
    from gpuflow.runtime.base.signing import Keys
    from gpuflow.runtime.checkpoints.keeper import Keeper
    from gpuflow.runtime.checkpoints.restore import RestoreResult
    from gpuflow.runtime.gangs.ranks.mpi import AgentServer, Relay
    from gpuflow.runtime.gangs.ranks.protocol import Message, Place
    from gpuflow.runtime.stores.store import Store

_KILLED_FOR_MEMORY = 137
_COUNT_EVERY = 0.5


class RankRun(CommandRun):
    """The command of one rank; stop notices and ends are exchanged with the other ranks."""

    connection: Hub | Spoke
    by_gang = False
    """Whether the gang told it to stop. What it does then says nothing."""
    reported = False

    def _stop_order(self) -> str | None:
        return self.connection.order

    def _tell_to_stop(self, child: children.Child, why: str) -> None:
        rank = self.connection.place.rank
        if why == self.connection.order:
            self.by_gang = True
        elif why == LATE:
            self.connection.report_stop(TIMED_OUT, f"rank {rank} ran for longer than its --timeout")
        elif why == TOLD:
            self.connection.report_stop(INTERRUPTED, f"rank {rank} was told to stop", told=True)
        else:
            self.connection.report_stop(INTERRUPTED, f"rank {rank}: {why}")
        super()._tell_to_stop(child, why)

    def _report_end(self, ending: Ending) -> None:
        if not self.reported:
            self.reported = True
            self.connection.report_end(ending, collateral=self.by_gang)


class Rank0Run(RankRun):
    """Rank 0's command."""

    parts: Parts | None = None
    """The members' parts of checkpoints, where they have some."""

    def _make_keeper(self) -> Keeper | None:
        if self.parts is None or self.directory is None:
            return super()._make_keeper()
        from gpuflow.runtime.gangs.ranks.sharded_keeper import GatheringKeeper

        keeper = GatheringKeeper(self.options, self.directory, self.ledger, self.store, say, children.wake)
        keeper.parts = self.parts
        return keeper


class MemberRun(RankRun):
    """A member's command. Nobody keeps checkpoints here, unless each rank writes a part of them."""

    keeps_parts = False
    attempt_id = ""

    def _make_keeper(self) -> Keeper | None:
        if not self.keeps_parts:
            return None
        from gpuflow.runtime.gangs.ranks.sharded_keeper import PartKeeper

        assert self.directory is not None and isinstance(self.connection, Spoke)
        keeper = PartKeeper(self.options, self.directory, self.ledger, self.store, say, children.wake)
        keeper.spoke, keeper.attempt_id = self.connection, self.attempt_id
        return keeper

    def _finish_keeper(self) -> None:
        """Rank 0 says when nothing more is asked for. Until then this rank waits for the verdict, and its keeper works.
        A stop that comes meanwhile must be told to the others at once, so nobody waits here."""
        if self.keeper is not None:
            self.keeper.finish(self.deadline)


class MpirunRun(Rank0Run):
    """Rank 0's mpirun. Told to stop, it would kill its processes everywhere in a second or two: so it is told last."""

    agent_server: AgentServer

    def _variables(self) -> dict[str, str]:
        from gpuflow.runtime.gangs.ranks.mpi import OPERATORS_HOSTS, mpi_variables

        # The MPI operator sets its own host file after everything that the step says: nobody has meant it.
        own = {name: value for name, value in super()._variables().items() if value != OPERATORS_HOSTS}
        return {**mpi_variables(self.agent_server.folder, self.connection.place.size), **own}

    def _start(self, environ: Mapping[str, str]) -> children.Child:
        child = super()._start(environ)
        assert isinstance(self.connection, Hub)
        child.others_listen = self.connection.others_listen
        return child

    def _report_end(self, ending: Ending) -> None:
        self.agent_server.end_orders(ending.own_code)
        super()._report_end(ending)


class _Listeners(threading.Thread):
    """How many processes listen for a stop, counted apart: no sign of life may wait for the disk of checkpoints."""

    def __init__(self, find: Callable[[], int]) -> None:
        super().__init__(name="listeners", daemon=True)
        self._find, self.count = find, 0
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(_COUNT_EVERY):
            self.count = self._find()


class OrderedRun(MemberRun):
    """The program of another rank: ours, which starts what mpirun asks for, until rank 0's program has ended."""

    relay: Relay

    def _run(self) -> Ending:
        assert isinstance(self.connection, Spoke)
        listeners = _Listeners(self._count_listeners)
        self.connection.listening = lambda: listeners.count
        listeners.start()
        try:
            return super()._run()
        finally:
            listeners.over.set()

    def _start(self, environ: Mapping[str, str]) -> children.Child:
        child = children.Child(container.own_command("mpi-worker", self.relay.socket), environ)
        child.serves = True
        return child

    def _tell_to_stop(self, child: children.Child, why: str) -> None:
        self.relay.finish(None)
        super()._tell_to_stop(child, why)

    def _judge(self, child: children.Child, kills: int, *, told: bool) -> Ending:
        """mpirun says how its processes ended. That one of them was killed for memory only this rank can see."""
        failed = not told and child.code == 0 and self.relay.leaders_code not in (None, 0)
        if failed and container.oom_kills() > kills:
            return Ending(OUT_OF_MEMORY, "a process that mpirun started here was killed for memory", _KILLED_FOR_MEMORY)
        return super()._judge(child, kills, told=told)

    def _count_listeners(self) -> int:
        return 0 if self.folder is None else len(self.folder.listening_pids())


NODE_RANKS = (RANK, "PET_NODE_RANK")
"""Variables that Kubernetes fills with the pod's index: `--rank-offset` makes ranks of them."""
OUTPUTS_MOST = 3000
"""Bytes of the outputs in the last words, of which Kubernetes keeps 4096."""


def run_rank(options: Options, environ: Mapping[str, str]) -> int:
    """One rank of a gang; the exit code is the same on all."""
    supervisor.prepare(options)
    storage_timeout.CALL_DEFAULTS.other_ports = frozenset({options.gang_port})
    try:
        place = protocol.place(options, environ)
        keys = read_keys(options.key_file)
        proving = protocol.proof_keys(keys, environ)
    except BadOption as refusal:
        return termination_message.refuse(str(refusal), options.termination_log)
    if options.rank_offset:
        # An index that Kubernetes gave is not the rank.
        environ = {**environ, **{name: str(place.rank) for name in NODE_RANKS if name in environ}}
    if place.rank:
        return run_member(options, environ, place, keys, proving)
    launcher_liveness.hold(environ, place)
    attempt = KeeperAttempt(options, environ, Hub(place, proving))
    code = supervisor.run_attempt(attempt)
    attempt.hub.conclude(code, *attempt.word)
    return code


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
        self.agent_server: AgentServer | None = None
        """Where the agents of mpirun ask, if that is the program."""

    def _gather(self) -> None:
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
            self._record_never_started(ledger, refusal)
            raise BadOption(refusal)
        return bool(self._apart)

    def _make_run(self, folder: str, ledger: Ledger, history: History, restored: RestoreResult | None) -> CommandRun:
        given = (self.options, self.environ, folder, self.directory, self.store, ledger, history, restored)
        running = Rank0Run(*given) if self.options.mpi is None else self._make_mpirun_run(*given)
        running.connection = self.hub
        if self.options.sharded and self._apart:
            # Whoever shares our directory has its files there already.
            running.parts = self.hub.parts = Parts(self.hub, self._apart)
        try:
            self.hub.ask("begin", "ready", **self._message_to_members(ledger, history, restored))
            if self.agent_server is not None:
                self.agent_server.open(self.environ, folder)
        except BadOption as refusal:
            self._record_never_started(ledger, str(refusal))
            raise
        self.hub.go()
        return running

    def _make_mpirun_run(self, *given: Any) -> Rank0Run:
        """Rank 0's command where it is mpirun."""
        from gpuflow.runtime.gangs.ranks.mpi import AgentServer

        running = MpirunRun(*given)
        running.agent_server = self.agent_server = AgentServer(self.hub)
        return running

    def _message_to_members(self, ledger: Ledger, history: History, restored: RestoreResult | None) -> dict[str, Any]:
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

    def _gang_ending(self, running: CommandRun, ending: Ending) -> Ending:
        """The gang's ending instead of rank 0's own."""
        assert isinstance(running, RankRun)
        running._report_end(ending)
        if running.keeper is not None and running.keeper.lost is not None:
            self.hub.report_stop(INTERRUPTED, running.keeper.lost)
        gang = self.hub.outcome(lambda: running.deadline)
        if gang.outcome == SUCCEEDED:
            return ending
        # mpirun says that a process of it failed, and not to us where: -1 is no rank, so that no node is avoided.
        by_mpirun = self.agent_server is not None and gang.rank == 0 and gang.outcome in (RETRYABLE, FINAL)
        self._cause = -1 if by_mpirun else gang.rank
        because = gang.because if gang.because.startswith(f"rank {gang.rank}") else f"rank {gang.rank}: {gang.because}"
        return Ending(gang.outcome, because, gang.code, until=running.deadline, told=gang.told)

    # -- the end

    def clean_up(self) -> None:
        if self.agent_server is not None:
            self.agent_server.close()
        super().clean_up()

    def stop_ending(self) -> Ending:
        decided = self.hub.tally.decided
        if decided is None or decided.outcome == SUCCEEDED:
            return super().stop_ending()
        return Ending(INTERRUPTED, f"{decided.because}, before the command ran", told=decided.told)

    def close(self, ending: Ending) -> int:
        self.word = (ending.outcome, ending.because)
        if ending.outcome == INTERRUPTED and (self.ledger is None or not self.ledger.number):
            # It waited for its gang and had taken no number: nothing is counted.
            sentence = f"{ending.because} (exit code {EXIT_INTERRUPTED})"
            say(sentence)
            return self._last_words(sentence, INTERRUPTED, EXIT_INTERRUPTED, because=ending.because)
        return super().close(ending)

    def refuse(self, sentence: str) -> int:
        self.word = (RETRYABLE, sentence)
        return super().refuse(sentence)

    # -- outputs, which the launcher reads in the last words

    def _fit(self, kept: Mapping[str, KeptOutput]) -> None:
        from gpuflow.runtime.artifacts.outputs import BadOutput

        size = len(json.dumps(_output_values(kept), ensure_ascii=False).encode("utf-8", "backslashreplace"))
        if size > OUTPUTS_MOST and os.path.exists(self.options.termination_log):
            raise BadOutput(
                f"the outputs of a gang are handed on in the pod's last words: they take {size} bytes, and the most is "
                f"{OUTPUTS_MOST}; make large values outputs of type file"
            )

    def _more_facts(self) -> dict[str, Any]:
        cause = {} if self._cause is None else {"cause_rank": self._cause}
        return {**cause, **({"outputs": _output_values(self._outputs)} if self._outputs else {})}

    def _deliver_again(self, delivery: Delivery, done: Success, ledger: Ledger, store: Store) -> int:
        code = super()._deliver_again(delivery, done, ledger, store)
        because = f"attempt {done.attempt} has succeeded already"
        self.word = (SUCCEEDED, because)
        return self._last_words(because, SUCCEEDED, code, because=because, outputs=_output_values(done.outputs))


def _output_values(outputs: Mapping[str, KeptOutput]) -> dict[str, str]:
    """Each output's value; of a file or directory, where it is kept."""
    found = {name: kept.uri if kept.value is None else kept.value for name, kept in outputs.items()}
    return {name: value for name, value in found.items() if value is not None}


def run_member(
    options: Options, environ: Mapping[str, str], place: Place, keys: Keys | None, proving: Keys | None
) -> int:
    """This rank from its hello to the gang's exit code. `keys` are the store's, `proving` is for rank 0."""
    member = Member(options, environ, place, keys, proving)
    try:
        verdict = member.run()
    except GangEnded:
        assert member.spoke.verdict is not None
        verdict = member.spoke.verdict
    except StopRequested:
        verdict = Verdict(EXIT_INTERRUPTED, INTERRUPTED, "told to stop before the command ran")
    except (BadOption, StorageError, OSError) as refusal:
        verdict = member.refuse(str(refusal))
    except Exception as fault:
        verdict = member.refuse(f"a bug in gpuflow-run: {type(fault).__name__}: {fault}")
    finally:
        member.clean_up()
    return member.leave(verdict)


class Member:
    """What one member knows."""

    def __init__(
        self, options: Options, environ: Mapping[str, str], place: Place, keys: Keys | None, proving: Keys | None
    ) -> None:
        self.options, self.environ, self.place = options, environ, place
        self.spoke = Spoke(place, proving)
        base = identity_of_options(options)
        self.ledger = Ledger(Memory(), base, None, say, keys)
        """Never written: it only says which attempt this is."""
        self.directory: Directory | None = None
        if options.checkpoint_dir:
            own = identity_of(base) if options.own_folder else ""
            self.directory = Directory(options.checkpoint_dir, options.marker, own)
            self.directory.follow = options.follow
        self._shared = False
        self._alive = AttemptLock()
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
        self.ledger.number = protocol.number(word, "attempt") or 0
        # The name of this rank's folder: one of its own, also where all ranks share the directory.
        own = f"{protocol.text(word, 'id')}/{self.place.rank}"
        self.ledger.id = hashlib.sha256(own.encode()).hexdigest()[:16]
        history = History(0, Counts(interruptions=protocol.number(word, "interruptions") or 0), None, None)
        directory_owner.end_orphans(options, None, self.ledger, history)
        restored = self._restore(word, history)
        if inputs:
            self._bring(inputs)
        self._outputs = files.private_folder([self.environ.get("TMPDIR") or "/tmp", "/dev/shm"], "gpuflow")
        if options.mpi is not None:
            from gpuflow.runtime.gangs.ranks.mpi import Relay

            self._relay = Relay(spoke, self.environ, self._outputs)
        spoke.say("ready")
        spoke.go()
        store = supervisor.open_place(options.store) if options.store else None
        given = (options, self.environ, self._outputs, self.directory, store, self.ledger, history, restored)
        if self._relay is None:
            running = MemberRun(*given)
        else:
            running = OrderedRun(*given)
            running.relay = self._relay
        running.connection = spoke
        running.keeps_parts = options.sharded and self.directory is not None and not self._shared and store is not None
        running.attempt_id = protocol.text(word, "id")
        ending = running.run()
        running._report_end(ending)
        self.own_code = ending.own_code
        verdict = spoke.await_verdict(None if running.by_gang else running.deadline, options.grace)
        if verdict.outcome == SUCCEEDED and ending.outcome != SUCCEEDED:
            # Rank 0 had given up on this one, or is none: never green without our own success.
            return Verdict(EXIT_INTERRUPTED, INTERRUPTED, f"the gang succeeded without this rank: {ending.because}")
        return verdict

    def refuse(self, sentence: str) -> Verdict:
        """Tell rank 0 that this rank cannot start; then all ranks exit with the same code."""
        if self.spoke.is_alive() and self.spoke.verdict is None:
            self.spoke.say("refuse", because=sentence)
            return self.spoke.await_verdict(None, self.options.grace)
        return Verdict(EXIT_RUNTIME, RETRYABLE, sentence)

    def leave(self, verdict: Verdict) -> int:
        """Leave the gang and write the termination message; returns the gang's exit code."""
        self.spoke.leave()
        code, rank = verdict.code, self.place.rank
        sentence = f"rank {rank} of {self.place.size} ends with its gang: {verdict.because} (exit code {code})"
        if code:
            say(sentence)
        own = {} if self.own_code in (None, code) else {"own_exit_code": self.own_code}
        facts = {"because": verdict.because, "rank": rank, **own}
        return termination_message.write(self.options.termination_log, sentence, verdict.outcome, code, **facts)

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
        parent, name = os.path.split(os.path.join(self.directory.path, protocol.text(word, "folder", "?")))
        try:
            self._shared = name in os.listdir(parent)  # a listing, since a mount may remember that it was not there
        except OSError:
            self._shared = False
        self.spoke.say("seen", shared=self._shared)

    def _restore(self, word: Message, history: History) -> RestoreResult | None:
        from gpuflow.runtime.checkpoints import restore, transfer

        directory, options = self.directory, self.options
        if directory is None:
            return None
        directory.enter(identity_of(self.ledger.base), self.ledger.id)
        self._alive.hold(directory.shared, directory.attempt_folder)
        directory.prepare()
        path, name = protocol.text(word, "path"), protocol.text(word, "checkpoint")
        if not path:
            return None
        if self._shared:
            return restore.RestoreResult(os.path.join(directory.path, path), os.path.basename(path), "rank 0's own")
        if not options.store or not name:
            raise BadOption(
                f"rank 0 resumes from {path} in its checkpoint directory, which is not there on this rank, and there "
                "is no --store to fetch it from; give one, or put the directory on a volume that all ranks share"
            )
        if options.sharded:
            directory.disown()
        try:
            store = supervisor.open_place(options.store)
            limit = Limit(options.storage_timeout)
            restoring = restore.Restore(directory, self.ledger, history, store, limit, self._proceed, say)
            restored = restoring.by_name(store, name)
        except (transfer.TransferAbandoned, StorageError):
            self._leave_if_over()
            raise
        say(f"rank {self.place.rank} resumes from {restored.name} ({restored.how}), as rank 0 does")
        return restored

    def _bring(self, inputs: list[Any]) -> None:
        from gpuflow.runtime.artifacts.inputs import Inputs
        from gpuflow.runtime.checkpoints import transfer

        options = self.options
        bringing = Inputs(
            inputs, self.ledger.keys, options.storage_timeout, supervisor.open_place, say, self._proceed, lambda: None
        )
        try:
            bringing.bring()
        except (transfer.TransferAbandoned, StorageError, BadOption):
            self._leave_if_over()
            raise

    def _proceed(self) -> bool:
        return self.spoke.order is None and not children.stop_is_pending()

    def _leave_if_over(self) -> None:
        """A transfer that was given up, since there is no more use for it."""
        if children.stop_is_pending():
            self.spoke.report_stop(INTERRUPTED, f"rank {self.place.rank} was told to stop", told=True)
            raise StopRequested() from None
        if self.spoke.order is not None:
            self.spoke.wait_for("verdict")
            raise GangEnded() from None
