"""Questions to an API server, and one sentence for each way in which it may not answer.

The one place that imports the Kubernetes client. The client reads the kubeconfig, logs in and sets up TLS; the requests
are ours, over its urllib3 pool, because the arguments of `ApiClient.call_api` are not the same in all its versions.
Versions of the client also differ in which proxy they use; kubectl's rule holds for all of them: the cluster's
`proxy-url`, else the environment's proxy unless NO_PROXY names the host.
"""

from __future__ import annotations

import codecs
import ipaddress
import json
import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple
from urllib.parse import unquote, urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import yaml

from gpuflow.cluster.kinds import TIMEOUT
from gpuflow.core.errors import EnvironmentFailure, Finding, Where, install_line


def proxy_for(address: str, configured: str | None) -> str | None:
    """The proxy on the way to an address, or none."""
    if configured:
        return configured  # as kubectl does it: NO_PROXY does not speak about this one
    parts = urlsplit(address)
    proxies = getproxies()
    proxy = proxies.get(parts.scheme)
    host = parts.hostname or ""
    if proxy is None or proxy_bypass(parts.netloc.rpartition("@")[2]) or _in_networks(host, proxies.get("no", "")):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def proxy_user(proxy: str | None) -> str | None:
    """The name and password that a proxy's address carries, as `name:password`. urllib3 leaves them out."""
    user, at, _ = urlsplit(proxy or "").netloc.rpartition("@")
    return unquote(user) if at else None


def _in_networks(host: str, no_proxy: str) -> bool:
    """NO_PROXY may hold networks, as `10.0.0.0/8`, which Python's own reading of it leaves out."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    for entry in no_proxy.split(","):
        with suppress(ValueError):
            if address in ipaddress.ip_network(entry.strip(), strict=False):
                return True
    return False


def proxy_url(kubeconfig: str | None, context: str | None) -> str | None:
    """The `proxy-url` of the context's cluster. Clients before 37 do not read it."""
    documents = list(_kubeconfigs(kubeconfig))
    current = context or next((doc["current-context"] for doc in documents if doc.get("current-context")), None)
    cluster = _kubeconfig_entry(documents, "contexts", "context", current).get("cluster")
    found = _kubeconfig_entry(documents, "clusters", "cluster", cluster).get("proxy-url")
    return found if isinstance(found, str) else None


def _kubeconfigs(kubeconfig: str | None) -> Iterator[Mapping[str, Any]]:
    named = kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
    for name in filter(None, named.split(os.pathsep)):
        try:
            document = yaml.load(Path(name).expanduser().read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        except (OSError, ValueError, yaml.YAMLError):
            continue  # the client has read it already, or has said what is wrong with it
        if isinstance(document, Mapping):
            yield document


def _kubeconfig_entry(documents: list[Mapping[str, Any]], many: str, one: str, name: object) -> Mapping[str, Any]:
    """The first entry of a name counts, in whichever file it stands."""
    for document in documents:
        entries = document.get(many)
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, Mapping) and entry.get("name") == name:
                body = entry.get(one)
                return body if isinstance(body, Mapping) else {}
    return {}


CONNECT = 10
"""A host that is there takes the connection sooner than this, however busy it is."""
LIVE = Where("live")
NETWORK = "check the network and the context; --timeout gives it longer"
LOG_IN = "log in again, or name another context with --context"
REFUSED_LOGIN = "the cluster does not accept the credentials of the kubeconfig: 401 Unauthorized"
ADDRESS = "check the address of the cluster in the kubeconfig, and what stands in front of it"


class Answer(NamedTuple):
    """What the API server says to a question: an object, or a status and the reason."""

    status: int
    body: Mapping[str, Any]
    reason: str = ""
    sentence: str = ""
    """The API server's own words, where it refuses."""


class Reader:
    """Asks the API server through the Kubernetes client."""

    def __init__(self, context: str | None = None, kubeconfig: str | None = None, timeout: float = TIMEOUT) -> None:
        try:
            import urllib3  # type: ignore[import-not-found]  # comes with the client
            from kubernetes import client, config
        except ModuleNotFoundError as missing:
            message = "reading a live cluster needs the package kubernetes"
            if missing.name not in ("kubernetes", "urllib3"):
                message = f"the package kubernetes is not whole: {missing}"
            raise environment_failure("GF901", message, install_line("cluster")) from None
        self._settings: Any = client.Configuration()
        self._urllib3: Any = urllib3
        self._timeout = timeout
        self._login = Lock()
        self._broken_config: tuple[type[Exception], ...] = (config.ConfigException, OSError, ValueError, yaml.YAMLError)
        inside = "KUBECONFIG" not in os.environ and "KUBERNETES_SERVICE_HOST" in os.environ
        inside = inside and context is None and kubeconfig is None
        try:
            if inside:
                config.load_incluster_config(client_configuration=self._settings)
            else:
                config.load_kube_config(config_file=kubeconfig, context=context, client_configuration=self._settings)
        except self._broken_config as refusal:
            raise _unusable_config(refusal) from None
        except (AttributeError, LookupError, TypeError) as refusal:
            # A kubeconfig of the wrong shape makes the client stumble; an argument that it does not know is our fault.
            if not _inside_the_client(refusal):
                raise
            raise _unusable_config(refusal) from None
        self._host = str(self._settings.host).rstrip("/")
        self._settings.proxy = self._proxy = proxy_for(self._host, None if inside else proxy_url(kubeconfig, context))
        self._settings.no_proxy = None  # already considered
        if user := proxy_user(self._proxy):
            self._settings.proxy_headers = urllib3.make_headers(proxy_basic_auth=user)
        self._pool = self._connections(client)

    def _connections(self, client: Any) -> Any:
        try:
            return client.ApiClient(self._settings).rest_client.pool_manager
        except (self._urllib3.exceptions.HTTPError, ImportError, OSError) as refusal:
            subject = f"the proxy {_redact(self._proxy)}" if self._proxy else "the kubeconfig"
            message = f"{subject} cannot be used: {_first_line(refusal)}"
            raise environment_failure("GF411", message, ADDRESS) from None

    def get(self, path: str, query: Mapping[str, object]) -> Answer:
        response = self._request("GET", path, query)
        return self._answer(response.status, response.headers, response.data)

    def send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Answer:
        """Create (POST), replace (PUT), change (PATCH: what `body` says, the rest stays) or delete an object."""
        response = self._request(method, path, {}, body)
        return self._answer(response.status, response.headers, response.data)

    def text(self, path: str, query: Mapping[str, object]) -> Iterator[str]:
        """A log, piece by piece as it comes; with `follow` in the query as it grows. Nothing where there is none."""
        response = self._request("GET", path, query, is_stream=True)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        try:
            if response.status == 200:
                yield ""  # there is a log, be it empty
                for piece in response.stream(1 << 16, decode_content=True):
                    yield decoder.decode(piece)
            elif response.status not in (400, 404):  # 400: the container has not begun
                raise environment_failure("GF412", f"the log cannot be read: {_status_line(response.status)}", NETWORK)
        except (self._urllib3.exceptions.HTTPError, OSError) as trouble:
            raise self._no_answer(trouble) from None
        finally:
            response.close()

    def _request(
        self, method: str, path: str, query: Mapping[str, object], body: Any = None, *, is_stream: bool = False
    ) -> Any:
        address = f"{self._host}{path}" + (f"?{urlencode(query)}" if query else "")
        headers = {"Accept": "*/*" if is_stream else "application/json", **self._credentials()}
        if body is not None:
            headers["Content-Type"] = f"application/{'merge-patch+' if method == 'PATCH' else ''}json"
        read = None if "follow" in query else self._timeout
        timeout = self._urllib3.Timeout(connect=min(CONNECT, self._timeout), read=read)
        how = {"timeout": timeout, "headers": headers, "body": None if body is None else json.dumps(body).encode()}
        try:
            # A redirect would carry the token to another host.
            return self._pool.request(
                method, address, retries=False, redirect=False, preload_content=not is_stream, **how
            )
        except (self._urllib3.exceptions.HTTPError, OSError) as trouble:
            raise self._no_answer(trouble) from None

    def _credentials(self) -> dict[str, str]:
        """The header that the kubeconfig's way of logging in gives; a token that has expired is renewed here."""
        try:
            with self._login:  # two threads must not log in at once
                settings = self._settings.auth_settings().get("BearerToken", {})
        except self._broken_config as refusal:
            raise _unusable_config(refusal) from None
        value = str(settings.get("value") or "").strip()
        if not (value.isascii() and value.isprintable()):
            message = "the token of the kubeconfig has characters that no request can carry"
            raise environment_failure("GF411", message, LOG_IN)
        return {"Authorization": value} if value else {}

    def _answer(self, status: int, headers: Mapping[str, str], data: bytes) -> Answer:
        said = _status_line(status)
        kind = headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if status == 407:
            raise environment_failure("GF412", f"the proxy wants to know who asks: {said}", ADDRESS)
        if 300 <= status < 400:
            to = _redact(headers.get("Location", "")) or "another address"
            raise self._not_kubernetes(f"sends every question on to {to} ({said})")
        if kind in ("text/html", "application/xhtml+xml"):
            raise self._not_kubernetes(f"answers with a web page ({said})")
        if status not in (200, 201, 202):
            return Answer(status, {}, said, _sentence(data))
        try:
            body = json.loads(data)
        except ValueError:
            if kind == "application/json":
                raise self._broken_connection() from None
            body = None
        if not isinstance(body, Mapping):
            raise self._not_kubernetes(f"answers something other than an object ({kind or 'of no stated type'})")
        return Answer(status, body)

    def _not_kubernetes(self, what: str) -> EnvironmentFailure:
        return environment_failure("GF412", f"{_redact(self._host)} is not a Kubernetes API server: it {what}", ADDRESS)

    def _broken_connection(self) -> EnvironmentFailure:
        message = f"the cluster does not answer: {_redact(self._host)} broke off in the middle of an answer"
        return environment_failure("GF412", message, NETWORK)

    def _no_answer(self, trouble: Exception) -> EnvironmentFailure:
        """What stopped a question, in one sentence, without the client's own objects and addresses."""
        kinds = self._urllib3.exceptions
        host, why = _redact(self._host), _cause(trouble)
        if isinstance(trouble, kinds.ProxyError):
            message, hint = f"the proxy {_redact(self._proxy)} does not let the question through: {why}", ADDRESS
        elif isinstance(trouble, kinds.SSLError | ssl.SSLError):
            message = f"no trusted connection to {host}: {why}"
            hint = "check certificate-authority and the client certificate in the kubeconfig"
        elif isinstance(trouble, kinds.NewConnectionError):  # in urllib3 1 also a timeout
            message, hint = f"the cluster does not answer: no connection to {host}: {why}", NETWORK
        elif isinstance(trouble, kinds.TimeoutError | TimeoutError):
            seconds = min(CONNECT, self._timeout) if isinstance(trouble, kinds.ConnectTimeoutError) else self._timeout
            message, hint = f"the cluster does not answer: {host} was silent for {seconds:g} s", NETWORK
        elif isinstance(trouble, kinds.ProtocolError | kinds.DecodeError | ConnectionError):
            return self._broken_connection()
        else:
            message, hint = f"the cluster does not answer: {host}: {why}", NETWORK
        return environment_failure("GF412", message, hint)


def environment_failure(code: str, message: str, hint: str) -> EnvironmentFailure:
    return EnvironmentFailure(Finding(code, message, LIVE, hint))


def _unusable_config(refusal: Exception) -> EnvironmentFailure:
    hint = "set KUBECONFIG, or name a file with --kubeconfig and a context with --context"
    return environment_failure("GF411", f"the kubeconfig cannot be used: {_first_line(refusal)}", hint)


def _inside_the_client(error: Exception) -> bool:
    """Whether an error came up in the client's own code, and not where we called it."""
    return error.__traceback__ is not None and error.__traceback__.tb_next is not None


def _sentence(data: bytes) -> str:
    """The message of a `Status`."""
    with suppress(ValueError, AttributeError):
        return str(json.loads(data).get("message") or "")
    return ""


def _status_line(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _redact(address: str | None) -> str:
    """An address without its path, and without the password that may stand in it."""
    parts = urlsplit(address or "")
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}" if parts.netloc else ""


def _cause(trouble: BaseException) -> str:
    """The innermost reason: what the operating system or TLS said, and not how the client wrapped it."""
    seen: list[BaseException] = []
    step: BaseException | None = trouble
    while step is not None and step not in seen:
        seen.append(step)
        wrapped = [item for item in (getattr(step, "reason", None), *step.args) if isinstance(item, BaseException)]
        step = wrapped[0] if wrapped else step.__cause__ or step.__context__
    for error in reversed(seen):
        if isinstance(error, ssl.SSLCertVerificationError):
            return error.verify_message
        if isinstance(error, ssl.SSLError) and error.reason:
            return str(error.reason).replace("_", " ").lower()
        if isinstance(error, OSError) and error.strerror:
            return error.strerror
    return _first_line(seen[-1])


def _first_line(refusal: BaseException) -> str:
    words = str(refusal).strip().splitlines()
    return words[0] if words else type(refusal).__name__
