"""Requests to the API server with the pod's own service account. Standard library only."""

from __future__ import annotations

import http.client
import json
import os
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request

from gpuflow.runtime.wording import one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from http.client import HTTPResponse
    from typing import Any, TypeVar

    Answer = TypeVar("Answer")

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
ACCOUNT_VARIABLE = "GPUFLOW_SERVICE_ACCOUNT"
"""Names another folder with `token`, `ca.crt` and `namespace`: a projected volume, or one outside a pod."""
TIMEOUT = 30.0
POLL = 3.0
"""Seconds between two looks at the same thing."""
DOUBTED = 120.0
"""Seconds for which it is not believed that a right which was there is gone: an API server that starts refuses
everybody until it has read its roles."""


def say(text: str) -> None:
    """One line of ours among the log of what we wait for."""
    print(f"gpuflow-run: {one_line(text)}", flush=True)


class NoAccount(Exception):
    """The pod has no token, or is in no cluster."""


class Refused(Exception):
    """An answer of the API server that is no success, with its own words."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"the API server answers {status}: {message}")
        self.status = status


class Unreachable(Exception):
    """No answer, or one that asks to come back later."""


class ApiServer:
    """The cluster that this pod runs in."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.account = account = environ.get(ACCOUNT_VARIABLE) or ACCOUNT
        host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not host or not os.path.exists(os.path.join(account, "token")):
            raise NoAccount(
                "there is no service account here; run in a pod of the cluster whose account may create the object"
            )
        self.base = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        self.namespace = self._own("namespace")
        self._trust = ssl.create_default_context(cafile=os.path.join(account, "ca.crt"))
        self._granted: set[tuple[str, ...]] = set()
        self._refused_since: dict[tuple[str, ...], float] = {}

    def get(self, path: str, **query: str) -> dict[str, Any]:
        return self._asked("GET", path, None, query)

    def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._asked("POST", path, body, {})

    def present(self, path: str) -> dict[str, Any] | None:
        """An object, or None when there is none; an API server that is away is waited for."""
        try:
            return self.patiently(lambda: self.get(path))
        except Refused as refusal:
            if refusal.status == 404:
                return None
            raise

    def patiently(self, ask: Callable[[], Answer]) -> Answer:
        """An API server that restarts does not end the step: ask again."""
        said = False
        while True:
            try:
                return ask()
            except Unreachable as failure:
                if not said:
                    say(f"{failure}; asking again")
                    said = True
                time.sleep(POLL)

    def merge(self, path: str, body: dict[str, Any]) -> None:
        """Change an object: what the body names, and nothing else."""
        self._asked("PATCH", path, body, {})

    def delete(self, path: str, propagation: str = "Background") -> None:
        """Delete an object and what it owns; one that is gone is fine. `Foreground`: what it owns goes first."""
        try:
            self._asked("DELETE", path, {"propagationPolicy": propagation}, {})
        except Refused as refusal:
            if refusal.status != 404:
                raise

    def stream(self, path: str, timeout: float, **query: str) -> HTTPResponse:
        """An answer to read line by line."""
        return self._open("GET", path, None, query, timeout)

    def _own(self, name: str) -> str:
        # The token is renewed while the pod runs, so it is read for each request.
        with open(os.path.join(self.account, name), encoding="utf-8") as file:
            return file.read().strip()

    def _asked(self, method: str, path: str, body: dict[str, Any] | None, query: Mapping[str, str]) -> dict[str, Any]:
        with self._open(method, path, body, query, TIMEOUT) as answer:
            try:
                found: dict[str, Any] = json.load(answer)
            except (OSError, ValueError, http.client.HTTPException) as failure:
                raise Unreachable(str(failure)) from None
        return found

    def _open(
        self, method: str, path: str, body: dict[str, Any] | None, query: Mapping[str, str], timeout: float
    ) -> HTTPResponse:
        url = self.base + path + ("?" + urllib.parse.urlencode(query) if query else "")
        request = urllib.request.Request(url, None if body is None else json.dumps(body).encode(), method=method)
        request.add_header("Authorization", "Bearer " + self._own("token"))
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        request.add_header("Content-Type", kind)
        try:
            answer: HTTPResponse = urllib.request.urlopen(request, timeout=timeout, context=self._trust)
        except urllib.error.HTTPError as refusal:
            words = _message(refusal)
            later = refusal.code == 429 or refusal.code >= 500
            if later or self._is_doubted(_right(method, path), refusal.code, words):
                raise Unreachable(f"the API server answers {refusal.code}: {words}") from None
            raise Refused(refusal.code, words) from None
        except (OSError, http.client.HTTPException) as failure:
            raise Unreachable(str(failure)) from None
        self._granted.add(_right(method, path))
        self._refused_since.pop(_right(method, path), None)
        return answer

    def _is_doubted(self, right: tuple[str, ...], status: int, words: str) -> bool:
        """Whether a right that was there is refused, and not for long yet. A quota or a webhook names no user."""
        if right not in self._granted or not (status == 401 or (status == 403 and 'User "' in words)):
            return False
        now = time.monotonic()
        return now - self._refused_since.setdefault(right, now) < DOUBTED


def _right(method: str, path: str) -> tuple[str, ...]:
    """What a role would allow: verb, group and resource, with its part (`pods/log`), and not the name of an object."""
    api, _, inside = path.partition("/namespaces/")
    _, *words = inside.split("/")
    return (method, api, *words[:1], "one" if len(words) > 1 else "all", *words[2:])


def _message(refusal: urllib.error.HTTPError) -> str:
    try:
        return str(json.load(refusal).get("message", refusal.reason))
    except (OSError, ValueError, AttributeError):
        return str(refusal.reason)
