"""A bad network in front of a real server: refused, answered with 500, delayed, or cut in the middle of a transfer."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

SERVER_ERROR = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Chaos:
    """A TCP proxy on this machine; `rate` of its connections are spoiled in one way or another."""

    def __init__(self, upstream: int, seed: int, rate: float) -> None:
        self.upstream, self.chance, self.rate = upstream, random.Random(seed), rate
        self.spoiled = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        fault = self.chance.choice(["refuse", "500", "delay", "cut"]) if self.chance.random() < self.rate else None
        self.spoiled += fault is not None
        with suppress(OSError), client:
            if fault == "refuse":
                return
            if fault == "500":
                client.recv(65536)
                client.sendall(SERVER_ERROR)
                return
            if fault == "delay":
                time.sleep(self.chance.random())
            with socket.create_connection(("127.0.0.1", self.upstream)) as server:
                limit = self.chance.randrange(200, 60_000) if fault == "cut" else None
                back = threading.Thread(target=_pipe, args=(server, client, limit), daemon=True)
                back.start()
                _pipe(client, server, limit)
                back.join()


def _pipe(source: socket.socket, target: socket.socket, limit: int | None) -> None:
    """Copy until the end, or until so many bytes have passed; then both sides are cut off."""
    with suppress(OSError):
        while limit is None or limit > 0:
            data = source.recv(65536 if limit is None else min(limit, 65536))
            if not data:
                break
            target.sendall(data)
            limit = None if limit is None else limit - len(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@contextmanager
def chaos(upstream: int, seed: int, rate: float) -> Iterator[Chaos]:
    proxy = Chaos(upstream, seed, rate)
    try:
        yield proxy
    finally:
        proxy.close()
