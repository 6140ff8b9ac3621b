"""The API server, asked with the pod's own service account: requests, manifests that a step creates, logs of pods.

Standard library only. A manifest comes from a file or an argument and is changed by `--set`. Logs of an object's pods
are repeated on standard output while they are written. `stop_on_signal` is for the commands that create an object and
wait for it: a stop signal then raises `StopRequested`.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

from gpuflow.runtime.base import signals
from gpuflow.runtime.base.units import one_line
from gpuflow.runtime.supervise import object_state
from gpuflow.runtime.supervise.object_state import group_path, path_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from http.client import HTTPResponse
    from typing import Any, TypeVar

    Answer = TypeVar("Answer")


ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
ACCOUNT_VARIABLE = "GPUFLOW_SERVICE_ACCOUNT"
"""Names another folder with `token`, `ca.crt` and `namespace`: a projected volume, or one outside a pod."""
TIMEOUT = 30.0
POLL = 3.0
"""Seconds between two looks at the same thing."""
DOUBT_SECONDS = 120.0
"""Seconds for which it is not believed that a right which was there is gone: an API server that starts refuses
everybody until it has read its roles."""


def say(text: str) -> None:
    """One line of ours among the log of what we wait for."""
    print(f"gpuflow-run: {one_line(text)}", flush=True)


class NoAccount(Exception):
    """The pod has no token, or is in no cluster."""


class ApiRefusal(Exception):
    """An answer of the API server that is no success, with its own words."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"the API server answers {status}: {message}")
        self.status = status


class ApiUnreachable(Exception):
    """No answer, or one that asks for a retry."""


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
        self.namespace = self._read_account_file("namespace")
        self._trust = ssl.create_default_context(cafile=os.path.join(account, "ca.crt"))
        self._granted: set[tuple[str, ...]] = set()
        self._refused_since: dict[tuple[str, ...], float] = {}

    def get(self, path: str, **query: str) -> dict[str, Any]:
        return self._request("GET", path, None, query)

    def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._request("POST", path, body, {})

    def get_if_present(self, path: str) -> dict[str, Any] | None:
        """An object, or None when there is none; an API server that is away is waited for."""
        try:
            return self.retry_while_unreachable(lambda: self.get(path))
        except ApiRefusal as refusal:
            if refusal.status == 404:
                return None
            raise

    def retry_while_unreachable(self, ask: Callable[[], Answer]) -> Answer:
        """Retry while the API server is unreachable, such as during a restart."""
        said = False
        while True:
            try:
                return ask()
            except ApiUnreachable as failure:
                if not said:
                    say(f"{failure}; asking again")
                    said = True
                time.sleep(POLL)

    def merge(self, path: str, body: dict[str, Any]) -> None:
        """Change an object: what the body names, and nothing else."""
        self._request("PATCH", path, body, {})

    def delete(self, path: str, propagation: str = "Background") -> None:
        """Delete an object and what it owns; one that is gone is fine. `Foreground`: what it owns goes first."""
        try:
            self._request("DELETE", path, {"propagationPolicy": propagation}, {})
        except ApiRefusal as refusal:
            if refusal.status != 404:
                raise

    def stream(self, path: str, timeout: float, **query: str) -> HTTPResponse:
        """An answer to read line by line."""
        return self._open("GET", path, None, query, timeout)

    def _read_account_file(self, name: str) -> str:
        # The token is renewed while the pod runs, so it is read for each request.
        with open(os.path.join(self.account, name), encoding="utf-8") as file:
            return file.read().strip()

    def _request(self, method: str, path: str, body: dict[str, Any] | None, query: Mapping[str, str]) -> dict[str, Any]:
        with self._open(method, path, body, query, TIMEOUT) as answer:
            try:
                found: dict[str, Any] = json.load(answer)
            except (OSError, ValueError, http.client.HTTPException) as failure:
                raise ApiUnreachable(str(failure)) from None
        return found

    def _open(
        self, method: str, path: str, body: dict[str, Any] | None, query: Mapping[str, str], timeout: float
    ) -> HTTPResponse:
        url = self.base + path + ("?" + urllib.parse.urlencode(query) if query else "")
        request = urllib.request.Request(url, None if body is None else json.dumps(body).encode(), method=method)
        request.add_header("Authorization", "Bearer " + self._read_account_file("token"))
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        request.add_header("Content-Type", kind)
        try:
            answer: HTTPResponse = urllib.request.urlopen(request, timeout=timeout, context=self._trust)
        except urllib.error.HTTPError as refusal:
            words = _message(refusal)
            later = refusal.code == 429 or refusal.code >= 500
            if later or self._is_doubted(_right(method, path), refusal.code, words):
                raise ApiUnreachable(f"the API server answers {refusal.code}: {words}") from None
            raise ApiRefusal(refusal.code, words) from None
        except (OSError, http.client.HTTPException) as failure:
            raise ApiUnreachable(str(failure)) from None
        self._granted.add(_right(method, path))
        self._refused_since.pop(_right(method, path), None)
        return answer

    def _is_doubted(self, right: tuple[str, ...], status: int, words: str) -> bool:
        """Whether a right that was there is refused, and not for long yet. A quota or a webhook names no user."""
        if right not in self._granted or not (status == 401 or (status == 403 and 'User "' in words)):
            return False
        now = time.monotonic()
        return now - self._refused_since.setdefault(right, now) < DOUBT_SECONDS


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


class Misuse(Exception):
    """What was asked cannot be done; exit code 78."""


def manifest_from_file(path: str, changes: Sequence[str]) -> dict[str, Any]:
    """The manifest in a file, with what `--set` puts into it."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, ValueError) as failure:
        raise Misuse(f"{path}: {failure}") from None
    return manifest_from_text(text, path, changes)


def manifest_from_text(text: str, where: str, changes: Sequence[str]) -> dict[str, Any]:
    """The manifest that a text holds, with what `--set` puts into it."""
    document = _read_manifest(text, where)
    for key in ("apiVersion", "kind", "metadata"):
        if not (isinstance(document, dict) and document.get(key)):
            raise Misuse(f"{where}: the manifest has no {key}")
    for change in changes:
        try:
            place, value = object_state.split(change)
            object_state.put(document, place, value)
        except ValueError as refusal:
            raise Misuse(f"--set: {refusal}") from None
    found: dict[str, Any] = document
    return found


def _read_manifest(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as wrong:
        try:
            import yaml  # type: ignore[import-untyped,unused-ignore]  # in the image, or not
        except ImportError:
            raise Misuse(f"{where}: {wrong}; write JSON, or install PyYAML in the image") from None
        try:
            return yaml.safe_load(text)
        except yaml.YAMLError as refusal:
            raise Misuse(f"{where}: {refusal}") from None


def collection_path(api: ApiServer, body: dict[str, Any]) -> str:
    """The address of all objects of a manifest's kind in its namespace: what the API server calls them."""
    version, kind = str(body["apiVersion"]), str(body["kind"])
    try:
        listed = api.retry_while_unreachable(lambda: api.get(group_path(version))).get("resources", [])
    except ApiRefusal as refusal:
        if refusal.status == 404:
            raise Misuse(f"the cluster has no {version}: {kind} is not installed") from None
        raise
    names = [entry["name"] for entry in listed if entry.get("kind") == kind and "/" not in entry["name"]]
    if not names:
        raise Misuse(f"the cluster has no {kind} in {version}")
    return path_of(version, body["metadata"]["namespace"], names[0])


MOST_PODS = 8
"""How many pods are followed at once: a gang of hundreds writes the same lines hundreds of times."""
_STARTED_PHASES = ("Running", "Succeeded", "Failed")


class PodLogs:
    """Follows each pod once it runs, every one on a thread of its own."""

    def __init__(self, api: ApiServer, namespace: str, selector: str, named: bool = True) -> None:
        """`named`: each line after the name of its pod."""
        self._named = named
        self._api, self._pods, self._selector = api, path_of("v1", namespace, "pods"), selector
        self._followed: dict[str, threading.Thread] = {}
        self._silent: str | None = None
        self._print = threading.Lock()

    def look(self) -> None:
        """Follow the logs of new pods; a missing permission is logged once."""
        if self._silent is not None:
            return
        try:
            listed = self._api.get(self._pods, labelSelector=self._selector).get("items", [])
        except ApiUnreachable:
            return
        except ApiRefusal as refusal:
            self._silent = f"{refusal}; logs are not repeated here"
            self._say("gpuflow-run", self._silent)
            return
        for pod in listed:
            name = pod["metadata"]["name"]
            if name in self._followed or pod.get("status", {}).get("phase") not in _STARTED_PHASES:
                continue
            if len(self._followed) == MOST_PODS:
                self._silent = f"more than {MOST_PODS} pods: the logs of the others are not repeated here"
                self._say("gpuflow-run", self._silent)
                return
            container = pod["spec"]["containers"][0]["name"]
            thread = threading.Thread(target=self._follow, args=(name, container), daemon=True)
            self._followed[name] = thread
            thread.start()

    def finish(self, seconds: float) -> None:
        """Let the last lines come."""
        self.look()
        for thread in list(self._followed.values()):
            thread.join(seconds)

    def _follow(self, pod: str, container: str) -> None:
        last: tuple[str, str] | None = None
        while True:
            query = {"container": container, "follow": "true", "timestamps": "true"}
            if last is not None:
                query["sinceTime"] = last[0] + "Z"
            try:
                # A quiet program may write nothing for hours: the read ends with the connection, not with a clock.
                with self._api.stream(f"{self._pods}/{pod}/log", 24 * 3600.0, **query) as answer:
                    for raw in answer:
                        stamp, _, text = raw.decode("utf-8", "replace").rstrip("\n").partition(" ")
                        moment = _moment(stamp)
                        if last is None or moment > last:
                            last = moment
                            self._say(pod if self._named else "", text)
                return
            except ApiRefusal as refusal:
                self._say("gpuflow-run", f"log of {pod}: {refusal}")
                return
            except (ApiUnreachable, OSError, http.client.HTTPException):
                threading.Event().wait(2.0)

    def _say(self, who: str, text: str) -> None:
        with self._print:
            print(f"[{who}] {text}" if who else text, flush=True)


def _moment(stamp: str) -> tuple[str, str]:
    """A time with nine digits of a second, so that two of them compare: Go leaves zeros at the end out."""
    whole, _, part = stamp.rstrip("Z").partition(".")
    return whole, part.ljust(9, "0")


class StopRequested(BaseException):
    """We were told to stop. Raised wherever the main thread stands, so that nothing is waited for."""


def stop_on_signal() -> None:
    """From now on a stop signal raises `StopRequested`, once; also one that came while we were loading."""
    for number in signals.STOPS:
        signal.signal(number, _raise_stopped)
    signals.release()


def _raise_stopped(*_: object) -> None:
    for number in signals.STOPS:
        signal.signal(number, signal.SIG_IGN)
    raise StopRequested
