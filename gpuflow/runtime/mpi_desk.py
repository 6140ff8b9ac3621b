"""Rank 0's desk: here the agents of its mpirun ask, and from here their commands go to the ranks."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket

from gpuflow.runtime import gang_words as words
from gpuflow.runtime import mpi
from gpuflow.runtime.child import say
from gpuflow.runtime.directory import discard
from gpuflow.runtime.gang_line import Broken, Line, Star

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gpuflow.runtime.gang_hub import Hub
    from gpuflow.runtime.gang_words import Message

_LOCAL = "127.0.0.1"


class Desk(Star):
    """A connection for each agent, and the order that it waits for. It shares the hub's lock: they call each other."""

    def __init__(self, hub: Hub) -> None:
        super().__init__(hub.times)
        self.lock = hub.lock
        self._hub = hub
        self.folder = ""
        self.hosts: list[mpi.Host] = []
        self._ranks: dict[str, int] = {}
        self._closed = False
        self._last = 0
        self._waiting: dict[int, tuple[int, Line]] = {}
        """By the number of the order: its rank, and the agent that asked."""
        self._agents: list[Line] = []
        self._listener: socket.socket | None = None

    def open(self, environ: Mapping[str, str], *places: str) -> None:
        """Write what mpirun reads, and listen for its agents; BadOption where that cannot be."""
        own, self.hosts = self._all_hosts()
        self._ranks = {f"rank-{host.rank}": host.rank for host in self.hosts}
        self._ranks.update((host.name, host.rank) for host in self.hosts)
        self.folder = mpi.folder(environ, *places)
        mpi.write(self.folder, self.hosts, own)
        self._listener = mpi.listener(self.folder)
        self.selector.register(self._listener, selectors.EVENT_READ, None)
        self._hub.desk = self
        self.start()

    def variables(self) -> dict[str, str]:
        """What rank 0's program gets, so that its mpirun needs no flags."""
        return mpi.variables(self.folder, self._hub.place.size)

    def over(self, code: int | None) -> None:
        """Rank 0's program has ended: the other ranks wait for no more orders."""
        with self.lock:
            if not self._closed:
                self._closed = True
                self._hub.tell("over", code=code)

    def close(self) -> None:
        """Leave nothing behind. Whoever still waits for an order finds the connection closed."""
        self.end()
        with self.lock:  # the hub looks whether there is a desk, and then calls it
            self._hub.desk = None
        if self._listener is not None:
            self._listener.close()
        for line in self._agents:
            line.close()
        if self.folder:
            discard(self.folder)

    def others_listen(self) -> bool:
        return self._hub.others_listen()

    # -- what a rank says, told by the hub's thread

    def hear(self, rank: int, message: Message) -> None:
        order = words.number(message, "order")
        found = None if order is None else self._waiting.get(order)
        if order is None or found is None or found[0] != rank:
            return  # of an order that nobody waits for any more
        what = message["say"]
        facts = {"to": message.get("to"), "data": words.whole(message, "data")}
        if what == "returned":
            del self._waiting[order]
            facts = {"code": words.number(message, "code")}
        self._answer(found[1], what, **facts)

    def lose(self, rank: int, why: str) -> None:
        """Nothing more will be heard from a rank: mpirun must not wait for it."""
        for order, (whose, line) in list(self._waiting.items()):
            if whose == rank:
                del self._waiting[order]
                self._answer(line, "no", because=f"rank {rank} is lost: {why}")

    # -- what the thread does

    def on_event(self, line: Line | None, mask: int) -> None:
        if line is None:
            assert self._listener is not None
            with contextlib.suppress(OSError):
                connection, _ = self._listener.accept()
                fresh = Line(connection, "an agent of mpirun")
                self._agents.append(fresh)
                self.selector.register(connection, selectors.EVENT_READ, fresh)
            return
        if line.closed:
            return
        try:
            for message in line.read():
                self._ask(line, message)
        except Broken:
            self._drop(line)

    def on_beat(self) -> None:
        """An agent gives no sign of life, and needs none: the kernel tells of its end."""

    def on_tick(self, now: float) -> None:
        # Also those whose order has returned: mpirun may be slow to read.
        for line in list(self._agents):
            if line.unsent:
                self._flush(line)

    def forgive(self, now: float) -> None:
        """Nobody is called silent here."""

    def _ask(self, line: Line, message: Message) -> None:
        host, command = words.text(message, "host"), words.whole(message, "command")
        rank = self._ranks.get(host)
        if message["say"] != "ask" or not command or line.rank is not None:
            self._answer(line, "no", because="the agent said what nobody understands here")
        elif rank is None:
            known = ", ".join(each.name for each in self.hosts[:8]) + (", …" if len(self.hosts) > 8 else "")
            self._answer(line, "no", because=f"{host} is no host of this gang; those are {known}")
        elif self._closed:
            self._answer(line, "no", because="rank 0's program has ended")
        elif rank == 0:
            self._answer(line, "here")
        else:
            self._send(line, rank, command)

    def _send(self, line: Line, rank: int, command: str) -> None:
        self._last += 1
        hub, order = self._hub, self._last
        member = hub.members.get(rank)
        line.rank = rank
        self._waiting[order] = (rank, line)
        agent = os.path.join(self.folder, mpi.AGENT)
        facts: dict[str, Any] = {"order": order, "command": command, "agent": agent}
        if hub.keys is not None and member is not None:
            nonce = words.text(member.hello, "nonce")
            facts["proof"] = hub.keys.sign(nonce, words.order_sign(hub.place.name, rank, order, command, agent))
        if not hub.tell_one(rank, "run", **facts):
            self.lose(rank, "it is not connected")

    def _answer(self, line: Line, what: str, **facts: Any) -> None:
        try:
            line.write(words.pack(what, **facts))
        except Broken:
            self._drop(line)

    def _flush(self, line: Line) -> None:
        try:
            line.flush()
        except Broken:
            self._drop(line)

    def _drop(self, line: Line) -> None:
        """An agent is gone. mpirun has ended it where its order was still waited for: what it started must end too."""
        with contextlib.suppress(KeyError, ValueError):
            self.selector.unregister(line.socket)
        line.close()
        if line in self._agents:
            self._agents.remove(line)
        for order, (rank, other) in list(self._waiting.items()):
            if other is line:
                del self._waiting[order]
                self._hub.tell_one(rank, "hangup", order=order)

    def _all_hosts(self) -> tuple[str, list[mpi.Host]]:
        """Where the members reach us, and all ranks as hosts."""
        hub = self._hub
        with hub.lock:
            lines = [hub.members[rank] for rank in range(1, hub.place.size) if rank in hub.members]
            own = _LOCAL
            if lines:
                with contextlib.suppress(OSError):
                    own = str(lines[0].socket.getsockname()[0])
            members = [(line.peer, words.number(line.hello, "slots") or 0) for line in lines]
            found = mpi.hosts([(own, hub.place.slots or 0), *members])
        if not any(host.slots for host in found[1:]) and len(found) > 1:
            say("no rank but 0 has a slot for mpirun: the others have nothing to do")
        return mpi.plain_address(own) or own, found
