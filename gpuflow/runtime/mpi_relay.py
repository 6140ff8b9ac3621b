"""A rank's side of mpirun's orders: its supervisor takes them from rank 0, and from nobody else, and hands them on."""

from __future__ import annotations

import base64
import contextlib
import os
import selectors

from gpuflow.runtime import gang_words as words
from gpuflow.runtime import mpi
from gpuflow.runtime.child import say
from gpuflow.runtime.directory import discard
from gpuflow.runtime.gang_line import Broken, Line, Star

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuflow.runtime.gang_spoke import Spoke
    from gpuflow.runtime.gang_words import Message

REFUSED = 255
PATIENCE = 5.0
"""Seconds that what mpirun started may take to end by itself, once rank 0's program has ended."""


class Relay(Star):
    """Between the spoke and the rank's own program (`mpi_worker`). It shares the spoke's lock: they call each other."""

    def __init__(self, spoke: Spoke, environ: Mapping[str, str], *places: str) -> None:
        super().__init__(spoke.times)
        self.lock = spoke.lock
        self._spoke = spoke
        self.leaders_code: int | None = None
        """The exit code of rank 0's program, once it has ended."""
        self._closed = False
        self._worker: Line | None = None
        self._early: list[bytes] = []
        """What came before our program was up."""
        self._last = 0
        self._copies: list[str] = []
        """Folders of rank 0 that we made here, for an agent of the same name."""
        self.folder = mpi.folder(environ, *places)
        try:
            self._listener = mpi.listener(self.folder)
        except BaseException:
            discard(self.folder)
            raise
        self.selector.register(self._listener, selectors.EVENT_READ, None)
        spoke.take_order = self.take
        self.start()

    @property
    def socket(self) -> str:
        return os.path.join(self.folder, mpi.SOCKET)

    def take(self, message: Message) -> None:
        """What rank 0 says of its mpirun's orders; called by the spoke's thread."""
        what, order = message["say"], words.number(message, "order") or 0
        if what == "over":
            self.leaders_code = words.number(message, "code")
            self.finish(PATIENCE)
        elif what == "hangup":
            self._hand("hangup", order=order)
        else:
            why = self._refusal(message, order) or self._no_agent(words.text(message, "agent"))
            if why is None:
                self._last = order
                self._hand("run", order=order, command=words.whole(message, "command"))
            else:
                say(f"an order was refused: {why}")
                note = base64.b64encode(f"gpuflow-run: rank {self._spoke.place.rank} refused it: {why}\n".encode())
                self._spoke.say("printed", order=order, to=2, data=note.decode("ascii"))
                self._spoke.say("returned", order=order, code=REFUSED)

    def finish(self, patience: float | None) -> None:
        """Take no more orders. What runs may end by itself, within `patience` seconds, or in the grace of a stop."""
        with self.lock:
            if not self._closed:
                self._closed = True
                self._hand("over", patience=patience)

    def close(self) -> None:
        self._spoke.take_order = lambda message: None
        self.end()
        self._listener.close()
        if self._worker is not None:
            self._worker.close()
        for place in (self.folder, *self._copies):
            discard(place)

    def _refusal(self, message: Message, order: int) -> str | None:
        """Why a command is not run. It came over the connection to rank 0; with a key that must be proved as well."""
        spoke, command = self._spoke, words.whole(message, "command")
        if not command or order <= self._last:
            return "it is none, or came twice"
        if self._closed:
            return "the attempt is over on this rank"
        if spoke.keys is not None and not spoke.keys.verify(
            message.get("proof"),
            spoke.nonce,
            words.order_sign(spoke.place.name, spoke.place.rank, order, command, words.text(message, "agent")),
        ):
            return "it is not signed with the key or the secret of this gang"
        return None

    def _no_agent(self, path: str) -> str | None:
        """Open MPI's daemon starts nothing on other hosts, and yet ends if the agent is not where mpirun has it."""
        if not path or os.path.exists(path):
            return None
        if not mpi.is_agent(path):
            return f"{path[:200]} is no place for mpirun's agent"
        try:
            place = os.path.dirname(path)
            os.makedirs(os.path.dirname(place), exist_ok=True)
            os.mkdir(place, 0o700)
            self._copies.append(place)
            mpi.write_program(path, "echo 'gpuflow-run: only rank 0 starts commands elsewhere' >&2\nexit 255\n")
        except OSError as refusal:
            return f"mpirun's agent {path} cannot be had here too: {refusal.strerror or refusal}"
        return None

    def _hand(self, what: str, **facts: object) -> None:
        message = words.pack(what, **facts)
        if self._worker is None:
            self._early.append(message)
        else:
            self._write(message)

    # -- what the thread does

    def on_event(self, line: Line | None, mask: int) -> None:
        if line is None:
            self._let_in()
            return
        try:
            for message in line.read():
                self._pass_on(message)
        except Broken:
            self._forget(line)

    def on_beat(self) -> None:
        """Our own program is our child: its end is seen without signs of life."""

    def on_tick(self, now: float) -> None:
        if self._worker is not None and self._worker.unsent:
            self._write(b"")

    def forgive(self, now: float) -> None:
        """Nobody is called silent here."""

    def _let_in(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self._listener.accept()
            if self._worker is not None:
                connection.close()  # there is one
                return
            self._worker = Line(connection, "our program")
            self.selector.register(connection, selectors.EVENT_READ, self._worker)
            early, self._early = self._early, []
            self._write(b"".join(early))

    def _pass_on(self, message: Message) -> None:
        order = words.number(message, "order")
        if message["say"] == "printed":
            self._spoke.say("printed", order=order, to=message.get("to"), data=words.whole(message, "data"))
        elif message["say"] == "returned":
            self._spoke.say("returned", order=order, code=words.number(message, "code"))

    def _write(self, message: bytes) -> None:
        assert self._worker is not None
        try:
            self._worker.write(message)
        except Broken:
            self._forget(self._worker)

    def _forget(self, line: Line) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self.selector.unregister(line.socket)
        line.close()
