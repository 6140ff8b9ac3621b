"""A proxy before a real API server that answers some requests wrongly, for faults no server produces on request.

`python -m tests.targets.airflow.faulty KUBECTL KUBECONFIG FOLDER '[{"request": "POST .*/pods", "status": 500}]'` serves
inside the cluster's network and writes a kubeconfig that leads here. What is not ordered is the real server's answer.

An order: `request` (a pattern for "METHOD path"), `times` (1), and what to do: `status` (answer with this error
instead; with `done` after doing what was asked), or `cut` (break the connection in the middle of the real answer).
"""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit


class Orders:
    """What is still to go wrong."""

    def __init__(self, orders: list[dict[str, Any]]) -> None:
        self._left = [{"times": 1, **order} for order in orders]
        self._lock = threading.Lock()

    def next(self, request: str) -> dict[str, Any]:
        with self._lock:
            for order in self._left:
                if order["times"] and re.fullmatch(order["request"], request):
                    order["times"] -= 1
                    print("FAULT", json.dumps({**order, "request": request}), flush=True)
                    return order
        return {}


class Handler(BaseHTTPRequestHandler):
    """One request, passed on to `kubectl proxy`, which knows how to reach and to convince the real server."""

    orders: Orders
    port: int
    protocol_version = "HTTP/1.1"

    def _do(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        order = self.orders.next(f"{self.command} {urlsplit(self.path).path}")
        refused = "status" in order
        answer = self._real(body) if not refused or order.get("done") else None
        if refused or answer is None:
            self._refuse(order["status"])
        else:
            self._answer(*answer, cut=bool(order.get("cut")))

    def _real(self, body: bytes) -> tuple[int, str, bytes]:
        passed = {name: value for name, value in self.headers.items() if name in ("Accept", "Content-Type")}
        upstream = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        upstream.request(self.command, self.path, body or None, passed)
        answer = upstream.getresponse()
        found = answer.status, answer.headers.get("Content-Type", "application/json"), answer.read()
        upstream.close()
        return found

    def _refuse(self, status: int) -> None:
        words = {"kind": "Status", "code": status, "reason": "Ordered", "message": "ordered by the test"}
        self._answer(status, "application/json", json.dumps(words).encode())

    def _answer(self, status: int, kind: str, answer: bytes, *, cut: bool = False) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(answer) + cut))
        self.end_headers()
        self.wfile.write(answer[: len(answer) // 2] if cut else answer)
        self.close_connection = cut

    do_GET = do_POST = do_DELETE = do_PATCH = do_PUT = _do

    def log_message(self, *_: Any) -> None:
        """Quiet."""


def main(kubectl: str, kubeconfig: str, folder: str, orders: str) -> None:
    words = [kubectl, f"--kubeconfig={kubeconfig}", "proxy", "--port=0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as proxy:
        try:
            assert proxy.stdout is not None
            port = int(proxy.stdout.readline().rpartition(":")[2])
            handler = type("Ordered", (Handler,), {"orders": Orders(json.loads(orders)), "port": port})
            server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
            config = {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "faulty",
                "clusters": [{"name": "faulty", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
                "users": [{"name": "nobody", "user": {}}],
                "contexts": [{"name": "faulty", "context": {"cluster": "faulty", "user": "nobody"}}],
            }
            (Path(folder) / "faulty.kubeconfig").write_text(json.dumps(config))
            print("READY", flush=True)
            server.serve_forever()
        finally:
            proxy.terminate()


if __name__ == "__main__":
    main(*sys.argv[1:])
