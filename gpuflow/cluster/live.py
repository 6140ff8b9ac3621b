"""A cluster read live, and only read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from gpuflow.cluster.api_server import (
    ADDRESS,
    LIVE,
    LOG_IN,
    NETWORK,
    REFUSED_LOGIN,
    Answer,
    Reader,
    environment_failure,
)
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
from gpuflow.core.errors import EnvironmentFailure, Finding, GpuflowError

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
            raise environment_failure("GF411", REFUSED_LOGIN, LOG_IN)
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
