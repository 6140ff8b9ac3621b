"""Who gets alerts in tests: a local HTTP server and a local mail server, which keep what they are sent."""

from __future__ import annotations

import json
import socketserver
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Received:
    """One request."""

    path: str
    headers: dict[str, str]
    """By their names in lower case."""
    body: Any


class Receiver:
    """The HTTP server. `answer` says status and text for a request; by default all is well, in Slack's words too."""

    def __init__(self, host: str = "127.0.0.1", answer: Callable[[Received], tuple[int, str]] | None = None) -> None:
        self.got: list[Received] = []
        self.answer = answer or (lambda request: (200, '{"ok":true}'))
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                request = Received(self.path, headers, json.loads(text))
                outer.got.append(request)
                status, said = outer.answer(request)
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("Location", said)
                self.send_header("Content-Length", str(len(said.encode())))
                self.end_headers()
                self.wfile.write(said.encode())

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer((host, 0), Handler)
        self.url = f"http://{host}:{self._http.server_port}"
        self.host, self.port = host, self._http.server_port

    def __enter__(self) -> Receiver:
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def waited(self, count: int, seconds: float) -> list[Received]:
        """What there is when so many have come, or when the time is up."""
        return _waited(self.got, count, seconds)


class MailBox:
    """The mail server: it takes everything, and keeps each mail's text."""

    def __init__(self) -> None:
        self.got: list[str] = []
        outer = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                self._say("220 here")
                for raw in self.rfile:
                    word = raw.decode("utf-8", "replace").strip().upper()
                    if word == "DATA":
                        self._say("354 go on")
                        outer.got.append(self._mail())
                    self._say("221 bye" if word == "QUIT" else "250 ok")
                    if word == "QUIT":
                        return

            def _mail(self) -> str:
                lines = []
                for raw in self.rfile:
                    if raw == b".\r\n":
                        break
                    lines.append(raw.decode("utf-8", "replace"))
                return "".join(lines)

            def _say(self, text: str) -> None:
                self.wfile.write(f"{text}\r\n".encode())

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]

    def __enter__(self) -> MailBox:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def waited(self, count: int, seconds: float) -> list[str]:
        """What there is when so many have come, or when the time is up."""
        return _waited(self.got, count, seconds)


def _waited(got: list[Any], count: int, seconds: float) -> list[Any]:
    end = time.monotonic() + seconds
    while len(got) < count and time.monotonic() < end:
        time.sleep(0.2)
    return list(got)


def main(host: str, file: str) -> None:
    """Serve in the foreground: the first line of the file is the port, each further line one request."""
    with open(file, "a", encoding="utf-8") as kept, Receiver(host) as receiver:
        kept.write(f"{receiver.port}\n")
        written = 0
        while True:
            kept.flush()
            time.sleep(0.2)
            for each in receiver.got[written:]:
                kept.write(json.dumps({"path": each.path, "headers": each.headers, "body": each.body}) + "\n")
                written += 1


if __name__ == "__main__":
    main(*sys.argv[1:])
