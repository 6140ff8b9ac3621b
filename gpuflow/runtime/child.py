"""The program: started with clean signals in a process group of its own, its output passed through, everyone reaped.

All signals are blocked in the supervisor and taken one by one with `sigtimedwait`, so there are no handlers and no
races, and as process 1 of a container nothing is lost.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

STOPS = (signal.SIGTERM, signal.SIGINT)
_WAKE = signal.SIGRTMIN + 6
_FORWARDED = (
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
    signal.SIGWINCH,
    signal.SIGCONT,
)
SIGNALS = frozenset({*STOPS, *_FORWARDED, signal.SIGCHLD, _WAKE})
_TAIL = 64 << 10


def block_signals() -> None:
    """Before any thread starts: threads inherit the mask."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


def stop_is_pending() -> bool:
    """Whether someone has asked us to stop and was not yet heard."""
    return any(number in signal.sigpending() for number in STOPS)


def wake() -> None:
    """End the main thread's wait, from another thread."""
    os.kill(os.getpid(), _WAKE)


class Child:
    """A running command. `code` is its exit code once it has ended, as a shell would give it."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        self.code: int | None = None
        self.own_group = not os.isatty(0)
        self._pump = Pump()
        file_actions = [(os.POSIX_SPAWN_DUP2, end, number) for number, end in self._pump.ends.items()]
        options = {"setpgroup": 0} if self.own_group else {}
        try:
            self.pid = os.posix_spawnp(
                command[0],
                list(command),
                dict(environ),
                file_actions=file_actions,
                setsigmask=[],
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ, *SIGNALS],
                **options,  # type: ignore[arg-type]  # nothing, or the number of a group
            )
        finally:
            self._pump.close_ends()
        self._pump.start()

    def wait(self, timeout: float) -> signal.Signals | None:
        """The next thing that happens: a stop signal is returned, others are passed on, the dead are buried."""
        until = time.monotonic() + max(0.0, timeout)
        while self.code is None:
            heard = signal.sigtimedwait(SIGNALS, max(0.0, until - time.monotonic()))
            if heard is None or heard.si_signo == _WAKE:
                return None
            if heard.si_signo in STOPS:
                return signal.Signals(heard.si_signo)
            if heard.si_signo == signal.SIGCHLD:
                self.reap()
            else:
                self.send(heard.si_signo)
        return None

    def send(self, number: int) -> None:
        """To the whole group: a shell does not pass signals on to what it runs."""
        try:
            if self.own_group:
                os.killpg(self.pid, number)
            else:
                os.kill(self.pid, number)
        except ProcessLookupError:
            pass

    def group_lives(self) -> bool:
        """Whether anything of the program is left, its shell apart."""
        if not self.own_group:
            return self.code is None
        try:
            os.killpg(self.pid, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def reap(self) -> None:
        """Bury every dead child, also those a container's process 1 inherits."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.pid:
                self.code = _exit_code(status)

    def drain(self) -> None:
        """Pass on what is left of the output."""
        self._pump.drain()

    @property
    def last_words(self) -> str:
        return self._pump.tail.decode("utf-8", "replace")


class Pump(threading.Thread):
    """Carries output and error output through unchanged and remembers the end of it.

    Where both go to the same place they share one pipe, so that their order stays. A terminal is left alone.
    """

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
                data = os.read(source, 1 << 16)
                if not data:
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
        """A daemon the program left behind may hold the pipe open: wait for the rest, but not for ever."""
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


def _exit_code(status: int) -> int:
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def say(sentence: str) -> None:
    """A line of the supervisor's own, on the error output."""
    try:
        sys.stderr.write(f"gpuflow-run: {sentence}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        pass
