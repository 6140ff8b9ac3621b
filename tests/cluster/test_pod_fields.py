"""The real API server takes every pod that gpuflow makes of a construct, and gpuflow's model of it says the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpuflow import admit
from gpuflow.pod import pod_for
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from gpuflow.targets.constructs import POD
from tests.checker.pod_answers import answers, label
from tests.targets.every_construct import HEAD, PIPELINES, SITE

from .fixtures import AnyCluster
from .kube import Kube, KubeError

pytestmark = pytest.mark.control_plane

REFUSED = ("kubernetes.runtime_class", "priority.pod", "security.privileged", "service_account")
"""Admission plug-ins refuse pods that name classes and accounts which are not there, and this cluster takes no
privileged ones."""


def test_the_api_server_takes_the_pods(control_plane: AnyCluster, namespace: Kube, tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(SITE)
    site = Site.load(str(tmp_path / "site.yaml"))
    constructs = [each for each in POD if each not in REFUSED]
    pods = [_pod(each, site, namespace.namespace) for each in constructs]
    refused = [
        (each, answer.message) for each, pod in zip(constructs, pods, strict=True) if not (answer := admit(pod)).allowed
    ]
    assert refused == []
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": pods})
    words = ("create", "--dry-run=server", "--validate=strict", "-o", "json", "-f", "-")
    stored = _documents(namespace(*words, given=listed, timeout=240))
    lost = [
        (construct, key)
        for construct, pod, kept in zip(constructs, pods, stored, strict=True)
        for key, value in pod["spec"].items()
        if not _holds(kept["spec"].get(key), value)
    ]
    assert lost == []


def _documents(text: str) -> list[dict[str, Any]]:
    """What kubectl prints of a list: one JSON document behind the other."""
    found, rest = [], text.strip()
    while rest:
        document, end = json.JSONDecoder().raw_decode(rest)
        found.append(document)
        rest = rest[end:].lstrip()
    return found


def _pod(construct: str, site: Site, namespace: str) -> dict[str, Any]:
    own = pod_for(loads(HEAD + PIPELINES[construct]), "a", site)
    name = construct.replace("_", "-")
    metadata = {**own["metadata"], "name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": own["spec"]}


def _holds(stored: Any, written: Any) -> bool:
    """Whether the stored value has all that was written; the API server adds defaults."""
    if isinstance(written, dict):
        return isinstance(stored, dict) and all(_holds(stored.get(key), value) for key, value in written.items())
    if isinstance(written, list):
        return isinstance(stored, list) and all(any(_holds(each, one) for each in stored) for one in written)
    return bool(stored == written)


def test_the_api_server_refuses_what_the_model_refuses(control_plane: AnyCluster, namespace: Kube) -> None:
    differing = []
    for pod, clauses in answers():
        try:
            namespace("create", "--dry-run=server", "--validate=ignore", "-f", "-", given=json.dumps(pod))
            said: list[str] = []
        except KubeError as refusal:
            text = str(refusal).partition(" is invalid: ")[2].strip()
            said = sorted(line.removeprefix("* ") for line in text.splitlines())
        if said != clauses:
            differing.append((label(pod), said, clauses))
    assert differing == []
