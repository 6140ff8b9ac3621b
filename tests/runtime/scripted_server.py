"""A TCP server that answers as a test tells it to: for faults that no real server can be made to have."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator

Handler = Callable[["Peer"], None]


class Peer:
    """One connection, seen by the server."""

    def __init__(self, plain: socket.socket, number: int) -> None:
        self.socket, self.number = plain, number
        """`number` counts the connections, from 1."""
        self._data = b""

    def request(self) -> tuple[bytes, bytes]:
        """The head and the body of the next request; two empty ones when the client has gone."""
        while b"\r\n\r\n" not in self._data:
            if not self._more():
                return b"", b""
        head, _, self._data = self._data.partition(b"\r\n\r\n")
        length = 0
        for line in head.split(b"\r\n")[1:]:
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        if b"expect: 100-continue" in head.lower():
            self.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        while len(self._data) < length:
            if not self._more():
                return b"", b""
        body, self._data = self._data[:length], self._data[length:]
        return head, body

    def _more(self) -> bool:
        data = self.socket.recv(65536)
        self._data += data
        return bool(data)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def gone(self) -> None:
        """Wait until the client has closed its end."""
        while self._more():
            self._data = b""


class ScriptedServer:
    """Runs the handler for each connection, which ends with it."""

    def __init__(self, handler: Handler, context: ssl.SSLContext | None = None) -> None:
        self.connections = 0
        self._handler, self._context = handler, context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                plain, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(plain, self.connections), daemon=True).start()

    def _serve(self, plain: socket.socket, number: int) -> None:
        with contextlib.suppress(OSError), plain:
            if self._context is None:
                self._handler(Peer(plain, number))
                return
            with self._context.wrap_socket(plain, server_side=True) as secure:
                self._handler(Peer(secure, number))


Rule = Callable[[bytes], "bytes | None"]


class Broken(Exception):
    """What a rule raises to say no more than this, and close the connection."""

    def __init__(self, said: bytes) -> None:
        super().__init__("the connection is closed")
        self.said = said


def between(upstream: int, rule: Rule) -> Handler:
    """Answers as the rule says, which sees the head of each request; where it gives None the real server does."""

    def handle(peer: Peer) -> None:
        while True:
            head, body = peer.request()
            if not head:
                return
            try:
                said = rule(head)
            except Broken as end:
                peer.send(end.said)
                return
            if said is None:
                peer.send(_passed_on(upstream, head, body))
                return
            # What answers HEAD ends with its head.
            peer.send(said.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" if head.startswith(b"HEAD ") else said)

    return handle


def _passed_on(upstream: int, head: bytes, body: bytes) -> bytes:
    lines = [line for line in head.split(b"\r\n") if line.partition(b":")[0].lower() not in (b"expect", b"connection")]
    with socket.create_connection(("127.0.0.1", upstream), 60) as server:
        server.sendall(b"\r\n".join([*lines, b"connection: close", b"", body]))
        return b"".join(iter(lambda: server.recv(1 << 20), b""))


@contextlib.contextmanager
def scripted(handler: Handler, context: ssl.SSLContext | None = None) -> Iterator[ScriptedServer]:
    server = ScriptedServer(handler, context)
    try:
        yield server
    finally:
        server.close()
