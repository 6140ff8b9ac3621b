"""What a run waits for, in one thread: programs that end, moments that come, signals, and lines that somebody types.

Ends are told by the kernel (a pidfd for each program), so that a wait costs nothing however long it is.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import selectors
import signal
import threading
import time
from collections.abc import Callable, Iterator
from subprocess import Popen
from typing import Any

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LOOK = 0.1
"""How often programs are looked at where the kernel has no pidfd."""


class Events:
    """The waits of one run. Everything that is called is called from `wait`."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._unseen: dict[int, tuple[Popen[bytes], Callable[[int], None]]] = {}
        """Programs for which there is no pidfd."""
        self.signals: list[int] = []
        """Stop signals that nobody has taken yet."""

    def watch(self, process: Popen[bytes], ended: Callable[[int], None]) -> None:
        """Call `ended` with the exit code once the program has ended."""
        try:
            handle = os.pidfd_open(process.pid)
        except (AttributeError, OSError):
            self._unseen[process.pid] = (process, ended)
            return

        def reap() -> None:
            self._selector.unregister(handle)
            os.close(handle)
            ended(process.wait())

        self._selector.register(handle, selectors.EVENT_READ, reap)

    def at(self, moment: float, act: Callable[[], None]) -> None:
        """Call `act` at a moment of `time.monotonic()`."""
        heapq.heappush(self._timers, (moment, next(self._numbers), act))

    def read(self, handle: int, act: Callable[[], None]) -> None:
        """Call `act` whenever something can be read."""
        self._selector.register(handle, selectors.EVENT_READ, act)

    def forget(self, handle: int) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(handle)

    def wait(self) -> None:
        """Wait for the next thing, and do what belongs to it."""
        limit: float | None = None
        if self._timers:
            limit = max(0.0, self._timers[0][0] - time.monotonic())
        if self._unseen:
            limit = _LOOK if limit is None else min(limit, _LOOK)
        for key, _ in [] if self.signals else self._selector.select(limit):
            key.data()
        for pid, (process, ended) in list(self._unseen.items()):
            if (code := process.poll()) is not None:
                del self._unseen[pid]
                ended(code)
        while self._timers and self._timers[0][0] <= time.monotonic():
            heapq.heappop(self._timers)[2]()

    @contextlib.contextmanager
    def stop_signals(self) -> Iterator[None]:
        """Take Ctrl-C, SIGTERM and the loss of the terminal as events, where this is the thread that gets them."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        source, sink = os.pipe()
        os.set_blocking(source, False)
        os.set_blocking(sink, False)

        def drain() -> None:
            with contextlib.suppress(BlockingIOError):
                os.read(source, 4096)

        def note(number: int, _: Any) -> None:
            self.signals.append(number)

        self._selector.register(source, selectors.EVENT_READ, drain)
        wanted = [number for number in STOPS if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN]
        before = {number: signal.signal(number, note) for number in wanted}
        woken = signal.set_wakeup_fd(sink, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(woken)
            for number, handler in before.items():
                signal.signal(number, handler)
            self._selector.unregister(source)
            os.close(source)
            os.close(sink)

    def close(self) -> None:
        self._selector.close()
