"""A cluster read live, and only read.

Questions to an API server, and one sentence for each way in which it may not answer.

The one place that imports the Kubernetes client. The client reads the kubeconfig, logs in and sets up TLS; the requests
are ours, over its urllib3 pool, because the arguments of `ApiClient.call_api` are not the same in all its versions.
Versions of the client also differ in which proxy they use; kubectl's rule holds for all of them: the cluster's
`proxy-url`, else the environment's proxy unless NO_PROXY names the host.
"""

from __future__ import annotations

import ipaddress
import json
import os
import ssl
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple
from urllib.parse import unquote, urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import yaml

from gpuflow.cluster.fields import keep_checked_fields
from gpuflow.cluster.kinds import (
    KUEUE,
    KUEUE_CONFIG,
    KUEUE_NAMESPACE,
    KUEUE_SETTINGS,
    KUEUE_SETTINGS_KEY,
    SOURCES,
    TIMEOUT,
    Source,
)
from gpuflow.cluster.model import Cluster, Manifest
from gpuflow.core import yaml_tree
from gpuflow.core.errors import EnvironmentFailure, Finding, GpuflowError, Where, install_line


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
ADDRESS = "check the address of the cluster in the kubeconfig, and what stands in front of it"


class Answer(NamedTuple):
    """What the API server says to a question: an object, or a status and the reason."""

    status: int
    body: Mapping[str, Any]
    reason: str = ""


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
        address = f"{self._host}{path}" + (f"?{urlencode(query)}" if query else "")
        headers = {"Accept": "application/json", **self._credentials()}
        timeout = self._urllib3.Timeout(connect=min(CONNECT, self._timeout), read=self._timeout)
        try:
            # A redirect would carry the token to another host.
            response = self._pool.request(
                "GET", address, headers=headers, timeout=timeout, retries=False, redirect=False
            )
        except (self._urllib3.exceptions.HTTPError, OSError) as trouble:
            raise self._no_answer(trouble) from None
        return self._answer(response.status, response.headers, response.data)

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
            raise environment_failure("GF411", message, "log in again, or name another context with --context")
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
        if status != 200:
            return Answer(status, {}, said)
        try:
            body = json.loads(data)
        except ValueError:
            if kind == "application/json":
                raise self._broken_connection() from None
            body = None
        if not isinstance(body, Mapping):
            raise self._not_kubernetes(f"answers something other than an object ({kind or 'of no stated type'})")
        return Answer(200, body)

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


PAGE = 500
AT_ONCE = 4
"""How many lists are asked for at the same time: enough to be quick, too few to be a burden."""


def read_live(
    namespaces: str | Sequence[str],
    context: str | None = None,
    reader: Reader | None = None,
    *,
    kubeconfig: str | None = None,
    timeout: float = TIMEOUT,
) -> Cluster:
    """The cluster as one namespace of it, several or `ALL` show it now. Kinds that may not be listed are named in it;
    without quotas it is an error."""
    source = reader or Reader(context, kubeconfig, timeout)
    objects: list[Manifest] = []
    unread: dict[str, str] = {}
    refused: list[Finding] = []
    served: set[str] = set()
    groups, homes = _groups(source), (namespaces,) if isinstance(namespaces, str) else tuple(namespaces)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(lambda wanted: _list_all(source, wanted, homes, groups), SOURCES))
    for wanted, (answer, version) in zip(SOURCES, answers, strict=True):
        if answer.status == 200:
            served.add(wanted.group)
            objects += _manifests(answer.body["items"], wanted, version)
        elif answer.status == 401:
            message = "the cluster does not accept the credentials of the kubeconfig: 401 Unauthorized"
            raise environment_failure("GF411", message, "log in again, or name another context with --context")
        elif answer.status != 404 or wanted.needed:  # 404: this cluster does not have the kind
            unread[wanted.kind] = answer.reason
            refused += [_unread_finding(wanted, answer)] if wanted.needed else []
    if refused:
        raise EnvironmentFailure(refused)
    if KUEUE in served or any(wanted.kind in unread for wanted in SOURCES if wanted.group == KUEUE):
        settings = _kueue_settings(source, unread)
        objects += [settings] if settings else []
    listed = frozenset(wanted.kind for wanted in SOURCES) - unread.keys()
    return Cluster(f"live {context or 'cluster'}", tuple(objects), listed, unread, homes)


def _groups(reader: Reader) -> dict[str, set[str]] | None:
    """The API groups of the cluster with their versions, so that nobody asks for kinds of others; None: not told."""
    answer = reader.get("/apis", {})
    found = answer.body.get("groups") if answer.status == 200 else None
    if not isinstance(found, list) or not all(isinstance(each, Mapping) for each in found):
        return None
    return {
        str(each.get("name")): {
            str(one.get("version")) for one in each.get("versions") or () if isinstance(one, Mapping)
        }
        for each in found
    }


def _list_all(
    reader: Reader, source: Source, homes: Sequence[str], groups: Mapping[str, set[str]] | None
) -> tuple[Answer, str]:
    """The whole list, in the newest version that the cluster serves; one namespace that may not be read closes it."""
    answer, version = Answer(404, {}, "404 Not Found"), ""
    for version in source.versions:
        if source.group and groups is not None and version not in groups.get(source.group, ()):
            continue
        items: list[Any] = []
        for path in dict.fromkeys(source.path(version, each) for each in homes):
            answer = _all_pages(reader, source, path)
            if answer.status != 200:
                break
            items += answer.body["items"]
        else:
            return Answer(200, {"items": items}), version
        if answer.status != 404:
            break
    return answer, version


def _all_pages(reader: Reader, source: Source, path: str) -> Answer:
    fields: dict[str, object] = {"fieldSelector": source.fields} if source.fields else {}
    items: list[Any] = []
    query = {**fields, "limit": PAGE}
    while True:
        answer = reader.get(path, query)
        if answer.status == 410 and "continue" in query:
            # The server has forgotten where we were: once more, all at once.
            items, query = [], fields
            continue
        if answer.status != 200:
            return answer
        items += _items(answer.body, path)
        token = (answer.body.get("metadata") or {}).get("continue")
        if not token:
            return Answer(200, {"items": items})
        query = {**fields, "limit": PAGE, "continue": token}


def _items(body: Mapping[str, Any], path: str) -> list[Mapping[str, Any]]:
    """The objects of a list. What is no list must not be read as a list of nothing."""
    items = body.get("items", body)
    if items is None:  # Go writes a list without objects like this, too
        return []
    if not isinstance(items, list) or not all(isinstance(item, Mapping) for item in items):
        message = f"the cluster does not answer as a Kubernetes API server: no list at {path}"
        raise environment_failure("GF412", message, ADDRESS)
    return items


def _kueue_settings(reader: Reader, unread: dict[str, str]) -> Manifest | None:
    """Kueue's configuration, where it is kept as Kueue's own installation keeps it."""
    answer = reader.get(f"/api/v1/namespaces/{KUEUE_NAMESPACE}/configmaps/{KUEUE_SETTINGS}", {})
    text = (answer.body.get("data") or {}).get(KUEUE_SETTINGS_KEY)
    if answer.status not in (200, 404):
        unread["Configuration"] = answer.reason
    if not isinstance(text, str):
        return None
    try:
        body = yaml_tree.parse(text, KUEUE_SETTINGS)
    except GpuflowError as refusal:
        unread["Configuration"] = refusal.findings[0].message
        return None
    if not isinstance(body, Mapping):
        return None
    plain = keep_checked_fields(
        "Configuration", {"apiVersion": f"{KUEUE_CONFIG}/v1beta2", "kind": "Configuration", **body}
    )
    return Manifest("Configuration", KUEUE_CONFIG, "", None, plain, LIVE)


def _unread_finding(source: Source, answer: Answer) -> Finding:
    if answer.status == 403:
        hint = "gpuflow snapshot --rbac prints the permissions that are needed"
        return Finding("GF413", f"{source.plural} cannot be listed: {answer.reason}", LIVE, hint)
    # Every cluster serves these: whatever else is answered is no matter of permissions.
    hint = ADDRESS if answer.status == 404 else NETWORK
    return Finding("GF412", f"{source.plural} cannot be listed: {answer.reason}", LIVE, hint)


def _manifests(items: list[Mapping[str, Any]], source: Source, version: str) -> Iterator[Manifest]:
    api_version = f"{source.group}/{version}" if source.group else version
    for item in items:
        body = keep_checked_fields(source.kind, {"apiVersion": api_version, "kind": source.kind, **item})
        metadata = body["metadata"]
        yield Manifest(source.kind, source.group, metadata.get("name", ""), metadata.get("namespace"), body, LIVE)
