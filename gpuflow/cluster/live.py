"""A cluster read live, and only read. The one place that imports the Kubernetes client."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from gpuflow import yaml_tree
from gpuflow.cluster.kinds import KUEUE, KUEUE_CONFIG
from gpuflow.cluster.model import Cluster, Manifest
from gpuflow.cluster.sources import KUEUE_NAMESPACE, KUEUE_SETTINGS, KUEUE_SETTINGS_KEY, SOURCES, Source
from gpuflow.cluster.tidy import tidied
from gpuflow.errors import EnvironmentFailure, Finding, GpuflowError, Where, install_line

PAGE = 500
TIMEOUT = 60
LIVE = Where("live")


class Answer(NamedTuple):
    """What the API server says to a question: an object, or a status and the reason."""

    status: int
    body: Mapping[str, Any]
    reason: str = ""


class Reader:
    """Asks the API server through the Kubernetes client."""

    def __init__(self, context: str | None = None, kubeconfig: str | None = None, timeout: float = TIMEOUT) -> None:
        try:
            from kubernetes import client, config
        except ModuleNotFoundError:
            message = "reading a live cluster needs the package kubernetes"
            raise _environment_failure("GF901", message, install_line("cluster")) from None
        settings = client.Configuration()
        settings.retries = 0
        inside = "KUBECONFIG" not in os.environ and "KUBERNETES_SERVICE_HOST" in os.environ
        try:
            if context is None and kubeconfig is None and inside:
                config.load_incluster_config(client_configuration=settings)
            else:
                config.load_kube_config(kubeconfig, context, client_configuration=settings)
        except Exception as refusal:  # the client raises many kinds of errors for a missing or broken kubeconfig
            hint = "set KUBECONFIG, or name a file with --kubeconfig and a context with --context"
            raise _environment_failure(
                "GF411", f"the kubeconfig cannot be used: {_first_line(refusal)}", hint
            ) from None
        self._client: Any = client.ApiClient(settings)
        self._refused: type[Exception] = client.exceptions.ApiException
        self._timeout = timeout

    def get(self, path: str, query: Mapping[str, object]) -> Answer:
        """One question to the API server."""
        try:
            response = self._client.call_api(
                path,
                "GET",
                query_params=list(query.items()),
                header_params={"Accept": "application/json"},
                auth_settings=["BearerToken"],
                _preload_content=False,
                _request_timeout=(min(10, self._timeout), self._timeout),
                _return_http_data_only=True,
            )
            return Answer(200, json.loads(response.data))
        except self._refused as refusal:
            status = getattr(refusal, "status", None) or 0
            return Answer(status, {}, f"{status} {getattr(refusal, 'reason', '')}".strip())
        except Exception as refusal:  # no connection, a bad certificate, a timeout, half an answer
            hint = "check the network and the context; --timeout gives it longer"
            raise _environment_failure("GF412", f"the cluster does not answer: {_first_line(refusal)}", hint) from None


def read_live(
    namespace: str,
    context: str | None = None,
    reader: Reader | None = None,
    *,
    kubeconfig: str | None = None,
    timeout: float = TIMEOUT,
) -> Cluster:
    """The cluster as it is now. Kinds that may not be listed are named in it; without quotas it is an error."""
    source = reader or Reader(context, kubeconfig, timeout)
    objects: list[Manifest] = []
    unread: dict[str, str] = {}
    refused: list[Finding] = []
    served: set[str] = set()
    for wanted in SOURCES:
        answer, version = _listed(source, wanted, namespace)
        if answer.status == 200:
            served.add(wanted.group)
            objects += _manifests(answer.body["items"], wanted, version)
        elif answer.status == 401:
            message = "the cluster does not accept the credentials of the kubeconfig: 401 Unauthorized"
            raise _environment_failure("GF411", message, "log in again, or name another context with --context")
        elif answer.status != 404:  # 404: this cluster does not have the kind
            unread[wanted.kind] = answer.reason
            refused += [_unreadable(wanted, answer.reason)] if wanted.needed else []
    if refused:
        raise EnvironmentFailure(refused)
    if KUEUE in served or any(wanted.kind in unread for wanted in SOURCES if wanted.group == KUEUE):
        settings = _kueue_settings(source, unread)
        objects += [settings] if settings else []
    listed = frozenset(wanted.kind for wanted in SOURCES) - unread.keys()
    return Cluster(f"live {context or 'cluster'}", tuple(objects), listed, unread, namespace)


def _listed(reader: Reader, source: Source, namespace: str) -> tuple[Answer, str]:
    """The whole list, in the newest version that the cluster serves."""
    answer, version = Answer(404, {}), ""
    for version in source.versions:
        answer = _all_pages(reader, source, source.path(version, namespace))
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
        items += answer.body.get("items") or []
        token = (answer.body.get("metadata") or {}).get("continue")
        if not token:
            return Answer(200, {"items": items})
        query = {**fields, "limit": PAGE, "continue": token}


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
    plain = tidied("Configuration", {"apiVersion": f"{KUEUE_CONFIG}/v1beta2", "kind": "Configuration", **body})
    return Manifest("Configuration", KUEUE_CONFIG, "", None, plain, LIVE)


def _unreadable(source: Source, reason: str) -> Finding:
    hint = "gpuflow snapshot --rbac prints the permissions that are needed"
    return Finding("GF413", f"{source.plural} cannot be listed: {reason}", LIVE, hint)


def _manifests(items: list[Mapping[str, Any]], source: Source, version: str) -> Iterator[Manifest]:
    api_version = f"{source.group}/{version}" if source.group else version
    for item in items:
        body = tidied(source.kind, {"apiVersion": api_version, "kind": source.kind, **item})
        metadata = body["metadata"]
        yield Manifest(source.kind, source.group, metadata.get("name", ""), metadata.get("namespace"), body, LIVE)


def _environment_failure(code: str, message: str, hint: str) -> EnvironmentFailure:
    return EnvironmentFailure(Finding(code, message, LIVE, hint))


def _first_line(refusal: Exception) -> str:
    words = str(refusal).strip().splitlines()
    return words[0] if words else type(refusal).__name__
