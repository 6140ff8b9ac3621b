"""A bad network in front of a real server: refused, answered with 500, delayed, or cut in the middle of a transfer."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import cycle

SERVER_ERROR = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


FAULTS = ("refuse", None, "500", None, "delay", None, "cut", None)
"""What becomes of the first connection, the second and so on, over and over: how many are bad is no matter of luck."""
GOOD_FOR = 200_000
"""Bytes that a good connection passes before it breaks too: enough for every object here, not for a whole training."""


class Chaos:
    """A TCP proxy on this machine that spoils every second connection in one way or another."""

    def __init__(self, upstream: int, seed: int) -> None:
        self.upstream, self.chance, self._faults = upstream, random.Random(seed), cycle(FAULTS)
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
                fault = next(self._faults)
                self.spoiled += fault is not None
                threading.Thread(target=self._serve, args=(client, fault), daemon=True).start()

    def _serve(self, client: socket.socket, fault: str | None) -> None:
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
                limit = self.chance.randrange(200, 60_000) if fault == "cut" else GOOD_FOR
                back = threading.Thread(target=_pipe, args=(server, client, limit), daemon=True)
                back.start()
                _pipe(client, server, limit)
                back.join()


def _pipe(source: socket.socket, target: socket.socket, limit: int) -> None:
    """Copy until the end, or until so many bytes have passed; then both sides are cut off."""
    with suppress(OSError):
        while limit > 0:
            data = source.recv(min(limit, 65536))
            if not data:
                break
            target.sendall(data)
            limit -= len(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@contextmanager
def chaos(upstream: int, seed: int) -> Iterator[Chaos]:
    proxy = Chaos(upstream, seed)
    try:
        yield proxy
    finally:
        proxy.close()
