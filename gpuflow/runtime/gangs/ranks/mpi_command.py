"""The command of a rank in a gang whose program is mpirun: rank 0's own, and that of a rank which waits for orders."""

from __future__ import annotations

import threading

from gpuflow.runtime.base import child as children
from gpuflow.runtime.base import container
from gpuflow.runtime.base.outcomes import OUT_OF_MEMORY, Ending
from gpuflow.runtime.gangs.ranks import mpi
from gpuflow.runtime.gangs.ranks.rank_attempt import KeeperRunning, MemberRunning
from gpuflow.runtime.gangs.ranks.spoke import Spoke

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpuflow.runtime.gangs.ranks.mpi import Desk, Relay

_KILLED = 137
_COUNT_EVERY = 0.5


class LaunchingRunning(KeeperRunning):
    """Rank 0's mpirun. Told to stop, it would kill its processes everywhere in a second or two: so it is told last."""

    desk: Desk

    def _variables(self) -> dict[str, str]:
        # The MPI operator sets its own host file after everything that the step says: nobody has meant it.
        own = {name: value for name, value in super()._variables().items() if value != mpi.OPERATORS_HOSTS}
        return {**self.desk.variables(), **own}

    def _start(self, environ: Mapping[str, str]) -> children.Child:
        child = super()._start(environ)
        child.others_listen = self.desk.others_listen
        return child

    def _ended(self, ending: Ending) -> None:
        self.desk.over(ending.own_code)
        super()._ended(ending)


class _Listeners(threading.Thread):
    """How many processes listen for a stop, counted apart: no sign of life may wait for the disk of checkpoints."""

    def __init__(self, find: Callable[[], int]) -> None:
        super().__init__(name="listeners", daemon=True)
        self._find, self.count = find, 0
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(_COUNT_EVERY):
            self.count = self._find()


class OrderedRunning(MemberRunning):
    """The program of another rank: ours, which starts what mpirun asks for, until rank 0's program has ended."""

    relay: Relay

    def _run(self) -> Ending:
        assert isinstance(self.star, Spoke)
        listeners = _Listeners(self._count_listeners)
        self.star.listening = lambda: listeners.count
        listeners.start()
        try:
            return super()._run()
        finally:
            listeners.over.set()

    def _start(self, environ: Mapping[str, str]) -> children.Child:
        child = children.Child(container.own_command("mpi-worker", self.relay.socket), environ)
        child.serves = True
        return child

    def _tell(self, child: children.Child, why: str) -> None:
        self.relay.finish(None)
        super()._tell(child, why)

    def _judge(self, child: children.Child, kills: int, *, told: bool) -> Ending:
        """mpirun says how its processes ended. That one of them was killed for memory only this rank can see."""
        failed = not told and child.code == 0 and self.relay.leaders_code not in (None, 0)
        if failed and container.oom_kills() > kills:
            return Ending(OUT_OF_MEMORY, "a process that mpirun started here was killed for memory", _KILLED)
        return super()._judge(child, kills, told=told)

    def _count_listeners(self) -> int:
        return 0 if self.folder is None else len(self.folder.listening())
