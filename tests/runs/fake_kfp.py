"""A small HTTP server that answers as a KFP does, or fails in the ways in which what stands before one does."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit


class Question(NamedTuple):
    """What came over the wire."""

    method: str
    path: str
    query: dict[str, str]
    body: Any
    headers: dict[str, str]


class Said(NamedTuple):
    """What goes back."""

    status: int = 200
    body: bytes = b"{}"
    kind: str = "application/json"
    location: str = ""


def said(body: Any, status: int = 200) -> Said:
    return Said(status, json.dumps(body).encode())


def refused(status: int, words: str) -> Said:
    """As KFP's gateway refuses."""
    return said({"error": words, "code": 5, "message": words}, status)


Answering = Callable[[Question], Said]


class FakeKfp:
    """Answers by a function; keeps what it was asked."""

    def __init__(self, answering: Answering) -> None:
        self.asked: list[Question] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                parts = urlsplit(self.path)
                content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                query = {key: values[0] for key, values in parse_qs(parts.query).items()}
                body = json.loads(content) if content else None
                question = Question(self.command, parts.path, query, body, dict(self.headers))
                outer.asked.append(question)
                answer = answering(question)
                self.send_response(answer.status)
                self.send_header("Content-Type", answer.kind)
                self.send_header("Content-Length", str(len(answer.body)))
                if answer.location:
                    self.send_header("Location", answer.location)
                self.end_headers()
                self.wfile.write(answer.body)

            do_GET = do_POST = do_DELETE = _answer

            def log_message(self, *words: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def paths(self, method: str) -> list[str]:
        return [question.path for question in self.asked if question.method == method]


@contextmanager
def serving(answering: Answering) -> Iterator[FakeKfp]:
    kfp = FakeKfp(answering)
    thread = threading.Thread(target=kfp.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield kfp
    finally:
        kfp.server.shutdown()
        kfp.server.server_close()
