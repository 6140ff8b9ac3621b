"""An API server in memory: objects, the logs of pods, and what it refuses or does not answer."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from gpuflow.cluster.api_server import Answer, Reader, environment_failure

WORKFLOWS = "/apis/argoproj.io/v1alpha1/namespaces/team-a/workflows"
CORE = "/api/v1/namespaces/team-a"


class Played(Reader):
    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.logs: dict[str, str] = {}
        self.refused: dict[tuple[str, str], Answer] = {}
        """By method and a part of the path."""
        self.lists_are_empty = False
        """Whether it lists every kind, and has nothing of any; else it lists none."""
        self.silent = 0
        """So many questions get no answer."""
        self.asked: list[tuple[str, str]] = []

    def _says(self, method: str, path: str) -> Answer | None:
        self.asked.append((method, path))
        if self.silent:
            self.silent -= 1
            raise environment_failure("GF412", "the cluster does not answer: no connection", "check the network")
        return next((said for (how, part), said in self.refused.items() if how == method and part in path), None)

    def get(self, path: str, query: Mapping[str, object]) -> Answer:
        if (said := self._says("GET", path)) is not None:
            return said
        if path in self.objects:
            return Answer(200, copy.deepcopy(self.objects[path]))
        if path == f"{CORE}/pods":
            return Answer(200, {"items": [each for name, each in self.objects.items() if "/pods/" in name]})
        if self.lists_are_empty and "/configmaps/" not in path and WORKFLOWS not in path:
            return Answer(200, {"items": []})
        return Answer(404, {}, "404 Not Found")

    def send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Answer:
        if (said := self._says(method, path)) is not None:
            return said
        if method == "POST":
            assert body is not None
            path = f"{path}/{body['metadata']['name']}"
            if path in self.objects:
                return Answer(409, {}, "409 Conflict")
            self.objects[path] = copy.deepcopy(dict(body))
            return Answer(201, self.objects[path])
        if path not in self.objects:
            return Answer(404, {}, "404 Not Found")
        if method == "DELETE":
            return Answer(200, self.objects.pop(path))
        if method == "PATCH":
            assert body is not None
            for part in body:
                self.objects[path].setdefault(part, {}).update(body[part])
        else:
            self.objects[path] = copy.deepcopy(dict(body or {}))
        return Answer(200, self.objects[path])

    def text(self, path: str, query: Mapping[str, object]) -> Iterator[str]:
        self._says("GET", path)
        yield from (text for pod, text in self.logs.items() if path == f"{CORE}/pods/{pod}/log")
