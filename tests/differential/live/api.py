"""A small client of the Kubernetes API: the standard library, a kubeconfig, JSON in and out."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import yaml

Manifest = dict[str, Any]
Body = Manifest | list[Manifest] | None
Item = TypeVar("Item")
TRIES = 3


@dataclass(frozen=True)
class Reply:
    """What the server said: an object, or a Status that tells why not."""

    code: int
    body: Manifest

    @property
    def ok(self) -> bool:
        return self.code < 300


class Refused(Exception):
    """The API server would not have such an object: there is nothing to ask the engine behind it."""


class Api:
    """One connection to the server of a kubeconfig's current context."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        context = _named(config["contexts"], config["current-context"])["context"]
        cluster = _named(config["clusters"], context["cluster"])["cluster"]
        user = _named(config["users"], context["user"])["user"]
        address = urlsplit(cluster["server"])
        self._host, self._port = address.hostname or "", address.port or 443
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if "token" in user:
            self._headers["Authorization"] = f"Bearer {user['token']}"
        self._tls = _tls(cluster, user)
        self._connection: http.client.HTTPSConnection | None = None

    def __call__(self, method: str, path: str, body: Body = None, patch: str = "merge") -> Reply:
        """One request. A connection that the server has closed meanwhile is opened again."""
        headers = {**self._headers}
        if method == "PATCH":
            headers["Content-Type"] = f"application/{patch}-patch+json"
        for attempt in range(TRIES):
            try:
                connection = self._connection or self._connect()
                connection.request(method, path, json.dumps(body) if body is not None else None, headers)
                response = connection.getresponse()
                return Reply(response.status, json.loads(response.read() or b"{}"))
            except (http.client.HTTPException, ConnectionError, ssl.SSLError):
                self._connection = None
                if attempt == TRIES - 1:
                    raise
        raise AssertionError("unreachable")

    def must(self, method: str, path: str, body: Body = None, patch: str = "merge") -> Manifest:
        """One request that has to succeed."""
        reply = self(method, path, body, patch)
        if method == "POST" and reply.code in (403, 422):
            raise Refused(reply.body["message"])
        if not reply.ok:
            raise RuntimeError(f"{method} {path}: {reply.code} {reply.body.get('message')}")
        return reply.body

    def lines(self, path: str) -> Iterator[bytes]:
        """What a watch says, line by line, until the server ends it."""
        connection = self._connect()
        connection.request("GET", path, None, self._headers)
        yield from connection.getresponse()

    def remove(self, path: str) -> None:
        """Delete at once, whether or not it is there."""
        self("DELETE", path, {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})

    def _connect(self) -> http.client.HTTPSConnection:
        self._connection = http.client.HTTPSConnection(self._host, self._port, context=self._tls, timeout=30)
        return self._connection


def until(look: Callable[[], Item | None], what: str, timeout: float = 10.0, every: float = 0.05) -> Item:
    """The first thing that `look` finds."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        found = look()
        if found is not None:
            return found
        time.sleep(every)
    raise TimeoutError(f"waited {timeout:g} s for {what}")


def patiently(ask: Callable[[float], str | None], waits: Sequence[float]) -> str | None:
    """A difference that stays however long the cluster was given to see what was written; none if it goes away."""
    difference: str | None = None
    for wait in waits:
        difference = ask(wait)
        if difference is None:
            return None
    return difference


def _named(entries: list[Manifest], name: str) -> Manifest:
    return next(entry for entry in entries if entry["name"] == name)


def _tls(cluster: Manifest, user: Manifest) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if "certificate-authority-data" in cluster:
        context.load_verify_locations(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
    elif "certificate-authority" in cluster:
        context.load_verify_locations(cluster["certificate-authority"])
    # A server that made its own certificate also made its own authority.
    context.check_hostname = "insecure-skip-tls-verify" not in cluster
    if "client-certificate-data" in user:
        with tempfile.TemporaryDirectory() as folder:
            certificate, key = Path(folder, "certificate"), Path(folder, "key")
            certificate.write_bytes(base64.b64decode(user["client-certificate-data"]))
            key.write_bytes(base64.b64decode(user["client-key-data"]))
            context.load_cert_chain(certificate, key)
    elif "client-certificate" in user:
        context.load_cert_chain(user["client-certificate"], user["client-key"])
    return context
