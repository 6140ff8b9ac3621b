"""A server that answers as Airflow's REST API does, from a table of answers that were recorded."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qsl, unquote, urlsplit

Body = dict[str, Any]
RUN = "dags/sweep/dagRuns/nightly"


def task(task_id: str, state: str | None, index: int = -1, tries: int = 1, **more: Any) -> Body:
    """A task instance, as Airflow 3.3 describes it, without what nobody reads."""
    return {
        "id": f"01994a7c-{task_id}-{index}",
        "dag_id": "sweep",
        "dag_run_id": "nightly",
        "task_id": task_id,
        "map_index": index,
        "state": state,
        "try_number": tries,
        "max_tries": 2,
        "operator": "GpuPodOperator",
        "start_date": None if state is None else "2026-11-19T20:00:00Z",
        "end_date": "2026-11-19T20:01:00Z" if state in ("success", "failed", "skipped", "upstream_failed") else None,
        "note": None,
        **more,
    }


class Airflow:
    """The answers by path, and what was asked. A number is a status, a function makes an answer of the request."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {
            "version": {"version": "3.3.2", "git_version": None},
            RUN: {"dag_run_id": "nightly", "dag_id": "sweep", "state": "running", "note": None},
            "importErrors": {"import_errors": [], "total_entries": 0},
        }
        self.tokens: list[Any] = []
        """What the next logins get; then always `good`."""
        self.asked: list[tuple[str, str, Any]] = []
        self.headers: dict[str, str] = {}
        self.page = 100
        handler = type("Handler", (_Handler,), {"airflow": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def tasks(self, *tasks: Body, after: dict[str, list[str]] | None = None) -> None:
        """The task instances of the run, and which task follows which."""
        self.answers[f"{RUN}/taskInstances"] = ("task_instances", list(tasks))
        names = after or {each["task_id"]: [] for each in tasks}
        self.answers["dags/sweep/tasks"] = {
            "tasks": [{"task_id": name, "downstream_task_ids": names[name]} for name in sorted(names)]
        }

    def sent(self, method: str) -> list[tuple[str, Any]]:
        """Path and body of each request of a method."""
        return [(path, body) for each, path, body in self.asked if each == method]

    def answer(self, method: str, url: str, body: Any, token: str) -> tuple[int, Any]:
        split = urlsplit(url)
        path, query = unquote(split.path).lstrip("/"), dict(parse_qsl(split.query))
        self.asked.append((method, path, body))
        if path == "auth/token":
            found = self.tokens.pop(0) if self.tokens else "good"
            return (
                (found, {"detail": "Invalid credentials"}) if isinstance(found, int) else (201, {"access_token": found})
            )
        if path.endswith("version"):
            found = self.answers.get(path.removeprefix("api/v2/"), 404)
        elif token != "Bearer good":
            return 401, {"detail": "Invalid JWT token"}
        else:
            found = self.answers.get(f"{method} {path.removeprefix('api/v2/')}")
            found = self.answers.get(path.removeprefix("api/v2/"), 404) if found is None else found
        if isinstance(found, Callable):  # type: ignore[arg-type]
            found = found(query, body)
        if isinstance(found, tuple):
            key, entries = found
            offset, limit = int(query.get("offset", 0)), min(self.page, int(query.get("limit", 50)))
            return 200, {key: entries[offset : offset + limit], "total_entries": len(entries)}
        return (found, {"detail": "no"}) if isinstance(found, int) else (200, found)


class _Handler(BaseHTTPRequestHandler):
    airflow: Airflow

    def _do(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        token = self.headers.get("Authorization", "")
        status, body = self.airflow.answer(self.command, self.path, json.loads(raw) if raw else None, token)
        text = body if isinstance(body, str) else json.dumps(body)
        self.send_response(status)
        for name, value in self.airflow.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    do_GET = do_POST = do_PATCH = do_PUT = _do

    def log_message(self, *_: Any) -> None:
        """Quiet."""
