"""A gang on this machine: its ranks as processes here, each under its own supervisor, all of them one attempt.

The supervisors meet at 127.0.0.1 and agree how the attempt ended, as they do in pods. What the launcher does on a
cluster is done here: all ranks are started together or none, the others are ended when one has gone, the attempt has
one reason and costs one of one budget. Each attempt has ports of its own, which no other run on this machine takes.

The attempt of any other step is launched here too: it is one supervisor, which agrees with nobody.
"""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path

from gpuflow.local import attempt as attempts
from gpuflow.local.attempt import End, MappedValues, Place, Rank, Running
from gpuflow.local.events import Events
from gpuflow.local.machine import Share, Wanted, wanted_of
from gpuflow.local.record import INTERRUPTED, SUCCEEDED
from gpuflow.plan import PlannedStep
from gpuflow.pod.gang import gang_environment
from gpuflow.runtime.base import outcomes, progress
from gpuflow.runtime.base.attempt_folder import process_began
from gpuflow.runtime.gangs.ranks.protocol import LEADER, NAME, RANK, SECRET, TIMES, new_secret
from gpuflow.spec.step import Step, leader_step

ADDRESS = "127.0.0.1"
PORTS = range(20_000, 32_000, 2)
"""Where ports are looked for when the step's own are taken: below those that Linux gives to whoever asks for any."""
USUAL_TIMES = "beat=2,lost=10,settle=10,linger=0.5"
"""How long supervisors wait for each other. On one machine the kernel tells at once that another has ended."""
PATIENCE = 5.0
"""Seconds after the first rank has gone in which the others end by themselves: their supervisors have agreed."""
TIMEOUT = "--gang-timeout=2m"
"""How long ranks wait for each other at their start, which is the same moment for all."""


def ranks_of(step: Step) -> tuple[Step, ...]:
    """What each rank runs: the leader, where there is one, and the workers. A step that is no gang runs itself."""
    if step.gang is None:
        return (step,)
    return (*((leader_step(step),) if step.gang.leader is not None else ()), *(step,) * step.gang.workers)


def wanted_by(step: Step) -> list[Wanted]:
    """What each rank asks for."""
    return [wanted_of(each) for each in ranks_of(step)]


class Ports:
    """Two ports for one attempt, the program's and the supervisors', held against every other run on this machine.

    A name in the kernel stands for each, which goes with this process however that ends.
    """

    def __init__(self, wanted: int) -> None:
        """`wanted`: the step's own, which it gets where it is free; the other one is the next."""
        self._held: list[socket.socket] = []
        begin = os.getpid() % len(PORTS)
        for port in itertools.chain((wanted,), PORTS[begin:], PORTS[:begin]):
            if self._take(port) and self._take(port + 1):
                self.first = port
                return
            self.close()
        raise OSError(errno.EADDRINUSE, "there are no two free ports for its ranks")

    def _take(self, port: int) -> bool:
        name = socket.socket(socket.AF_UNIX)
        try:
            name.bind(f"\0gpuflow-port-{port}")
        except OSError:
            name.close()
            return False
        self._held.append(name)
        return _is_free(port)

    def close(self) -> None:
        for name in self._held:
            name.close()
        self._held.clear()


def _is_free(port: int) -> bool:
    """Whether nobody listens there, at any address of this machine."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.create_server(("", port), family=family).close()
        except OSError as refusal:
            if refusal.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):  # a machine without IPv6
                return False
        except OverflowError:
            return False
    return True


def launch(
    planned: PlannedStep, values: MappedValues, place: Place, shares: tuple[Share, ...], interruptions: int
) -> AttemptRun:
    """Start an attempt with all its ranks, or OSError and none. `interruptions`: how many came before it."""
    run, key, number = place.run, place.key, values.attempt
    if planned.step.gang is None:
        return AttemptRun([attempts.launch(planned, values, place, shares[0])], run.attempt(key, number))
    if number > 1:  # its pods are gone, and their scratch space with them
        for folder in run.attempt(key, number - 1).glob("rank-*/files"):
            shutil.rmtree(folder, ignore_errors=True)
    ports, started = Ports(planned.step.gang.rendezvous.port), list[Running]()
    shared = {
        LEADER: ADDRESS,
        "PET_MASTER_ADDR": ADDRESS,
        NAME: f"{run.id}/{key}/{number}",
        "GPUFLOW_GANG_ATTEMPT": str(number),
        "GPUFLOW_GANG_INTERRUPTIONS": str(interruptions),
        SECRET: new_secret(),
        TIMES: place.environ.get(TIMES, USUAL_TIMES),
    }
    try:
        for rank, (step, share) in enumerate(zip(ranks_of(planned.step), shares, strict=True)):
            moved = _at_port(step, ports.first)
            gpus = wanted_of(step).gpus
            known = {**shared, RANK: str(rank), "PET_NODE_RANK": str(rank)}
            rank_here = Rank(rank, gpus, _variables(moved, gpus, planned, known))
            own = replace(place, rank=rank_here, options=(*place.options, TIMEOUT))
            started.append(attempts.launch(replace(planned, step=moved), copy(values), own, share))
        return AttemptRun(started, run.attempt(key, number), ports, _remark(planned.step, ports.first))
    except BaseException:
        for running in started:
            running.kill()
        ports.close()
        raise


def _remark(step: Step, port: int) -> str:
    """Only torchrun is told a port, and mpirun needs none."""
    assert step.gang is not None
    wanted = step.gang.rendezvous
    if wanted.framework != "env" or wanted.port == port:
        return ""
    return f"port {wanted.port} is taken here: a program that names it itself meets another program there"


def _at_port(step: Step, port: int) -> Step:
    assert step.gang is not None
    rendezvous = step.gang.rendezvous.model_copy(update={"port": port})
    return step.model_copy(update={"gang": step.gang.model_copy(update={"rendezvous": rendezvous})})


def _variables(step: Step, gpus: int, planned: PlannedStep, known: Mapping[str, str]) -> dict[str, str]:
    """The variables of a rank's pod; what a cluster fills in, this machine knows."""
    entries = gang_environment(step, gpus, planned.site.gangs.made_as)
    found = {each["name"]: known.get(each["name"]) or str(each.get("value", "")) for each in entries}
    return {**found, **{name: known[name] for name in (SECRET, TIMES)}}


class AttemptRun:
    """An attempt that runs: the supervisor of a step, or those of all ranks of a gang."""

    def __init__(self, ranks: list[Running], folder: Path, ports: Ports | None = None, remark: str = "") -> None:
        """`remark`: what the user should know about this start."""
        self.ranks, self.ports, self.folder, self.began = ranks, ports, folder, time.monotonic()
        self.codes: dict[int, int] = {}
        """The exit codes of the supervisors that have ended."""
        self._told: set[int] = set()
        """Ranks that were ended because another had gone: what they say then is no reason."""
        self.remark = remark

    @property
    def supervisors(self) -> list[tuple[int, int | None]]:
        """Their processes, and when each began: so they are known again."""
        return [(each.process.pid, process_began(each.process.pid)) for each in self.ranks]

    @property
    def grace(self) -> float:
        return max(running.program.grace for running in self.ranks)

    def seconds(self) -> float:
        return time.monotonic() - self.began

    def last_progress(self) -> progress.Progress | None:
        """How far rank 0 is: it speaks for all."""
        return self.ranks[0].last_progress()

    def log(self, end: End) -> Path:
        """Where what it wrote is, for whoever asks why it ended so: the log of the rank whose end this is."""
        return self.ranks[end.rank or 0].program.folder / "log"

    def watch(self, events: Events, planned: PlannedStep, ended: Callable[[End], None]) -> None:
        """Call `ended` once all ranks have ended, with the one end of all."""

        def take(rank: int, code: int) -> None:
            is_first_bad = code and not any(self.codes.values())
            self.codes[rank] = code
            if len(self.codes) == len(self.ranks):
                ended(self._end(planned))
            elif is_first_bad:
                events.at(time.monotonic() + PATIENCE, lambda: self._end_others(events))

        for rank, running in enumerate(self.ranks):
            running.watch(events, partial(take, rank))

    def _end(self, planned: PlannedStep) -> End:
        first = self.ranks[0].program
        if self.ports is None:
            return attempts.end_of(planned, first, self.codes[0])
        self.ports.close()
        return end_of(planned, self.folder, first.outputs, self.codes, self._told)

    def _end_others(self, events: Events) -> None:
        """A rank that had not met the others yet waits for one that is gone."""
        others = list(self._others())
        for rank, running in others:
            self._told.add(rank)
            running.terminate()
        if others:
            events.at(time.monotonic() + self.grace + attempts.KILL_MARGIN, self.kill)

    def _others(self) -> Iterator[tuple[int, Running]]:
        return ((rank, running) for rank, running in enumerate(self.ranks) if rank not in self.codes)

    def terminate(self) -> None:
        """Tell every supervisor to stop."""
        for _, running in self._others():
            running.terminate()

    def kill(self) -> None:
        """End everything of it now."""
        for _, running in list(self._others()):
            running.kill()


def end_of(
    planned: PlannedStep, folder: Path, outputs: Path, codes: Mapping[int, int], told: set[int] | None = None
) -> End:
    """The one end of an attempt, by the exit codes of all its supervisors. `told`: the ranks that were only ended
    because another had gone."""
    ends = {rank: _end_of_rank(planned, folder, outputs, rank, code) for rank, code in codes.items()}
    return agree(planned, ends, told or set())


def end_left(planned: PlannedStep, folder: Path, outputs: Path) -> End:
    """The one end of an attempt that a killed run has left, by the last words of its supervisors."""
    if planned.step.gang is None:
        code = attempts.code_in(folder)
        return attempts.LEFT if code is None else attempts.end_in(planned, folder, outputs, code)
    codes = {rank: attempts.code_in(rank_folder(folder, rank)) for rank in range(len(ranks_of(planned.step)))}
    ends = {rank: _end_of_rank(planned, folder, outputs, rank, code) for rank, code in codes.items()}
    return agree(planned, ends, set())


def _end_of_rank(planned: PlannedStep, folder: Path, outputs: Path, rank: int, code: int | None) -> End:
    if code == 0 and rank:  # the outputs are rank 0's
        return End(SUCCEEDED, 0, "", outcomes.SUCCEEDED)
    return attempts.LEFT if code is None else attempts.end_in(planned, rank_folder(folder, rank), outputs, code)


def rank_folder(folder: Path, rank: int) -> Path:
    """The part of an attempt's folder that is a rank's."""
    return Rank(rank, 0, {}).folder(folder)


_WORST_FIRST = (outcomes.OUT_OF_MEMORY, outcomes.DISK_LIMIT, outcomes.TIMED_OUT)


def agree(planned: PlannedStep, ends: Mapping[int, End], told: set[int]) -> End:
    """The end that decides, as the launcher of a gang judges its pods (`runtime/gangs/attempt_verdict.py`): all must
    have succeeded; a supervisor that says final; any sign that a rank was taken away; only then what failed by itself.
    """
    bad = {rank: end for rank, end in ends.items() if end.state != SUCCEEDED}
    if not bad:
        return ends[0]
    own = {rank: end for rank, end in bad.items() if rank not in told or end.state != INTERRUPTED}
    retry = planned.step.retry

    def strength(rank: int) -> tuple[int, bool, int]:
        end, last = bad[rank], len(_WORST_FIRST) + 2
        silent = end.rank is None  # killed: the others only tell that it was lost
        if end.code == outcomes.EXIT_FINAL:
            return 0, silent, rank
        if end.state == INTERRUPTED:
            return 1, not silent, rank
        if end.code == outcomes.EXIT_RUNTIME:
            return 2, silent, rank
        if end.outcome in _WORST_FIRST:
            return 3 + _WORST_FIRST.index(end.outcome), silent, rank
        if retry is not None and end.code in retry.final_exit_codes:
            return 1 + last, silent, rank
        # A signal's code is what the end of another rank does to this one, more often than a cause.
        return last + (2 if end.code < 128 else 3), silent, rank

    rank = min(own or bad, key=strength)
    end = bad[rank]
    because = f"rank {rank}: {end.because}" if end.rank is None else end.because
    return replace(end, because=because, rank=end.rank if end.rank in ends else rank, outputs={})
