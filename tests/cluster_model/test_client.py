"""The real Kubernetes client against a small server of our own: what goes over the wire, with every version of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from gpuflow.cluster.live import Reader, read_live
from gpuflow.errors import EnvironmentFailure


class Server(HTTPServer):
    """Two pages of nodes, a closed door, and a half answer for whoever asks for it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen: list[tuple[str, str | None]] = []
        self.answers_half = False


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.seen.append((self.path, self.headers.get("Authorization")))
        address = urlsplit(self.path)
        query = parse_qs(address.query)
        items, more = [{"metadata": {"name": "only"}}], ""
        if address.path == "/api/v1/nodes":
            name, more = ("second", "") if "continue" in query else ("first", "a token/with+signs==")
            items = [{"metadata": {"name": name}}]
        status = 403 if address.path.endswith("/pods") else 404 if "kueue" in address.path else 200
        body = json.dumps({"items": items, "metadata": {"continue": more}}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if self.server.answers_half else body)
        if self.server.answers_half:
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on the terminal."""


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    thread = threading.Thread(target=running.serve_forever, daemon=True)
    thread.start()
    yield running
    running.shutdown()
    running.server_close()


def kubeconfig(folder: Path, address: str) -> str:
    file = folder / "kubeconfig"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        "clusters": [{"name": "here", "cluster": {"server": address}}],
        "users": [{"name": "me", "user": {"token": "mine"}}],
    }
    file.write_text(json.dumps(document))
    return str(file)


def test_lists_are_read_page_by_page_with_the_token_of_the_kubeconfig(server: Server, tmp_path: Path) -> None:
    cluster = read_live("ns", kubeconfig=kubeconfig(tmp_path, f"http://127.0.0.1:{server.server_port}"))
    assert [item.name for item in cluster.of("Node")] == ["first", "second"]
    assert cluster.unread == {"Pod": "403 Forbidden"}
    assert {token for _, token in server.seen} == {"Bearer mine"}
    tokens = [parse_qs(urlsplit(path).query).get("continue") for path, _ in server.seen if "/nodes" in path]
    assert tokens == [None, ["a token/with+signs=="]]


def test_half_an_answer_and_no_answer_are_named(server: Server, tmp_path: Path) -> None:
    server.answers_half = True
    address = f"http://127.0.0.1:{server.server_port}"
    with pytest.raises(EnvironmentFailure, match="GF412"):
        read_live("ns", kubeconfig=kubeconfig(tmp_path, address))
    with pytest.raises(EnvironmentFailure, match="GF412"):
        read_live("ns", kubeconfig=kubeconfig(tmp_path, "http://127.0.0.1:1"), timeout=2)


def test_a_kubeconfig_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("clusters: 5\n")
    for file, context in ((str(broken), None), (str(tmp_path / "none"), None)):
        with pytest.raises(EnvironmentFailure, match="GF411"):
            Reader(context, file)
    with pytest.raises(EnvironmentFailure, match="GF411"):
        Reader("nowhere", kubeconfig(tmp_path, "http://127.0.0.1:1"))
