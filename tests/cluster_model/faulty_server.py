"""A small HTTP server that answers like an API server, or fails in the ways in which one does."""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest

TOKEN = "a token/with+signs=="


class Said(NamedTuple):
    """What goes back over the wire."""

    status: int = 200
    body: bytes = b""
    kind: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    half: bool = False
    """Only half of the body is sent, and the connection is closed."""


def listed(*names: str, more: str = "", kind: str = "application/json") -> Said:
    document = {"items": [{"metadata": {"name": name}} for name in names], "metadata": {"continue": more}}
    return Said(200, json.dumps(document).encode(), kind)


def refused(status: int, reason: str = "") -> Said:
    """As an API server refuses: with a Status object."""
    document = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": status}
    return Said(status, json.dumps(document).encode())


Answering = Callable[[str, dict[str, list[str]]], Said]


def healthy(path: str, query: dict[str, list[str]]) -> Said:
    """One object of every kind, two pages of nodes, a closed door at the pods, and no Kueue."""
    if path == "/api/v1/nodes":
        return listed("second") if "continue" in query else listed("first", more=TOKEN)
    if path.endswith("/pods"):
        return refused(403, "Forbidden")
    if "kueue" in path:
        return Said(404, b"404 page not found\n", "text/plain; charset=utf-8")
    return listed("only")


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, answer: Answering = healthy) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer = answer
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.silent_for = 0.0
        self.tunnel = Said(407, b"")
        """What it says to a client that wants it to be a proxy for HTTPS."""
        self.scheme = "http"

    @property
    def address(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.server_port}"

    def paths(self) -> list[str]:
        return [path for path, _ in self.seen]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is what the tests are about."""


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.seen.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
        time.sleep(self.server.silent_for)
        address = urlsplit(self.path)
        self._say(self.server.answer(address.path, parse_qs(address.query)))

    do_POST = do_PATCH = do_DELETE = do_GET

    def do_CONNECT(self) -> None:
        self.server.seen.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
        self._say(self.server.tunnel)

    def _say(self, said: Said) -> None:
        self.send_response(said.status)
        self.send_header("Content-Type", said.kind)
        self.send_header("Content-Length", str(len(said.body)))
        for name, value in said.headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(said.body[: len(said.body) // 2] if said.half else said.body)
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on the terminal."""


@contextmanager
def serving(answer: Answering = healthy, certificate: Path | None = None) -> Iterator[Server]:
    server = Server(answer)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, certificate.with_suffix(".key"))
        server.socket = context.wrap_socket(server.socket, server_side=True)
        server.scheme = "https"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def certificate(folder: Path, name: str = "127.0.0.1") -> Path:
    """A certificate for one address that nobody has signed, with its key beside it."""
    if shutil.which("openssl") is None:
        pytest.skip("making a certificate needs openssl")
    file = folder / "server.crt"
    names = f"subjectAltName=IP:{name}" if name[0].isdigit() else f"subjectAltName=DNS:{name}"
    words = [
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=test",
    ]
    # Strict checks of a chain, which Python 3.13 has by default, want the key's use.
    words += ["-addext", names, "-addext", "keyUsage=critical,digitalSignature,keyCertSign"]
    words += ["-keyout", str(file.with_suffix(".key")), "-out", str(file)]
    subprocess.run(["openssl", *words], check=True, capture_output=True)
    return file


def kubeconfig(folder: Path, address: str, token: str = "mine", **cluster: object) -> str:
    file = folder / "kubeconfig"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        "clusters": [{"name": "here", "cluster": {"server": address, **cluster}}],
        "users": [{"name": "me", "user": {"token": token}}],
    }
    file.write_text(json.dumps(document))
    return str(file)
