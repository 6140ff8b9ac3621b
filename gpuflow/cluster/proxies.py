"""Which proxy stands between here and the API server. Versions of the Kubernetes client differ in this; kubectl's rule
holds for all of them: the cluster's `proxy-url`, else the environment's proxy unless NO_PROXY names the host."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import yaml


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
        try:
            network = ipaddress.ip_network(entry.strip(), strict=False)
        except ValueError:
            continue
        if address in network:
            return True
    return False


def proxy_url(kubeconfig: str | None, context: str | None) -> str | None:
    """The `proxy-url` of the context's cluster. Clients before 37 do not read it."""
    documents = list(_documents(kubeconfig))
    current = context or next((doc["current-context"] for doc in documents if doc.get("current-context")), None)
    cluster = _entry(documents, "contexts", "context", current).get("cluster")
    found = _entry(documents, "clusters", "cluster", cluster).get("proxy-url")
    return found if isinstance(found, str) else None


def _documents(kubeconfig: str | None) -> Iterator[Mapping[str, Any]]:
    named = kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
    for name in filter(None, named.split(os.pathsep)):
        try:
            document = yaml.load(Path(name).expanduser().read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        except (OSError, ValueError, yaml.YAMLError):
            continue  # the client has read it already, or has said what is wrong with it
        if isinstance(document, Mapping):
            yield document


def _entry(documents: list[Mapping[str, Any]], many: str, one: str, name: object) -> Mapping[str, Any]:
    """The first entry of a name counts, in whichever file it stands."""
    for document in documents:
        entries = document.get(many)
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, Mapping) and entry.get("name") == name:
                body = entry.get(one)
                return body if isinstance(body, Mapping) else {}
    return {}
