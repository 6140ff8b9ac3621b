"""The two programs that start mpirun's processes: the agent beside mpirun, and the worker on the other ranks.

`gpuflow-run mpi-agent SOCKET [options of ssh] HOST COMMAND…` is what mpirun calls in the place of ssh. It asks rank 0's
supervisor to have the command run on that host, prints what it prints, and ends with its exit code; 255 when it could
not be run, as ssh does. When mpirun ends it, the command is told to stop too.

`gpuflow-run mpi-worker SOCKET` is the program of a rank that runs what rank 0's mpirun starts there. It starts each
order with a shell, as sshd would, in a process group of its own. What the order prints goes to this rank's log, and
back to the agent that asked. It ends when there are no more orders and none runs. SIGTERM is for those it started, who
get it from the supervisor themselves; so it is ignored here.
"""

from __future__ import annotations

import base64
import contextlib
import os
import selectors
import signal
import socket
import sys
import time

from gpuflow.runtime.base import files
from gpuflow.runtime.base.child import ended_children
from gpuflow.runtime.gangs.ranks import protocol
from gpuflow.runtime.gangs.ranks.connection import ConnectionClosed, Line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpuflow.runtime.gangs.ranks.protocol import Message

EXIT_FAILED = 255
_WITH_VALUE = "BbcDEeFIiJLlmOopQRSWw"
"""Options of ssh whose value may be the next word."""
LONGEST = 48 << 10
"""Bytes of a command: it must fit into one line of the star."""


def agent_main(given: Sequence[str], _: Mapping[str, str]) -> int:
    """Ask, and be the command as far as mpirun can see."""
    host, command = split(given[1:])
    if not host or not command:
        return _refuse("mpirun named no host or no command; it calls: agent HOST COMMAND…")
    line = protocol.pack("ask", host=host, command=command)
    if len(line) > LONGEST:
        return _refuse(f"the command for {host} has {len(line)} bytes, and the most is {LONGEST}")
    try:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(given[0])
        connection.sendall(line)
        with connection, connection.makefile("rb") as stream:
            return _follow(stream, command)
    except OSError as refusal:
        return _refuse(f"rank 0's supervisor does not answer: {refusal.strerror or refusal}")


def split(given: Sequence[str]) -> tuple[str, str]:
    """Host and command line, as ssh reads them: the command is for a shell, with the quotes that mpirun put there."""
    rest = list(given)
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if len(option) == 2 and option[1] in _WITH_VALUE and rest:
            rest.pop(0)
    host = rest.pop(0).rpartition("@")[2] if rest else ""
    return host, " ".join(rest).strip()


def _follow(stream: object, command: str) -> int:
    for line in stream:  # type: ignore[attr-defined]  # a file of bytes
        message = protocol.unpack(line)
        said = message["say"]
        if said == "printed":
            with contextlib.suppress(OSError):  # mpirun reads no more; what the command does still counts
                files.write_all(
                    2 if message.get("to") == 2 else 1, base64.b64decode(protocol.long_text(message, "data"))
                )
        elif said == "returned":
            code = protocol.number(message, "code")
            return EXIT_FAILED if code is None else code
        elif said == "here":
            os.execvp("sh", ["sh", "-c", command])
        elif said == "no":
            return _refuse(protocol.text(message, "because"))
    return _refuse("rank 0's supervisor has ended")


def _refuse(sentence: str) -> int:
    print(f"gpuflow-run: {sentence}", file=sys.stderr)
    return EXIT_FAILED


_TICK = 0.05
_CHUNK = 8 << 10
_MOST_BACK = 256 << 10
"""Bytes of an order's output that go back to mpirun. All of it is in the log."""
_AFTER_EXIT = 0.5
"""Seconds for the rest of the output, where something that the order left behind holds the pipe open."""
_TERM_TO_KILL = 2.0
CANNOT_START = 127


class Order:
    """A command that was started. `code` is its exit code, as a shell gives it."""

    def __init__(self, number: int, command: str) -> None:
        self.number = number
        self.code: int | None = None
        self.ended_at = 0.0
        self.told_at: float | None = None
        self.sent = 0
        self.pipes: dict[int, int] = {}
        ends = {}
        for to in (1, 2):
            source, ends[to] = os.pipe()
            os.set_blocking(source, False)
            self.pipes[source] = to
        try:
            self.pid = os.posix_spawnp(
                "sh",
                ["sh", "-c", command],
                os.environ,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    *((os.POSIX_SPAWN_DUP2, end, to) for to, end in ends.items()),
                ],
                setpgroup=0,
                setsigmask=[],
                setsigdef=[signal.SIGTERM, signal.SIGINT, signal.SIGPIPE],
            )
        except OSError:
            for source in self.pipes:
                os.close(source)
            raise
        finally:
            for end in ends.values():
                os.close(end)

    def tell(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def stop(self, now: float) -> None:
        """SIGTERM, and SIGKILL a while later."""
        if self.told_at is None:
            self.told_at = now
            self.tell(signal.SIGTERM)
        elif now - self.told_at > _TERM_TO_KILL:
            self.tell(signal.SIGKILL)


class Worker:
    """All orders of one rank, and the connection to its supervisor."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._orders: dict[int, Order] = {}
        self._hung_up: set[int] = set()
        self._selector = selectors.DefaultSelector()
        self._selector.register(line.socket, selectors.EVENT_READ)
        self._is_over = False
        self._until: float | None = None
        """When orders that still run are told to stop; None: the supervisor sees to it."""

    def serve(self) -> int:
        """Until there is nothing more to do. 0, whatever became of the orders: mpirun judges them."""
        try:
            while not (self._is_over and not self._orders and not self._line.has_unsent):
                self._turn()
        except ConnectionClosed as end:
            print(f"gpuflow-run: the supervisor is gone: {end}", file=sys.stderr)
            for order in self._orders.values():
                order.tell(signal.SIGKILL)
            return 1
        return 0

    def _turn(self) -> None:
        for key, _ in self._selector.select(_TICK):
            if key.fileobj is self._line.socket:
                for message in self._line.read():
                    self._hear(message)
            else:
                self._read(key.fd, key.data)
        now = time.monotonic()
        self._reap(now)
        for order in list(self._orders.values()):
            if order.number in self._hung_up or (self._until is not None and now >= self._until):
                order.stop(now)
            if order.code is not None and (not order.pipes or now - order.ended_at > _AFTER_EXIT):
                self._return(order)
        self._line.flush()

    def _hear(self, message: Message) -> None:
        what, number = message["say"], protocol.number(message, "order") or 0
        if what == "over":
            self._is_over = True
            patience = message.get("patience")
            self._until = None if patience is None else time.monotonic() + float(patience)
        elif what == "hangup" and number in self._orders:
            self._hung_up.add(number)
        elif what == "run":
            try:
                order = self._orders[number] = Order(number, protocol.long_text(message, "command"))
            except OSError as refusal:
                self._say("printed", order=number, to=2, data=_encode(f"sh: {refusal.strerror or refusal}\n".encode()))
                self._say("returned", order=number, code=CANNOT_START)
                return
            for source in order.pipes:
                self._selector.register(source, selectors.EVENT_READ, order)

    def _read(self, source: int, order: Order) -> None:
        try:
            data = os.read(source, _CHUNK)
        except BlockingIOError:
            return
        if not data:
            self._selector.unregister(source)
            os.close(source)
            del order.pipes[source]
            return
        to = order.pipes[source]
        with contextlib.suppress(OSError):  # nobody reads our log
            files.write_all(to, data)
        if order.number not in self._orders or order.sent >= _MOST_BACK:
            return
        order.sent += len(data)
        self._say("printed", order=order.number, to=to, data=_encode(data))
        if order.sent >= _MOST_BACK:
            note = "\ngpuflow-run: what follows is in this rank's log alone\n"
            self._say("printed", order=order.number, to=2, data=_encode(note.encode()))

    def _reap(self, now: float) -> None:
        for pid, code in ended_children():
            for order in self._orders.values():
                if order.pid == pid:
                    order.code, order.ended_at = code, now

    def _return(self, order: Order) -> None:
        """Its exit code. What it left in the background goes on, and so does that one's output to the log."""
        del self._orders[order.number]
        self._hung_up.discard(order.number)
        self._say("returned", order=order.number, code=order.code)

    def _say(self, what: str, **facts: object) -> None:
        self._line.write(protocol.pack(what, **facts))


def worker_main(given: Sequence[str], _: Mapping[str, str]) -> int:
    """Serve the supervisor that listens there."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(given[0])
    return Worker(Line(connection, "the supervisor")).serve()


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
