"""A gang that its launcher's pod owns is not to outlive its launcher: rank 0 holds a connection to it.

Kubernetes deletes the gang with the launcher's pod. A pod whose container is killed, by an engine that ends a run or
for its memory, is not deleted: it stays where it is, failed, and the ranks would work on with nobody to read how they
end. So the launcher listens, says in a variable of the ranks where, and rank 0 stops its gang, as if it had been told
to, when nobody has answered there for a while. Where the launcher can never be reached, that is said, and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time

from gpuflow.runtime.base import units
from gpuflow.runtime.base.child import say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuflow.runtime.gangs.ranks.protocol import Place

VARIABLE = "GPUFLOW_LAUNCHER"
"""Where the launcher listens: `10.1.2.3:40001`, `[fd00::1]:40001`."""
MOST = 16
"""Connections that are held; a rank 0 that comes again replaces the oldest."""
_ANSWER, _AGAIN = 5.0, 1.0
_KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""Seconds and tries after which a node that is gone counts as gone."""


def greeting(digest: str) -> bytes:
    """The first line from the launcher, which proves that the address is still the launcher's."""
    return f"gpuflow gang {digest}\n".encode()


class LivenessServer:
    """The launcher's end: it accepts, greets, and is there."""

    def __init__(self, digest: str) -> None:
        self._greeting = greeting(digest)
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        self._listener = socket.create_server(("", 0), family=family, dualstack_ipv6=both, backlog=MOST)
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, name="gang-tether", daemon=True).start()

    def address(self, host: str) -> str:
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    def _accept(self) -> None:
        held: list[socket.socket] = []
        while True:
            try:
                connection, _ = self._listener.accept()
                connection.settimeout(_ANSWER)
                connection.sendall(self._greeting)
            except OSError:
                time.sleep(_AGAIN)
                continue
            held.append(connection)
            if len(held) > MOST:
                held.pop(0).close()


def hold(environ: Mapping[str, str], place: Place) -> None:
    """Rank 0's side, for the life of this process. Does nothing without a launcher that asks for it."""
    address = environ.get(VARIABLE, "")
    if address and not place.rank:
        threading.Thread(target=_watch, args=(address, place), name="gang-tether", daemon=True).start()


def _watch(address: str, place: Place) -> None:
    patience, reached, since = place.times.launcher, False, time.monotonic()
    while True:
        if (connection := _connect(address, place.name)) is not None:
            reached = True
            with connection, contextlib.suppress(OSError):
                while connection.recv(64):
                    pass
            since = time.monotonic()
            continue
        if time.monotonic() - since >= patience:
            break
        time.sleep(min(_AGAIN, patience))
    where = f"the launcher at {address} has not been there for {units.format_seconds(patience)}"
    if not reached:
        say(f"{where}; if it is lost, nobody stops this gang (does a NetworkPolicy keep rank 0 from it?)")
        return
    say(f"{where}: nobody would read how this gang ends; it stops")
    os.kill(os.getpid(), signal.SIGTERM)


def _connect(address: str, gang: str) -> socket.socket | None:
    """A connection to our launcher; None when another process has its address."""
    host, _, port = address.rpartition(":")
    try:
        connection = socket.create_connection((host.strip("[]"), int(port)), _ANSWER)
    except (OSError, ValueError):
        return None
    try:
        said = connection.recv(64)
        words = said.decode("ascii", "replace").split()
        if words[:2] == ["gpuflow", "gang"] and len(words) == 3 and f"-{words[2]}-" in gang:
            for name, value in _KEEPALIVE.items():
                if hasattr(socket, name):
                    connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            connection.settimeout(None)
            return connection
    except OSError:
        pass
    connection.close()
    return None
