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
from tests.targets.every_construct import HEAD, PIPELINES, SITE

from .fixtures import AnyCluster
from .kube import Kube

pytestmark = pytest.mark.control_plane

NEEDS_OBJECTS = ("priority.pod", "kubernetes.runtime_class", "service_account")
"""Admission plug-ins refuse pods that name classes and accounts which are not there."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    path: Path = tmp_path_factory.mktemp("site") / "site.yaml"
    path.write_text(SITE)
    return Site.load(str(path))


@pytest.mark.parametrize("construct", [each for each in POD if each not in NEEDS_OBJECTS])
def test_the_api_server_takes_the_pod(construct: str, site: Site, control_plane: AnyCluster, namespace: Kube) -> None:
    own = pod_for(loads(HEAD + PIPELINES[construct]), "a", site)
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**own["metadata"], "name": "p", "namespace": namespace.namespace},
        "spec": own["spec"],
    }
    answer = admit(pod)
    assert answer.allowed, answer.message
    stored = json.loads(
        namespace("create", "--dry-run=server", "--validate=strict", "-o", "json", "-f", "-", given=json.dumps(pod))
    )
    for key, value in own["spec"].items():
        assert _holds(stored["spec"].get(key), value), key


def _holds(stored: Any, written: Any) -> bool:
    """Whether the stored value has all that was written; the API server adds defaults."""
    if isinstance(written, dict):
        return isinstance(stored, dict) and all(_holds(stored.get(key), value) for key, value in written.items())
    if isinstance(written, list):
        return isinstance(stored, list) and all(any(_holds(each, one) for each in stored) for one in written)
    return bool(stored == written)
