"""The runtime's modules with a fake clock, fake processes and fake threads, for as long as the explorer runs.

Nothing of the ledger, the keeper, the restore, the running or the ending is replaced: only what they stand on.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import importlib
import os
import pkgutil
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

import gpuflow.runtime
from proofs.supervisor import process as processes
from proofs.supervisor.program import Program
from proofs.supervisor.storage import FolderStore
from proofs.supervisor.world import Actor, Point

SKIPPED = ("bundle", "probe", "main", "fsspec_store", "training")
"""Modules of the program's side and of the command line."""


def me() -> Any:
    """The process whose thread calls."""
    return Actor.current().process


class FakeChild:
    """The program, as the supervisor sees it."""

    own_group = True
    last_words = ""

    def __init__(self, command: Any, environ: Any, *_: Any, **__: Any) -> None:
        process = me()
        Actor.current().pause(Point("start the program", changes=True, shared=True, hears=True))
        process.scene.spawning(process, dict(environ))
        self.program = Program(process, dict(environ), process.scene.steps)
        process.program, process.spawned = self.program, True
        process.world.movers.append(self.program)
        self.pid, self.code = self.program.pid, None
        process.scene.spawned(process)

    def wait(self, timeout: float) -> Any:
        heard = me().wait_for_child(self.program, timeout)
        self.reap()
        return heard

    def send(self, number: int) -> None:
        self.program.signal(number)

    def group_lives(self) -> bool:
        return not self.program.over

    def remind(self, *, last: bool) -> bool:
        return False

    def end(self, patience: float, limit: float = 5.0, witness: Any = None) -> tuple[dict[int, Any], dict[int, Any]]:
        self.program.signal(9)
        self.reap()
        return {}, {}

    def reap(self) -> None:
        if self.program.over:
            self.code = self.program.code

    def drain(self) -> None:
        return


class FakeThread:
    """A thread that the scheduler moves."""

    def __init__(self, target: Callable[..., object], name: str = "thread", args: Any = (), **_: Any) -> None:
        self.target, self.name, self.args = target, name, args
        self.actor: Actor | None = None
        self.ended = False

    def start(self) -> None:
        def work() -> None:
            self.target(*self.args)
            self.ended = True

        self.actor = me().add_thread(self.name, work)

    def is_alive(self) -> bool:
        return self.actor is not None and not self.ended

    def join(self, timeout: float | None = None) -> None:
        world = me().world
        wake = None if timeout is None else world.now + timeout
        if self.is_alive():
            Actor.current().pause(Point(f"wait for {self.name}", ready=lambda: self.ended, wake_at=wake))


class FakeWatch:
    """Renames into a directory, as the programs tell them."""

    hears = True

    def __init__(self, path: str) -> None:
        self.path, self.poked, self.missed = path, False, False
        self.renamed: list[str] = []
        me().scene.watches.append(self)

    def is_gone(self) -> bool:
        return False

    def renew(self) -> bool:
        return True

    def wake(self) -> None:
        self.poked = True

    def wait(self, timeout: float) -> list[str]:
        if not (self.poked or self.renamed) and timeout > 0:
            wake_at = me().world.now + timeout
            ready = lambda: self.poked or bool(self.renamed)  # noqa: E731  # said once, used once
            Actor.current().pause(Point("look at the directory", ready=ready, wake_at=wake_at))
        self.poked = False
        names, self.renamed = self.renamed, []
        return names

    def close(self) -> None:
        return


class FakeProgressWatch:
    """What programs say of their progress decides nothing, and is not looked at."""

    def __init__(self, *_: Any) -> None:
        pass

    def end(self) -> None:
        return


def fake_time() -> Any:
    module = types.ModuleType("time")
    module.__dict__.update(time.__dict__)
    module.__dict__["monotonic"] = lambda: me().world.now
    module.__dict__["time"] = lambda: 1_700_000_000.0 + me().world.now
    module.__dict__["sleep"] = lambda seconds: processes.sleep(me().world, seconds)
    return module


def fake_os() -> Any:
    """The real one, but what is put in place is a point, chance is a count, and listings can fail."""
    module = types.ModuleType("os")
    module.__dict__.update(os.__dict__)

    def local(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def do(path: Any, *rest: Any, **named: Any) -> Any:
            actor = getattr(Actor.local, "actor", None)
            if actor is not None and not actor.over:
                target = str(rest[0] if rest else path)
                if target.startswith(actor.process.scene.root):
                    what = f"{name} {target[len(actor.process.scene.root) + 1 :]}"
                    actor.pause(Point(what, changes=True, shared=actor.process.scene.one_volume))
            return real(path, *rest, **named)

        return do

    def close(handle: int) -> None:
        actor = getattr(Actor.local, "actor", None)
        if actor is not None:
            actor.process.scene.unlock(handle)
        os.close(handle)

    module.__dict__["close"] = close
    for name in ("replace", "rename", "link"):
        module.__dict__[name] = local(name)
    module.__dict__["urandom"] = lambda count: me().world.number().to_bytes(2, "big").ljust(count, b"\0")
    module.__dict__["getpid"] = lambda: 1000 + me().world.processes.index(me())

    def broken() -> bool:
        actor = getattr(Actor.local, "actor", None)
        return actor is not None and id(actor) in FolderStore.failing

    def listing(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def do(*arguments: Any, **named: Any) -> Any:
            if broken():
                raise OSError(errno.EIO, "injected")
            return real(*arguments, **named)

        return do

    def walk(top: Any, topdown: bool = True, onerror: Any = None, followlinks: bool = False) -> Iterator[Any]:
        if broken():
            if onerror is not None:
                onerror(OSError(errno.EIO, "injected"))
            return
        yield from os.walk(top, topdown, onerror, followlinks)

    module.__dict__["scandir"], module.__dict__["listdir"] = listing("scandir"), listing("listdir")
    module.__dict__["walk"] = walk
    return module


def fake_locks() -> Any:
    """Locks that a process loses when it is gone."""
    module = types.ModuleType("fcntl")
    module.__dict__.update(fcntl.__dict__)

    def flock(handle: int, flags: int) -> None:
        process, place = me(), os.fstat(handle)
        key = (place.st_dev, place.st_ino)
        holder = process.scene.locks.get(key)
        if holder is not None and holder is not process and not holder.gone:
            raise OSError(errno.EWOULDBLOCK, "held by another")
        process.scene.locks[key] = process
        process.scene.handles[handle] = key

    module.__dict__["flock"] = flock
    return module


def end_processes(look: Callable[[], dict[int, Any]], seconds: float) -> dict[int, Any]:
    for program in look().values():
        program.signal(9)
    return {}


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "say": lambda sentence: me().world.tell(f"{me().name} says: {sentence}"),
    "open_store": lambda where, *_, **__: me().scene.open_store(where),
    "boot_id": lambda: me().node,
    "process_began": lambda pid: me().scene.process_began(me(), pid),
    "stop_is_pending": lambda: me().stop_is_pending(),
    "oom_kills": lambda: 0,
    "working_set": lambda: None,
    "attend": lambda action, *_, **__: action(),
}
"""Functions that are replaced wherever a module has them."""


class Fakes:
    """Puts the fakes in, and takes them out again."""

    def __init__(self) -> None:
        self._kept: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> Fakes:
        modules = {}
        for found in pkgutil.walk_packages(gpuflow.runtime.__path__, "gpuflow.runtime."):
            name = found.name.rpartition(".")[2]
            if name not in SKIPPED:
                with contextlib.suppress(ModuleNotFoundError):  # frameworks, which the supervisor does not use
                    modules[name] = importlib.import_module(found.name)
        threads = types.ModuleType("threading")
        threads.__dict__.update(threading.__dict__)
        threads.__dict__["Thread"] = FakeThread
        clock, system = fake_time(), fake_os()
        for module in modules.values():
            for name, fake in (("time", clock), ("os", system), ("threading", threads)):
                if isinstance(getattr(module, name, None), types.ModuleType):
                    self._put(module, name, fake)
            for name, function in FUNCTIONS.items():
                if callable(getattr(module, name, None)):
                    self._put(module, name, function)
        missed = set(FUNCTIONS) - {name for _, name, _ in self._kept}
        assert not missed, f"no module has them any longer: {missed}"
        child = modules["child"]
        self._put(child, "Child", FakeChild)
        self._put(child, "block_signals", lambda: None)
        self._put(child, "wake", lambda: setattr(me(), "woken", True))
        self._put(modules["keeper"], "Watch", FakeWatch)
        self._put(modules["running"], "ProgressWatch", FakeProgressWatch)
        owners = modules["directory_owner"]
        self._put(owners, "find_orphans", lambda family, ids, command=None: me().scene.orphans_of(me()))
        self._put(modules["container"], "end_processes", end_processes)
        if hasattr(modules["transfer"], "WORKERS"):
            self._put(modules["transfer"], "WORKERS", 1)  # files one after the other: their order is no one's concern
        modules["forget"].print = lambda *_: None
        self._locks, sys.modules["fcntl"] = sys.modules["fcntl"], fake_locks()
        return self

    def __exit__(self, *_: object) -> None:
        del sys.modules["gpuflow.runtime.state.forget"].print
        sys.modules["fcntl"] = self._locks
        for module, name, value in reversed(self._kept):
            setattr(module, name, value)
        self._kept.clear()

    def _put(self, module: Any, name: str, fake: Any) -> None:
        self._kept.append((module, name, getattr(module, name)))
        setattr(module, name, fake)
