"""The command of a rank in a gang: rank 0's and a member's.

Where the program is mpirun, rank 0 runs it, and a member waits for its orders.
"""

from __future__ import annotations

import threading

from gpuflow.runtime.base import child as children
from gpuflow.runtime.base import container
from gpuflow.runtime.base.child import say
from gpuflow.runtime.base.outcomes import INTERRUPTED, OUT_OF_MEMORY, TIMED_OUT, Ending
from gpuflow.runtime.gangs.ranks.spoke import Spoke
from gpuflow.runtime.supervise.running import LATE, TOLD, CommandRun

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpuflow.runtime.checkpoints.keeper import Keeper
    from gpuflow.runtime.gangs.ranks.hub import Hub, Parts
    from gpuflow.runtime.gangs.ranks.mpi import AgentServer, Relay

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
        from gpuflow.runtime.gangs.ranks.mpi import OPERATORS_HOSTS

        # The MPI operator sets its own host file after everything that the step says: nobody has meant it.
        own = {name: value for name, value in super()._variables().items() if value != OPERATORS_HOSTS}
        return {**self.agent_server.variables(), **own}

    def _start(self, environ: Mapping[str, str]) -> children.Child:
        child = super()._start(environ)
        child.others_listen = self.agent_server.others_listen
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
