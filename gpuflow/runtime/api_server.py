"""Requests to the API server with the pod's own service account. Standard library only."""

from __future__ import annotations

import json
import os
import ssl
import urllib.error
import urllib.parse
import urllib.request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from http.client import HTTPResponse
    from typing import Any

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
TIMEOUT = 30.0


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
        self.account = account = ACCOUNT
        host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not host or not os.path.exists(os.path.join(account, "token")):
            raise NoAccount(
                "there is no service account here; run in a pod of the cluster whose account may create the object"
            )
        self.base = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        self.namespace = self._own("namespace")
        self._trust = ssl.create_default_context(cafile=os.path.join(account, "ca.crt"))

    def get(self, path: str, **query: str) -> dict[str, Any]:
        return self._asked("GET", path, None, query)

    def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._asked("POST", path, body, {})

    def delete(self, path: str) -> None:
        """Delete an object and what it owns; one that is gone is fine."""
        try:
            self._asked("DELETE", path, {"propagationPolicy": "Background"}, {})
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
            except (OSError, ValueError) as failure:
                raise Unreachable(str(failure)) from None
        return found

    def _open(
        self, method: str, path: str, body: dict[str, Any] | None, query: Mapping[str, str], timeout: float
    ) -> HTTPResponse:
        url = self.base + path + ("?" + urllib.parse.urlencode(query) if query else "")
        request = urllib.request.Request(url, None if body is None else json.dumps(body).encode(), method=method)
        request.add_header("Authorization", "Bearer " + self._own("token"))
        request.add_header("Content-Type", "application/json")
        try:
            answer: HTTPResponse = urllib.request.urlopen(request, timeout=timeout, context=self._trust)
        except urllib.error.HTTPError as refusal:
            if refusal.code == 429 or refusal.code >= 500:
                raise Unreachable(f"the API server answers {refusal.code}") from None
            raise Refused(refusal.code, _message(refusal)) from None
        except OSError as failure:
            raise Unreachable(str(failure)) from None
        return answer


def _message(refusal: urllib.error.HTTPError) -> str:
    try:
        return str(json.load(refusal).get("message", refusal.reason))
    except (OSError, ValueError, AttributeError):
        return str(refusal.reason)
