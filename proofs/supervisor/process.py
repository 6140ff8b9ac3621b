"""A supervisor as a process: its threads, its signals, its program, and how it dies."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from proofs.supervisor.world import Actor, Point, World

if TYPE_CHECKING:
    from proofs.supervisor.program import Program
    from proofs.supervisor.scene import Scene

POLL = 3.0


class Process:
    """One `gpuflow-run`, or one command beside it."""

    def __init__(self, scene: Scene, name: str, *, base: str, node: str, work: Callable[[], int]) -> None:
        self.scene, self.world, self.name, self.base, self.node = scene, scene.world, name, base, node
        self.identity = base
        self.gone = False
        self.killed = False
        self.code: int | None = None
        self.told = False
        self.pending: list[int] = []
        self.woken = False
        self.program: Program | None = None
        self.number, self.attempt_id = 0, f"unclaimed-{name}"
        self.spawned = False
        self.work = work
        self.threads = self.moves = 0
        self.options: Any = None
        self.may_begin_anew = self.may_renew = False
        self.forges = False
        """Whether what it writes is none of the run's: no one may believe it."""
        self.world.processes.append(self)
        self.world.movers.append(Actor(self.world, self, name, self._main))

    def _main(self) -> None:
        code = self.work()
        self.code, self.gone = code, True
        self.world.tell(f"{self.name}: exit code {code}")
        self.scene.ended(self)

    def add_thread(self, name: str, work: Callable[[], object]) -> Actor:
        self.threads += 1
        actor = Actor(self.world, self, f"{self.name}.{name}", work)
        self.world.movers.append(actor)
        return actor

    def can_hear(self) -> bool:
        return not (self.gone or self.told) and self.scene.notices

    def notice(self) -> None:
        self.told = True
        self.pending.append(signal.SIGTERM)

    def keeps_program(self) -> bool:
        return self.program is not None and not self.program.over and self.scene.orphans

    def crash(self) -> None:
        if self.program is not None:
            self.program.signal(signal.SIGKILL)
        self.crash_alone()

    def crash_alone(self) -> None:
        self.gone = self.killed = True
        self.scene.ended(self)

    # What the supervisor's own code calls.

    def stop_is_pending(self) -> bool:
        if self.can_hear():
            Actor.current().pause(Point("ask whether to stop", hears=True))
        return bool(self.pending)

    def wait_for_child(self, program: Program, timeout: float) -> signal.Signals | None:
        actor = Actor.current()
        until = self.world.now + max(0.0, timeout)

        def ready() -> bool:
            return program.over or bool(self.pending) or self.woken

        while True:
            if not ready() and self.world.now < until:
                actor.pause(Point("wait for the program", ready=ready, wake_at=until))
            if self.pending:
                return signal.Signals(self.pending.pop(0))
            if self.woken:
                self.woken = False
                return None
            if program.over or self.world.now >= until:
                return None


def sleep(world: World, seconds: float) -> None:
    """Short sleeps are polls: they last until something of the same process has moved, or for some seconds."""
    actor = Actor.current()
    wake = world.now + max(0.0, seconds)
    if seconds >= 0.2:
        actor.pause(Point(f"sleep {seconds:g} s", wake_at=wake))
        return
    process, moved = actor.process, actor.process.moves
    actor.pause(Point("poll", ready=lambda: process.moves > moved, wake_at=max(wake, world.now + POLL)))
