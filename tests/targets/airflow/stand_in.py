"""A stand-in for the API server, for the faults a real one cannot be made to produce at will.

Pods live in a dictionary. Each pod has a story: the sights of it that follow one another whenever it is read. Answers
that were ordered with `refuse` come before anything else.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

Sight = dict[str, Any] | None
"""What a pod looks like at one moment: fields to merge into it; None: it is gone."""
Story = list[Sight]


def running(node: str = "gpu-1") -> dict[str, Any]:
    return {"spec": {"nodeName": node}, "status": {"phase": "Running", "containerStatuses": [_main({"running": {}})]}}


def ended(code: int, reason: str = "Completed", message: str | None = None, **status: Any) -> dict[str, Any]:
    terminated = {"exitCode": code, "reason": reason, **({"message": message} if message else {})}
    phase = "Succeeded" if code == 0 else "Failed"
    return {"status": {"phase": phase, "containerStatuses": [_main({"terminated": terminated})], **status}}


def gated(queue: str = "kueue.x-k8s.io/admission") -> dict[str, Any]:
    return {"spec": {"schedulingGates": [{"name": queue}]}, "status": {"phase": "Pending"}}


def admitted() -> dict[str, Any]:
    return {"spec": {"schedulingGates": []}, "status": {"phase": "Pending"}}


def told_to_stop(reason: str | None = None) -> dict[str, Any]:
    """Marked for deletion, with the reason Kubernetes gives where it gives one."""
    conditions = [{"type": "DisruptionTarget", "status": "True", "reason": reason}] if reason else []
    return {"metadata": {"deletionTimestamp": "2999-01-01T00:00:00Z"}, "status": {"conditions": conditions}}


def stuck(reason: str) -> dict[str, Any]:
    waiting = _main({"waiting": {"reason": reason}})
    return {"spec": {"nodeName": "gpu-1"}, "status": {"phase": "Pending", "containerStatuses": [waiting]}}


def _main(state: dict[str, Any]) -> dict[str, Any]:
    return {"name": "main", "ready": False, "restartCount": 0, "image": "i", "imageID": "", "state": state}


GOOD: Story = [running(), ended(0)]
BAD: Story = [running(), ended(1, "Error")]
PREEMPTED: Story = [running(), {**told_to_stop("PreemptionByScheduler")}, None]


def quota_words(requested: str, used: str, limited: str) -> str:
    return (
        f'pods "p" is forbidden: exceeded quota: gpuq, requested: requests.nvidia.com/gpu={requested}, '
        f"used: requests.nvidia.com/gpu={used}, limited: requests.nvidia.com/gpu={limited}"
    )


class StandIn:
    """The server, its pods, and what it was asked."""

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.made: list[dict[str, Any]] = []
        """Every pod that was really created, as it was asked for."""
        self.asked: list[str] = []
        self.stories: Iterator[Story] = iter(())
        self.lingering: list[Story] = []
        """How the next pods that are deleted go on: a pod with a grace period is still there for a while."""
        self.logs: str | bytes = "2026-11-14T10:00:00.000000001Z hello from the pod\n"
        self.late: dict[str, float] = {}
        """Patterns of requests that arrive so many seconds after they were sent."""
        self._left: dict[str, Story] = {}
        self._ordered: list[tuple[re.Pattern[str], Callable[[], tuple[int, dict[str, Any]] | None], bool]] = []
        self._lock = threading.RLock()
        handler = type("Handler", (_Handler,), {"server_": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)

    def __enter__(self) -> StandIn:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def kubeconfig(self, folder: Path) -> Path:
        """A kubeconfig that leads here."""
        url = f"http://127.0.0.1:{self._http.server_port}"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "clusters": [{"name": "here", "cluster": {"server": url}}],
            "users": [{"name": "me", "user": {"token": "t"}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me", "namespace": "ml"}}],
        }
        file = folder / "kubeconfig"
        file.write_text(yaml.safe_dump(config))
        return file

    def tell(self, *stories: Story) -> None:
        """The stories of the pods to come, one after another."""
        self.stories = iter(stories)

    def refuse(
        self, request: str, status: int, message: str = "", reason: str = "", *, times: int = 1, done: bool = False
    ) -> None:
        """Answer the next requests that match (`POST .*/pods`) with an error; `done`: after doing what they ask.

        Status 0 is no answer: the connection ends.
        """
        left = [times]

        def answer() -> tuple[int, dict[str, Any]] | None:
            if left[0] == 0:
                return None
            left[0] -= 1
            return status, {"kind": "Status", "code": status, "message": message, "reason": reason}

        self._ordered.append((re.compile(request), answer, done))

    def count(self, request: str) -> int:
        """How many requests matched."""
        return sum(1 for line in self.asked if re.fullmatch(request, line))

    # -- what the handler does ------------------------------------------------------------------------------------

    def answer(self, method: str, url: str, body: dict[str, Any] | None) -> tuple[int, Any]:
        with self._lock:
            split = urlsplit(url)
            query = {key: values[0] for key, values in parse_qs(split.query).items()}
            dry = "?dry" if query.get("dryRun") else ""
            line = f"{method} {split.path}{dry}"
            self.asked.append(line)
            for pattern, ordered, done in self._ordered:
                told = ordered() if pattern.fullmatch(line) else None
                if told is not None:
                    if done:
                        self._do(method, split.path, query, body)
                    return told
            return self._do(method, split.path, query, body)

    def _do(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
        if re.fullmatch(r"/api/v1/namespaces/[^/]+/events", path):
            return 200, {"apiVersion": "v1", "kind": "EventList", "metadata": {}, "items": []}
        match = re.fullmatch(r"/api/v1/namespaces/[^/]+/pods(?:/([^/]+))?(/log)?", path)
        if match is None:
            return 404, {"kind": "Status", "code": 404, "message": "not found"}
        if match[2]:
            return 200, self.logs
        answer: tuple[int, Any] = getattr(self, f"_{method.lower()}")(match[1], query, body)
        return answer

    def _post(self, _: None, query: dict[str, str], body: dict[str, Any]) -> tuple[int, Any]:
        name = body["metadata"]["name"]
        if name in self.pods:
            return 409, {
                "kind": "Status",
                "code": 409,
                "reason": "AlreadyExists",
                "message": f'"{name}" already exists',
            }
        if query.get("dryRun"):
            return 201, body
        pod = deepcopy(body)
        pod["metadata"] |= {
            "namespace": "ml",
            "uid": name,
            "creationTimestamp": f"2026-11-14T10:{len(self.made):02}:00Z",
        }
        pod["status"] = {"phase": "Pending"}
        self.made.append(deepcopy(body))
        self.pods[name] = pod
        self._left[name] = list(next(self.stories, []))
        return 201, pod

    def _get(self, name: str | None, query: dict[str, str], _: None) -> tuple[int, Any]:
        if name is None:
            found = [pod for pod in self.pods.values() if _selected(pod, query)]
            return 200, {"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": found}
        self._advance(name)
        if name not in self.pods:
            return 404, {"kind": "Status", "code": 404, "reason": "NotFound", "message": f'pods "{name}" not found'}
        return 200, self.pods[name]

    def _advance(self, name: str) -> None:
        if self._left.get(name):
            sight = self._left[name].pop(0)
            if sight is None:
                self.pods.pop(name, None)
            else:
                for part, fields in sight.items():
                    self.pods[name][part] = {**self.pods[name].get(part, {}), **fields}

    def _delete(self, name: str, query: dict[str, str], _: Any) -> tuple[int, Any]:
        if name in self.pods and self.lingering:
            self._left[name] = self.lingering.pop(0)
            self.pods[name]["metadata"]["deletionTimestamp"] = "2999-01-01T00:00:00Z"
            return 200, self.pods[name]
        return (200, self.pods.pop(name)) if name in self.pods else (404, {"kind": "Status", "code": 404})

    def _patch(self, name: str, query: dict[str, str], body: dict[str, Any]) -> tuple[int, Any]:
        for part in ("labels", "annotations"):
            kept = self.pods[name]["metadata"].setdefault(part, {})
            kept |= body["metadata"].get(part, {})
        return 200, self.pods[name]


def _selected(pod: dict[str, Any], query: dict[str, str]) -> bool:
    labels = pod["metadata"].get("labels", {})
    for word in filter(None, query.get("labelSelector", "").split(",")):
        key, _, value = word.partition("=")
        if labels.get(key) != value:
            return False
    return not (
        "phase!=Succeeded" in query.get("fieldSelector", "") and pod["status"]["phase"] in ("Succeeded", "Failed")
    )


class _Handler(BaseHTTPRequestHandler):
    server_: StandIn
    protocol_version = "HTTP/1.1"

    def _do(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        raw = self.rfile.read(length)
        line = f"{self.command} {urlsplit(self.path).path}"
        time.sleep(next((late for pattern, late in self.server_.late.items() if re.fullmatch(pattern, line)), 0))
        status, answer = self.server_.answer(self.command, self.path, json.loads(raw) if raw else None)
        if not status:
            self.close_connection = True
            return
        is_log = isinstance(answer, str | bytes)
        text = answer if is_log else json.dumps(answer)
        sent = text if isinstance(text, bytes) else text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain" if is_log else "application/json")
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    do_GET = do_POST = do_DELETE = do_PATCH = _do

    def log_message(self, *_: Any) -> None:
        """Quiet."""
