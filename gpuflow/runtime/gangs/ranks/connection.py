"""One connection of a gang, and the thread that listens to all of them."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time

from gpuflow.runtime.gangs.ranks import protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuflow.runtime.gangs.ranks.protocol import Message, Times

_TICK = 0.1
_MOST_UNSENT = 1 << 20
"""Most bytes that wait for a peer who does not read."""
_READ = 64 << 10


class ConnectionClosed(Exception):
    """The connection is over, and why."""


class Line:
    """One connection: lines of JSON, of bounded length in both directions, nothing ever waited for."""

    def __init__(self, connection: socket.socket, peer: str) -> None:
        self.socket, self.peer = connection, peer
        self.rank: int | None = None
        self.nonce = ""
        self.hello: Message = {}
        """What a member said of itself."""
        connection.setblocking(False)
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.opened = self.heard = time.monotonic()
        self.closed = False
        self._in, self._out = b"", b""

    def read(self) -> list[Message]:
        """The messages that have come; ConnectionClosed at the end, and for what is none."""
        try:
            data = self.socket.recv(_READ)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError as refusal:
            raise ConnectionClosed(refusal.strerror or str(refusal)) from None
        if not data:
            raise ConnectionClosed("its connection was closed")
        *lines, self._in = (self._in + data).split(b"\n")
        if len(self._in) > protocol.LONGEST or any(len(line) > protocol.LONGEST for line in lines):
            raise ConnectionClosed(f"it sent a line of more than {protocol.LONGEST} bytes")
        try:
            found = [protocol.unpack(line) for line in lines]
        except protocol.BadMessage as refusal:
            raise ConnectionClosed(f"what it sent cannot be read: {refusal}") from None
        if found:
            self.heard = time.monotonic()
        return found

    def write(self, message: bytes) -> None:
        """Send it, now or when there is room; ConnectionClosed when nobody reads."""
        self._out += message
        self.flush()

    def flush(self) -> None:
        try:
            while self._out:
                self._out = self._out[self.socket.send(self._out) :]
        except (BlockingIOError, InterruptedError):
            if len(self._out) > _MOST_UNSENT:
                raise ConnectionClosed("it does not read") from None
        except OSError as refusal:
            raise ConnectionClosed(refusal.strerror or str(refusal)) from None

    @property
    def has_unsent(self) -> bool:
        return bool(self._out)

    def close(self) -> None:
        self.closed = True
        with contextlib.suppress(OSError):
            self.socket.close()


class ConnectionThread(threading.Thread):
    """The thread of either side. `lock` protects its state; callers poll for changes."""

    def __init__(self, times: Times) -> None:
        super().__init__(name="gang", daemon=True)
        self.times = times
        self.lock = threading.RLock()
        self.selector = selectors.DefaultSelector()
        self._over = threading.Event()

    def run(self) -> None:
        last = time.monotonic()
        next_beat = 0.0
        while not self._over.is_set():
            events = self.selector.select(_TICK)
            now = time.monotonic()
            with self.lock:
                # What came while this machine stood still is read before anyone is called silent.
                for key, _ in events:
                    self._on_event(key.data)
                if now - last > self.times.lost / 2:
                    self.forgive(now)
                if now >= next_beat:
                    next_beat = now + self.times.beat
                    self.on_beat()
                self.on_tick(now)
            last = now

    def _on_event(self, line: Line | None) -> None:
        """A connection can be read, or, without a line, a new connection waits."""
        if line is None:
            self._accept()
            return
        try:
            for message in [] if line.closed else line.read():
                self._hear(line, message)
                if line.closed:
                    return
        except ConnectionClosed as end:
            self._drop(line, str(end))

    def _write(self, line: Line, message: bytes) -> None:
        try:
            line.write(message)
        except ConnectionClosed as end:
            self._drop(line, str(end))

    def _close(self, line: Line) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self.selector.unregister(line.socket)
        line.close()

    def _accept(self) -> None:
        """Somebody knocks, where this side listens."""
        raise NotImplementedError

    def _hear(self, line: Line, message: Message) -> None:
        """What a peer says."""
        raise NotImplementedError

    def _drop(self, line: Line, why: str) -> None:
        """A connection is over."""
        raise NotImplementedError

    def on_beat(self) -> None:
        """It is time for a sign of life, where the other side needs one: the kernel tells of the end of a process."""

    def on_tick(self, now: float) -> None:
        """Time has passed."""
        raise NotImplementedError

    def forgive(self, now: float) -> None:
        """This process was paused: reset the timers, since the peers were not silent."""

    def end(self) -> None:
        self._over.set()
        if self.is_alive():
            self.join(2.0)
