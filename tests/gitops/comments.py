"""GitHub's API for the comments of one pull request, on this machine: what tools/comment.py asks, and nothing more."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

BOT = {"login": "github-actions[bot]", "type": "Bot"}
TOKEN = "ghs_token"
REPOSITORY = "nlp/pipelines"
NUMBER = 7


@dataclass
class Comments:
    """The comments of the pull request, and what was asked."""

    url: str = ""
    present: list[dict[str, Any]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    answers: int = 0
    """With this status to everything, when it is not 0."""
    owner: str | None = None
    """Whose token it is, when it is a person's."""

    def add(self, body: str, user: dict[str, str]) -> dict[str, Any]:
        comment = {"id": 1000 + len(self.present), "user": user, "body": body}
        self.present.append(comment)
        return comment

    def answer(self, method: str, path: str, document: Any) -> tuple[int, Any]:
        self.asked.append(f"{method} {path}")
        if self.answers:
            return self.answers, {"message": "no"}
        if path == "/user":
            return (200, {"login": self.owner}) if self.owner else (403, {"message": "not for integrations"})
        listed = re.fullmatch(rf"/repos/{REPOSITORY}/issues/{NUMBER}/comments(?:\?per_page=(\d+)&page=(\d+))?", path)
        if listed and method == "GET":
            size, page = int(listed[1]), int(listed[2])
            return 200, self.present[(page - 1) * size : page * size]
        if listed and method == "POST":
            return 201, self.add(document["body"], {"login": self.owner, "type": "User"} if self.owner else BOT)
        one = re.fullmatch(rf"/repos/{REPOSITORY}/issues/comments/(\d+)", path)
        found = [each for each in self.present if one and each["id"] == int(one[1])]
        if method == "PATCH" and found:
            found[0]["body"] = document["body"]
            return 200, found[0]
        return 404, {"message": "Not Found"}


@contextmanager
def comments() -> Iterator[Comments]:
    """The API while the block runs."""
    kept = Comments()

    class Handler(BaseHTTPRequestHandler):
        def handle_one(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            allowed = self.headers["Authorization"] == f"Bearer {TOKEN}"
            document = json.loads(raw) if raw else None
            status, answer = kept.answer(self.command, self.path, document) if allowed else (401, {})
            text = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PATCH = handle_one

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    kept.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield kept
    finally:
        server.shutdown()
        server.server_close()
