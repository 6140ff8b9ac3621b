"""Airflow's REST API v2: where it is, who asks, and one sentence for each way in which it may fail.

The address is GPUFLOW_AIRFLOW_URL, or `[api] base_url` of Airflow's own configuration. The user is
GPUFLOW_AIRFLOW_TOKEN, GPUFLOW_AIRFLOW_USER with GPUFLOW_AIRFLOW_PASSWORD, the host's entry in ~/.netrc, or nobody where
Airflow lets everybody in.
"""

from __future__ import annotations

import configparser
import contextlib
import http.client
import json
import netrc
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from gpuflow.core.errors import EnvironmentFailure, Finding, GpuflowError, Where, fail
from gpuflow.engines import AIRFLOW
from gpuflow.runs.model import Unreachable

PAGE = 100
"""What one answer lists; Airflow's own limit unless its settings say otherwise."""
WHERE = Where(AIRFLOW)
ADDRESS = "set GPUFLOW_AIRFLOW_URL to the address of its UI, such as https://airflow.example.com"
LOGIN = "set GPUFLOW_AIRFLOW_TOKEN, or GPUFLOW_AIRFLOW_USER and GPUFLOW_AIRFLOW_PASSWORD, or name the host in ~/.netrc"
RIGHTS = "ask for a role that may read, start, edit and clear runs of this DAG, and read its code, logs and XComs"


class Answer(NamedTuple):
    """What Airflow answers: JSON, or None where it is none. `date`: its clock, as HTTP writes it."""

    status: int
    body: Any
    date: str = ""


def config_value(section: str, key: str) -> str:
    """What Airflow's configuration on this machine says: its environment, or airflow.cfg. Empty: nothing."""
    if found := os.environ.get(f"AIRFLOW__{section}__{key}".upper()):
        return found
    config = configparser.ConfigParser(interpolation=None, strict=False)
    with contextlib.suppress(OSError, ValueError, configparser.Error):
        config.read(Path(os.environ.get("AIRFLOW_HOME") or "~/airflow").expanduser() / "airflow.cfg", encoding="utf-8")
    return config.get(section, key, fallback="")


def path_of(*parts: object) -> str:
    """A path whose parts may hold anything, as ids of runs do."""
    return "".join(f"/{quote(str(part), safe='~')}" for part in parts)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A token is for the host that was named, and for no other."""

    def redirect_request(self, *_: Any) -> None:
        return None


class Api:
    """One Airflow, asked as one user."""

    def __init__(self, url: str | None = None, timeout: float = 60) -> None:
        self.url = (url or config_value("api", "base_url")).rstrip("/")
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            text = "the address of Airflow is none, or holds a password" if self.url else "nobody says where Airflow is"
            raise fail("GF970", text, where=WHERE, hint=f"{ADDRESS}; {LOGIN}")
        self._host, self._timeout, self._token = parts.hostname, timeout, ""
        self._opener = urllib.request.build_opener(_NoRedirects)

    def get(self, *path: object, **query: Any) -> Any:
        """What is there; None: nothing is."""
        return self.ask("GET", *path, query=query, accept=(404,)).body

    def pages(self, key: str, *path: object, **query: Any) -> list[dict[str, Any]]:
        """Everything that is listed there."""
        found: list[dict[str, Any]] = []
        while page := (answer := self.get(*path, limit=PAGE, offset=len(found), **query) or {}).get(key):
            found += page
            if len(found) >= (answer.get("total_entries") or sys.maxsize):
                break
        return found

    def ask(
        self, method: str, *path: object, body: Any = None, query: Any = None, accept: tuple[int, ...] = ()
    ) -> Answer:
        """A good answer, or one whose status is in `accept`, without its body."""
        place = f"/api/v2{path_of(*path)}" + (f"?{urlencode(query)}" if query else "")
        if not self._token:
            self._check_version()
            self._token = self._login()
        answer = self._send(method, place, body)
        if answer.status == 401 and not os.environ.get("GPUFLOW_AIRFLOW_TOKEN"):
            self._token = self._login()  # the one before has expired
            answer = self._send(method, place, body)
        if answer.status in accept:
            return answer._replace(body=None)
        if answer.status >= 300:
            raise self._refusal(answer, f"{method} {place.partition('?')[0]}")
        if answer.body is None and answer.status == 200:
            raise self._failure("GF971", "is no API server of Airflow 3: it answers with a page", ADDRESS)
        return answer

    def _refusal(self, answer: Answer, what: str) -> GpuflowError:
        if answer.status == 401:
            return self._failure("GF972", "does not accept the token: it is invalid, or has expired", LOGIN)
        if answer.status == 403:
            return self._failure("GF955", f"does not allow this user to {what}{_detail(answer)}", RIGHTS)
        return fail("GF955", f"Airflow refuses {what} ({answer.status}){_detail(answer)}", where=WHERE)

    def _check_version(self) -> None:
        new, old = (answer.body for answer in (self._send("GET", f"/api/v{number}/version") for number in (2, 1)))
        if "version" in (new or {}):
            return
        if "version" in (old or {}):
            text = f"is Airflow {old['version']}, which has no REST API v2"
            raise self._failure("GF971", text, "use Airflow 3.2 or newer, or start the run there by hand")
        raise self._failure("GF971", "is no API server of Airflow 3: it has no /api/v2", ADDRESS)

    def _login(self) -> str:
        """A token; one that was given counts as it is."""
        if given := os.environ.get("GPUFLOW_AIRFLOW_TOKEN"):
            return given
        user, password = (os.environ.get(f"GPUFLOW_AIRFLOW_{name}", "") for name in ("USER", "PASSWORD"))
        if not user:
            with contextlib.suppress(OSError, netrc.NetrcParseError):
                user, _, password = netrc.netrc().authenticators(self._host) or ("", "", "")
        self._token = ""
        given_user = {"username": user, "password": password} if user else None
        answer = self._send("POST" if user else "GET", "/auth/token", given_user)
        if isinstance(answer.body, dict) and answer.body.get("access_token"):
            return str(answer.body["access_token"])
        text = f"does not accept the password of {user}{_detail(answer)}" if user else "wants to know who asks"
        raise self._failure("GF972", text, LOGIN)

    def _send(self, method: str, place: str, body: Any = None) -> Answer:
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        headers |= {"Authorization": f"Bearer {self._token}"} if self._token else {}
        data = None if body is None else json.dumps(body).encode()
        try:
            request = urllib.request.Request(self.url + place, data, headers, method=method)
            try:
                answer = self._opener.open(request, timeout=self._timeout)
            except urllib.error.HTTPError as refusal:
                answer = refusal
            with answer:
                status, text = answer.status, answer.read()
        except (OSError, ValueError, http.client.HTTPException) as fault:
            because = getattr(fault, "reason", None) or fault or type(fault).__name__
            raise Unreachable(f"Airflow at {self.url} does not answer: {because}") from None
        if status >= 500 or status == 429:
            raise Unreachable(f"Airflow at {self.url} does not answer now: HTTP {status}")
        if 300 <= status < 400:
            text = f"is no API server of Airflow 3: it sends to {answer.headers.get('Location', 'another place')}"
            raise self._failure("GF971", text, ADDRESS)
        try:
            return Answer(status, json.loads(text) if text else {}, answer.headers.get("Date", ""))
        except ValueError:
            return Answer(status, None)

    def _failure(self, code: str, what: str, hint: str) -> EnvironmentFailure:
        return EnvironmentFailure(Finding(code, f"{self.url} {what}", WHERE, hint))


def _detail(answer: Answer) -> str:
    """What Airflow says about a refusal, as the end of a sentence."""
    found = answer.body.get("detail") if isinstance(answer.body, dict) else ""
    if isinstance(found, list):
        found = "; ".join(str(each.get("msg", each) if isinstance(each, dict) else each) for each in found)
    return f": {str(found)[:500]}" if found else ""
