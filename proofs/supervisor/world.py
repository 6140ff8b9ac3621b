"""One execution: threads that move one at a time, a clock that stands still while they do, and who moves next."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from proofs.supervisor.choices import Choices

LONG = 200.0
"""Seconds of a delay: longer than the grace, the storage timeout and the question who owns the run together."""
MOST_MOVES = 4000


class Killed(BaseException):
    """The process is gone. Raised only after everything was looked at, to get the thread back."""


class Point:
    """Where a thread waits: what it does next, when it can, and what may happen instead."""

    def __init__(
        self,
        label: str,
        *,
        variants: tuple[tuple[str, str], ...] = (),
        changes: bool = False,
        shared: bool = False,
        hears: bool = False,
        ready: Callable[[], bool] | None = None,
        wake_at: float | None = None,
        effect: Callable[[], object] | None = None,
    ) -> None:
        self.label, self.variants, self.changes, self.shared, self.hears = label, variants, changes, shared, hears
        self.ready, self.wake_at, self.effect = ready, wake_at, effect


class Mover:
    """Something that moves: a thread of a supervisor, or a program."""

    def __init__(self, world: World, process: Any, name: str) -> None:
        self.world, self.process, self.name = world, process, name
        self.point = Point("begin")
        self.over = False
        self.frozen_until: float | None = None

    def act(self, variant: str) -> None:
        """What a program does; a thread acts by itself."""
        raise NotImplementedError

    @property
    def lives(self) -> bool:
        return not self.over

    def can_move(self) -> bool:
        if not self.lives or self.frozen_until is not None:
            return False
        point = self.point
        if point.ready is not None and point.ready():
            return True
        if point.wake_at is not None:
            return point.wake_at <= self.world.now
        return point.ready is None


def locked() -> threading.Lock:
    """A lock that is taken: who acquires it waits until another releases it."""
    lock = threading.Lock()
    lock.acquire()
    return lock


class Worker(threading.Thread):
    """A thread that is used again by the next execution."""

    idle: list[Worker] = []  # noqa: RUF012  # shared on purpose

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.wanted = locked()
        self.job: Callable[[], None] | None = None
        self.start()

    def run(self) -> None:
        while True:
            self.wanted.acquire()
            assert self.job is not None
            self.job()


class Actor(Mover):
    """A thread of a supervisor."""

    local = threading.local()

    def __init__(self, world: World, process: Any, name: str, work: Callable[[], object]) -> None:
        super().__init__(world, process, name)
        self.work, self.doomed = work, False
        self.variant = ""
        self._go = locked()
        self._worker = Worker.idle.pop() if Worker.idle else Worker()
        self._worker.job = self._run
        self._worker.wanted.release()

    @property
    def lives(self) -> bool:
        return not (self.over or self.process.gone)

    @classmethod
    def current(cls) -> Actor:
        found = getattr(cls.local, "actor", None)
        assert found is not None, "called outside a supervisor's thread"
        return found  # type: ignore[no-any-return]  # any kind of value

    def _run(self) -> None:
        Actor.local.actor = self
        self._go.acquire()
        try:
            if not self.doomed:
                self.work()
        except Killed:
            pass
        except BaseException as surprise:
            self.world.surprise(self, surprise)
        self.over = True
        self.world.pass_on(self)
        Worker.idle.append(self._worker)

    def pause(self, point: Point) -> str:
        """Hand over; what was decided about this point."""
        if self.doomed:
            raise Killed()
        self.point = point
        self.world.pass_on(self)
        if self.doomed:
            raise Killed()
        return self.variant

    def wait(self) -> None:
        self._go.acquire()

    def go(self) -> None:
        self._go.release()

    def unwind(self) -> None:
        """Get the thread back. What its code does on the way out is done to what no one looks at any more."""
        self.doomed = True
        if not self.over:
            self._go.release()
            self.world.done.acquire()


class World:
    """Everything of one execution but the supervisors' own code."""

    def __init__(self, choices: Choices) -> None:
        self.choices = choices
        self.now = 1000.0
        self.movers: list[Mover] = []
        self.processes: list[Any] = []
        self.trace: list[str] = []
        self.decided: set[str] = set()
        """The kinds of what was decided otherwise than by default."""
        self.violations: list[str] = []
        self.moves = 0
        self.numbers = 0
        self.waiting: list[Callable[[], None]] = []
        """Attempts that were not started yet."""
        self.due: Callable[[], bool] = lambda: True
        """Whether the next of them starts by itself now."""
        self.may_start_early = True
        self.seen: Callable[[], int] = lambda: 0
        """What the store looks like."""
        self.states: set[int] = set()
        """The states that were met: the store's objects, and what each thread and program does next."""
        self._current: Mover | None = None
        self.done = locked()
        self.closing = False
        self.mistake: Exception | None = None

    def tell(self, line: str) -> None:
        self.trace.append(f"{self.now - 1000:8.2f}  {line}")

    def violated(self, sentence: str) -> None:
        self.tell(f"VIOLATED: {sentence}")
        self.violations.append(sentence)

    def surprise(self, mover: Mover, surprise: BaseException) -> None:
        import traceback

        lines = "".join(traceback.format_exception(surprise)).strip()
        self.violated(f"{mover.name} ended with {type(surprise).__name__}: {surprise}\n{lines}")

    def number(self) -> int:
        """Instead of chance: a number that was not used before."""
        self.numbers += 1
        return self.numbers

    def run(self) -> None:
        """Until nothing moves any more, or something was violated."""
        self.pass_on(None)

    def pass_on(self, giver: Actor | None) -> None:
        """Decide what happens until a thread has to move; returns in the thread that gave when it is to go on.

        Decisions are made in the thread that stopped last, so that one which simply goes on costs no switch.
        """
        taker = self._step() if not self.closing else None
        if taker is giver and giver is not None and not giver.over:
            return
        if taker is not None:
            taker.go()
        elif giver is not None:
            self.done.release()
        if giver is None:
            if taker is not None:
                self.done.acquire()
        elif not giver.over:
            giver.wait()

    def _step(self) -> Actor | None:
        """The thread that moves next; None when there is nothing left to do."""
        try:
            while not self.violations:
                if self.waiting and self.due():
                    self._start()
                mover = self._next()
                if mover is None:
                    return None
                self.moves += 1
                if self.moves > MOST_MOVES:
                    self.violated(f"no end after {MOST_MOVES} moves")
                    return None
                taker = self._decide(mover)
                if taker is not None:
                    return taker
        except Exception as mistake:
            self.mistake = mistake
        return None

    def close(self) -> None:
        self.closing = True
        for mover in self.movers:
            if isinstance(mover, Actor):
                mover.unwind()
        if self.mistake is not None:
            raise self.mistake

    def _next(self) -> Mover | None:
        """Who goes on when nothing is decided: the one who went before, else the first who can; else time passes."""
        while True:
            if self._current is not None and self._current.can_move():
                return self._current
            for mover in self.movers:
                if mover.can_move():
                    return mover
            living = [mover for mover in self.movers if mover.lives and mover.frozen_until is None]
            times = [mover.point.wake_at for mover in living if mover.point.wake_at is not None]
            times += [mover.frozen_until for mover in self.movers if mover.frozen_until is not None]
            if not times:
                return None
            self.now = max(self.now, min(times))
            for mover in self.movers:
                if mover.frozen_until is not None and mover.frozen_until <= self.now:
                    mover.frozen_until = None
                    self.tell(f"{mover.name}: goes on with {mover.point.label}")
                    if mover.process.gone and mover.point.effect is not None:
                        self.tell(f"{mover.name}: the request was on its way: {mover.point.label}")
                        mover.point.effect()

    def _decide(self, mover: Mover) -> Actor | None:
        point = mover.point
        instead: list[tuple[str, str, Callable[[], Actor | None]]] = []
        for kind, label in point.variants:
            what = f"{mover.name}: {point.label}: {label}"
            instead.append((kind, what, lambda label=label: self._move(mover, label)))  # type: ignore[misc]  # the loop variable is bound here
        process = mover.process
        if point.hears and process.can_hear():
            instead.append(("notice", f"{process.name}: notice", process.notice))
        if point.changes and not process.gone:
            instead.append(("crash", f"{process.name}: killed before {point.label}", process.crash))
            if process.keeps_program():
                what = f"{process.name}: killed before {point.label}, its program lives on"
                instead.append(("crash", what, process.crash_alone))
        if point.shared:
            instead.append(("delay", f"{mover.name}: {point.label} takes long", lambda: self._freeze(mover)))
            if self.waiting and self.may_start_early:
                what = f"{mover.name}: {point.label} takes long; another attempt starts"
                instead.append(("delay", what, lambda: self._freeze(mover, start=True)))
        if point.shared or point.hears:
            if self.waiting and self.may_start_early:
                instead.append(("start", f"before {mover.name}: {point.label}", self._start))
            for other in self.movers:
                if other is not mover and other.can_move():
                    what = f"{other.name} goes before {mover.name}: {point.label}"
                    instead.append(("switch", what, lambda other=other: self._move(other, "")))  # type: ignore[misc]  # the loop variable is bound here
        if instead:
            doing = [(each.name, each.point.label, each.lives, each.frozen_until is None) for each in self.movers]
            self.states.add(hash((self.seen(), mover.name, *doing)))
        picked = self.choices.choose([kind for kind, _, _ in instead])
        if picked == 0:
            return self._move(mover, "")
        kind, label, act = instead[picked - 1]
        self.tell(f"* {kind}: {label}")
        self.decided.add(kind)
        return act()

    def _move(self, mover: Mover, variant: str) -> Actor | None:
        self._current = mover
        mover.process.moves += 1
        self.tell(f"{mover.name}: {mover.point.label}{f' ({variant})' if variant else ''}")
        if isinstance(mover, Actor):
            mover.variant = variant
            return mover
        mover.act(variant)
        return None

    def _freeze(self, mover: Mover, *, start: bool = False) -> None:
        mover.frozen_until = self.now + LONG
        if start:
            self._start()

    def _start(self) -> None:
        self.tell("another attempt starts")
        begun = len(self.movers)
        self.waiting.pop(0)()
        self._current = self.movers[begun] if len(self.movers) > begun else self._current
