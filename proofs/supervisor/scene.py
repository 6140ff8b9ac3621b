"""The stage: nodes, directories, who is started where and when. Each scenario is one way things are set up."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from collections.abc import Sequence
from typing import Any

from gpuflow.runtime.base import attempt_folder
from gpuflow.runtime.base import options as table
from gpuflow.runtime.state import forget
from gpuflow.runtime.supervise import supervisor
from proofs.supervisor.choices import Choices
from proofs.supervisor.forger import KEY, forge
from proofs.supervisor.invariants import Invariants
from proofs.supervisor.process import Process
from proofs.supervisor.program import Program, Save
from proofs.supervisor.storage import FakeStore, FolderStore, Storage
from proofs.supervisor.world import World

PLACE = "/dev/shm" if os.path.isdir("/dev/shm") else None
_count = itertools.count()


class Start:
    """One start: on which node, in which directory, with which options."""

    def __init__(self, node: str, *extra: str, directory: str = "", item: str = "", command: str = "run") -> None:
        self.node, self.extra, self.item, self.command = node, extra, item, command
        self.directory = directory or node


class Scenario:
    """A setup and what is varied in it."""

    def __init__(
        self,
        name: str,
        says: str,
        starts: Sequence[Start],
        *,
        steps: int = 2,
        orphans: bool = False,
        folder: bool = False,
        one_volume: bool = False,
        notices: bool = True,
        after: tuple[int, ...] = (0, 79),
        together: bool = False,
        overlap: bool = True,
        signed: bool = False,
    ) -> None:
        self.name, self.says, self.starts, self.steps = name, says, starts, steps
        self.orphans, self.folder, self.one_volume, self.notices = orphans, folder, one_volume, notices
        self.together, self.overlap, self.after = together, overlap, after
        """Exit codes after which the engine starts no other attempt."""
        self.signed = signed


class Scene:
    """One execution of a scenario."""

    def __init__(self, scenario: Scenario, choices: Choices) -> None:
        self.scenario, self.world = scenario, World(choices)
        self.world.scene = self  # type: ignore[attr-defined]  # set for the test, or without stubs
        self.root = f"{PLACE or '/tmp'}/gpuflow-explorer-{os.getpid()}-{next(_count)}"
        self.steps, self.notices, self.orphans = scenario.steps, scenario.notices, scenario.orphans
        self.one_volume = scenario.one_volume
        self.saves: dict[str, Save] = {}
        self.locks: dict[Any, Process] = {}
        self.handles: dict[int, tuple[int, int]] = {}
        self.watches: list[Any] = []
        self.storage = Storage(self.world)
        self.invariants = Invariants(self)
        self.world.waiting = [lambda start=start: self._start(start) for start in scenario.starts]
        self.world.due, self.world.may_start_early = self._due, scenario.overlap
        self.world.seen = lambda: hash(frozenset(self.storage.data))

    @property
    def key_file(self) -> str:
        return os.path.join(self.root, "key")

    def run(self) -> World:
        """Plays it. What is left on disk goes."""
        os.makedirs(self.root)
        if self.scenario.signed:
            with open(self.key_file, "wb", opener=lambda path, flags: os.open(path, flags, 0o400)) as file:
                file.write(KEY + b"\n")
        try:
            self.world.run()
        finally:
            self.world.close()
            self._close_locks()
            shutil.rmtree(self.root, ignore_errors=True)
        return self.world

    def _due(self) -> bool:
        """The engine starts an attempt when the one before it is gone and was not the last word."""
        if self.scenario.together:
            return True
        alive = [process for process in self.world.processes if not process.gone]
        codes = [process.code for process in self.world.processes if process.gone]
        return not alive and not (set(codes) & set(self.scenario.after))

    def _start(self, start: Start) -> None:
        name = f"{'ABCDEF'[len(self.world.processes)]}"
        words = ["--pipeline", "p", "--run-id", "r", "--step", "s", "--store", "fake://store"]
        words += ["--item", start.item] if start.item else []
        outputs = os.path.join(self.root, f"outputs-{start.node}")
        words += ["--checkpoint-dir", os.path.join(self.root, start.directory), "--outputs-dir", outputs]
        words += ["--output", "result", "--every", "0s", "--failures", "1", "--interruptions", "9"]
        words += ["--key-file", self.key_file] if self.scenario.signed else []
        words += [*start.extra, "--", "program"]
        options = table.parse(words, {})
        base = attempt_folder.identity_path(options.pipeline, options.run_id, options.step, options.item)
        if start.command == "forge":
            store = self.open_store(options.store)
            process = Process(self, f"{name}(forger)", base=base, node=start.node, work=lambda: forge(store, base))
            process.forges = True
        elif start.command == "forget":
            process = Process(self, f"{name}(forget)", base=base, node=start.node, work=lambda: _forget(options))
            process.may_begin_anew = True
        else:
            process = Process(self, name, base=base, node=start.node, work=lambda: supervisor.run(options, {}))
            process.options = options
            process.may_begin_anew = "again" in start.extra
            process.may_renew = "renew" in start.extra

    def open_store(self, where: str) -> FakeStore:
        root = where.partition("://")[2]
        if self.scenario.folder:
            return FolderStore(self.storage, root, os.path.join(self.root, "store"))
        return FakeStore(self.storage, root)

    # What the fakes tell.

    def spawning(self, process: Process, environ: dict[str, str]) -> None:
        self.invariants.spawning(process, environ)

    def renamed(self, directory: str, name: str) -> None:
        for watch in self.watches:
            if watch.path == directory:
                watch.renamed.append(name)

    def spawned(self, process: Process) -> None:
        self.invariants.spawned(process)

    def ended(self, process: Process) -> None:
        if process.may_begin_anew and process.code == 0 and process.options is None and not process.number:
            self.invariants.forgot(process.base)
        self.invariants.ended(process)

    def _programs(self, process: Process) -> list[Program]:
        """Living programs that a process can see: those of its own node, where nodes share process numbers."""
        others = [other for other in self.world.processes if other.node == process.node]
        return [other.program for other in others if other.program is not None and not other.program.over]

    def process_began(self, process: Process, pid: int) -> int | None:
        return 1 if any(program.pid == pid for program in self._programs(process)) else None

    def orphans_of(self, process: Process) -> dict[int, Program]:
        """Programs of the same run on the same machine whose supervisor is gone."""
        found = [program for program in self._programs(process) if program.process.gone]
        return {program.pid: program for program in found if program.process.base == process.base}

    def unlock(self, handle: int) -> None:
        """A lock goes with the handle it was taken by."""
        key = self.handles.pop(handle, None)
        if key is not None:
            self.locks.pop(key, None)

    def _close_locks(self) -> None:
        for handle, (device, inode) in self.handles.items():
            with contextlib.suppress(OSError):
                place = os.fstat(handle)
                if (place.st_dev, place.st_ino) == (device, inode):
                    os.close(handle)


def _forget(options: table.Options) -> int:
    """As the command line does it."""
    try:
        return forget.forget(options)
    except table.BadOption:
        return 78
