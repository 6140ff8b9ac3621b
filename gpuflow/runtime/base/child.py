"""The program: started with clean signals in a process group of its own, its output passed through, everyone reaped.

All signals are blocked in the supervisor and taken one by one with `sigtimedwait`, so there are no handlers and no
races, and as process 1 of a container nothing is lost. Who is told to stop: a table in `runtime.base.container`.
Nothing the program starts outlives it: what it leaves behind becomes ours, and is ended.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
import time

from gpuflow.runtime.base import attempt_folder, container, signals
from gpuflow.runtime.base.signals import STOPS, stop_is_pending
from gpuflow.runtime.base.units import one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Protocol

    class OutputWatch(Protocol):
        """Who watches what a command leaves behind; `artifacts.outputs` has one."""

        def look(self) -> None: ...
        def note_killed(self, found: container.Processes) -> None: ...


__all__ = ["STOPS", "Child", "block_signals", "say", "stop_is_pending", "wake"]

_TAIL = 64 << 10
_LAUNCHER_ALONE = 1.0
block_signals = signals.hold


def wake() -> None:
    """End the main thread's wait, from another thread."""
    os.kill(os.getpid(), signals.WAKE)


class Child:
    """A running command. `code` is its exit code once it has ended, as a shell would give it."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        self.code: int | None = None
        self.own_group = not os.isatty(0)
        stop = environ.get(attempt_folder.VARIABLE)
        self._folder = attempt_folder.AttemptFolder(os.path.dirname(stop)) if stop else None
        self._mark = environ.get(container.VARIABLE, "").rpartition(",")[2]
        self._told: list[container.Process] = []
        self._later: list[container.Process] = []
        self._alone_since: float | None = None
        self.serves = False
        """Whether the command only looks after what it started: it lives longer, and nobody waits for it."""
        self.others_listen: Callable[[], bool] = lambda: False
        """Whether the command leads listeners where we cannot see them: those of mpirun in other pods."""
        self._inherits = container.inherit_orphans()
        self._pump = Pump()
        file_actions = [(os.POSIX_SPAWN_DUP2, end, number) for number, end in self._pump.ends.items()]
        options = {"setpgroup": 0} if self.own_group else {}
        try:
            # Before the program: where no thread can be had there must be no program either.
            self._pump.begin()
            self.pid = os.posix_spawnp(
                command[0],
                list(command),
                dict(environ),
                file_actions=file_actions,
                setsigmask=[],
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ, *signals.BLOCKED_SIGNALS],
                **options,  # type: ignore[arg-type]  # nothing, or the number of a group
            )
        finally:
            self._pump.close_ends()

    def wait(self, timeout: float) -> signal.Signals | None:
        """The next thing that happens: a stop signal is returned, others are passed on, the dead are buried."""
        until = time.monotonic() + max(0.0, timeout)
        while self.code is None:
            heard = signal.sigtimedwait(signals.BLOCKED_SIGNALS, max(0.0, until - time.monotonic()))
            if heard is None or heard.si_signo == signals.WAKE:
                return None
            if heard.si_signo in STOPS:
                return signal.Signals(heard.si_signo)
            if heard.si_signo == signal.SIGCHLD:
                self.reap()
            else:
                self.send(heard.si_signo)
        return None

    def send(self, number: int) -> None:
        """SIGKILL to everybody; any other signal by the table."""
        members = self.members()
        if self.pid not in members and self.code is None:
            self._group(number)  # it has just ended, or /proc cannot be read here
        if number == signal.SIGKILL:
            for process in members.values():
                container.signal_process(process, number)
            return
        listeners = self._folder.listening_pids() if self._folder is not None and number == signal.SIGTERM else set()
        roles = container.roles(
            members, self.pid, listeners, lambda pid: container.handles_signal(pid, number), container.is_shell
        )
        if number == signal.SIGTERM and self.others_listen():
            launcher = container.LAUNCHER
            roles = {pid: launcher if role == container.PROGRAM else role for pid, role in roles.items()}
        if self.serves:
            # The shell of an order: its end would be taken for that of the daemon, which must wait for those that save.
            shells = (pid for pid, role in roles.items() if role == container.WRAPPER and pid != self.pid)
            roles.update(dict.fromkeys([pid for pid in shells if members[pid].parent == self.pid], container.HELPER))
        now = [members[pid] for pid, role in roles.items() if container.WHEN[role] == container.AT_ONCE]
        if number == signal.SIGTERM:
            self._told = now
            self._later = [members[pid] for pid, role in roles.items() if container.WHEN[role] == container.LATER]
        for process in now:
            container.signal_process(process, number)

    def remind(self, *, last: bool) -> bool:
        """SIGTERM to launchers whose listeners are gone, or if this is the `last` moment. Whether any waits still."""
        if self._later and not self._has_work_left():
            # Without its workers a launcher ends by itself, and in better order than by a signal.
            self._alone_since = self._alone_since or time.monotonic()
            last = last or time.monotonic() - self._alone_since >= _LAUNCHER_ALONE
        if self._later and last:
            late, self._later = self._later, []
            self._told += late
            for process in late:
                container.signal_process(process, signal.SIGTERM)
        return bool(self._later)

    def _has_work_left(self) -> bool:
        told = (process for process in self._told if not (self.serves and process.pid == self.pid))
        return any(process.lives for process in told) or self.others_listen()

    def group_lives(self) -> bool:
        """Whether the command, or a process that got a stop signal, still runs."""
        return self.code is None or any(process.lives for process in (*self._told, *self._later))

    def members(self) -> container.Processes:
        """Every living process of the program, wherever it went: sessions of its own, daemons, orphans."""
        found = container.all_processes()
        ours = container.descendants(os.getpid(), found)
        for process in list(ours.values()):
            if self._is_foreign(process):
                for pid in (process.pid, *container.descendants(process.pid, found)):
                    ours.pop(pid, None)
        if not self._inherits and self._mark:
            ours.update((pid, found[pid]) for pid in found if self._mark in container.marks(pid))
        return ours

    def end(
        self, patience: float, limit: float = 5.0, witness: OutputWatch | None = None
    ) -> tuple[container.Processes, container.Processes]:
        """Leave nothing behind: a while for the rest to end by itself, then SIGKILL. What was killed, and what is left.

        After `limit` seconds what is left waits in the kernel or belongs to another user: nobody can end it from here.
        `witness` looks at the outputs at first, again when one that was left behind has ended by itself, and at those
        who must be killed.
        """
        until = time.monotonic() + patience
        found = first = self.members()
        if found and witness is not None:
            witness.look()
        while time.monotonic() < until and (self.code is None or found):
            time.sleep(0.01)
            self.reap()
            found = self.members()
            if witness is not None and not first.keys() <= found.keys():
                first = {pid: process for pid, process in first.items() if pid in found}
                witness.look()
        if found and witness is not None:
            witness.note_killed(found)
            found = self.members()
        if self.code is None and self.pid not in found:
            self._group(signal.SIGKILL)  # /proc cannot be read here
        left = container.end_processes(self.members, limit) if found else {}
        self.reap()
        return found, left

    def reap(self) -> None:
        """Reap every ended child, including orphans."""
        for pid, code in ended_children():
            if pid == self.pid:
                self.code = code

    def drain(self) -> None:
        """Pass on what is left of the output."""
        self._pump.drain()

    @property
    def last_words(self) -> str:
        return self._pump.tail.decode("utf-8", "replace")

    def _is_foreign(self, process: container.Process) -> bool:
        """What a storage driver started: our child, in our own group, without the mark."""
        if process.pid == self.pid or process.parent != os.getpid() or process.group != os.getpgrp():
            return False
        return self._mark not in container.marks(process.pid)

    def _group(self, number: int) -> None:
        try:
            if self.own_group:
                os.killpg(self.pid, number)
            elif self.code is None:
                os.kill(self.pid, number)
        except (ProcessLookupError, PermissionError):
            pass


class Pump(threading.Thread):
    """Carries output and error output through unchanged and remembers the end of it. Where both go to the same place
    they share one pipe, so that their order stays. A terminal is left alone."""

    def __init__(self) -> None:
        super().__init__(name="output", daemon=True)
        self.tail = b""
        self.ends: dict[int, int] = {}
        self._sources: dict[int, int] = {}
        kinds: dict[tuple[int, int], int] = {}
        for number in (1, 2):
            try:
                status = os.fstat(number)
            except OSError:
                continue
            if os.isatty(number):
                continue
            place = (status.st_dev, status.st_ino)
            if place in kinds:
                self.ends[number] = self.ends[kinds[place]]
                continue
            source, end = os.pipe()
            kinds[place] = number
            self.ends[number] = end
            self._sources[source] = number

    def begin(self) -> None:
        """Start; OSError where the machine is short of threads."""
        try:
            self.start()
        except RuntimeError as refusal:
            raise OSError(errno.EAGAIN, str(refusal)) from None

    def close_ends(self) -> None:
        for end in set(self.ends.values()):
            os.close(end)

    def run(self) -> None:
        import select

        poll = select.poll()
        for source in self._sources:
            poll.register(source, select.POLLIN)
        open_sources = set(self._sources)
        while open_sources:
            for source, _ in poll.poll():
                if not (data := os.read(source, 1 << 16)):
                    poll.unregister(source)
                    open_sources.discard(source)
                    continue
                self.tail = (self.tail + data)[-_TAIL:]
                if not _write(self._sources[source], data):
                    # Nobody reads any more: the program must find that out as it would without us.
                    poll.unregister(source)
                    open_sources.discard(source)
                    os.close(source)

    def drain(self) -> None:
        """A daemon the program left behind may hold the pipe open: wait for the rest, but not forever."""
        self.join(0.5 if self._sources else 0.0)


def _write(number: int, data: bytes) -> bool:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(number, view) :]
        except BlockingIOError:
            time.sleep(0.005)
        except OSError:
            return False
    return True


def ended_children() -> Iterator[tuple[int, int]]:
    """The children that have ended, each with its exit code as a shell would give it."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def say(sentence: str) -> None:
    """A line of the supervisor's own, on the error output."""
    try:
        if sys.stderr is not None:  # it was closed before we were started
            sys.stderr.write(f"gpuflow-run: {one_line(sentence)}\n")
            sys.stderr.flush()
    except (OSError, ValueError):
        pass
