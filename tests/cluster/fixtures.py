"""Pytest fixtures: one cluster for the session, started when first asked for; a fresh namespace per test."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from ..engines import build
from ..engines.build import BuildError
from . import argo as argo_addon
from . import machine
from .cluster import CONTROL_PLANE, Cluster
from .faults import Faults
from .given import GivenCluster, Lacking
from .kube import Kube
from .machine import MachineError
from .pods import release_all
from .waiting import until

OWNER = {"gpuflow.test/owner": "pytest"}
PARTS = pytest.StashKey[list[tuple[str, float]]]()
CLUSTER = pytest.StashKey[Cluster]()
AnyCluster = Cluster | GivenCluster


def lacking(reason: str) -> NoReturn:
    """Skip with the reason; where CI is set, fail: a suite that quietly tests nothing is no proof."""
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def obstacle() -> str:
    """Why no cluster can be had at all: no KUBECONFIG, and this machine cannot carry a private one."""
    if os.environ.get("KUBECONFIG"):
        return ""
    try:
        machine.judge(build.cache())
        build.judge(build.missing(CONTROL_PLANE))
    except (MachineError, BuildError) as error:
        return str(error)
    return ""


@pytest.fixture(scope="session")
def proof_ground(request: pytest.FixtureRequest) -> Iterator[AnyCluster]:
    """The session's cluster: KUBECONFIG's, else one that `python -m tests.cluster up` left running, else a new one."""
    node = any(item.get_closest_marker("cluster") for item in request.session.items)
    if given := os.environ.get("KUBECONFIG"):
        yield GivenCluster(Path(given.split(os.pathsep)[0]))
        return
    name = f"pytest-{os.environ.get('PYTEST_XDIST_WORKER', 'main')}"
    # Each module that imports these fixtures has a `proof_ground` to itself; the session has one cluster.
    running = request.config.stash.get(CLUSTER, None) or Cluster.find("default")
    if running and (running.state["node"] or not node):
        yield running
        return
    capture = request.config.pluginmanager.getplugin("capturemanager")
    try:
        # The first start builds the engines for many minutes: show its progress.
        with capture.global_and_fixture_disabled():
            cluster = Cluster.up(name, node=node, say=lambda line: print(f"  {line}", flush=True))
    except (MachineError, BuildError) as error:
        lacking(str(error))
    request.config.stash[CLUSTER] = cluster
    try:
        yield cluster
    finally:
        request.config.stash[PARTS] = [(f"start: {label}", seconds) for label, seconds in cluster.state["parts"]]
        Cluster.down(name)


@pytest.fixture(scope="session")
def control_plane(proof_ground: AnyCluster) -> AnyCluster:
    """A cluster whose nodes may all be simulated."""
    return proof_ground


@pytest.fixture(scope="session")
def cluster(proof_ground: AnyCluster) -> AnyCluster:
    """A cluster with at least one node that runs pods."""
    if not proof_ground.state["node"]:
        lacking("this test needs a node that runs pods, and the running cluster has none")
    return proof_ground


@pytest.fixture(scope="session")
def private_cluster(proof_ground: AnyCluster) -> Cluster:
    """The private cluster itself, for tests that add nodes to it or stop parts of it."""
    if not isinstance(proof_ground, Cluster):
        lacking("this test hurts or rebuilds its cluster: it needs the private one (unset KUBECONFIG)")
    return proof_ground


def with_addon(cluster: AnyCluster, addon: str) -> AnyCluster:
    """The cluster with what is named put on it; where that cannot be, the test is skipped, or fails in CI."""
    try:
        cluster.ensure(addon)
    except (Lacking, BuildError, MachineError) as error:
        lacking(str(error))
    return cluster


@pytest.fixture(scope="session")
def argo(cluster: AnyCluster) -> AnyCluster:
    """A cluster with Argo Workflows."""
    return with_addon(cluster, "argo")


@pytest.fixture(scope="session")
def kubeflow(private_cluster: Cluster) -> AnyCluster:
    """A private cluster with Kubeflow Pipelines, and Argo below it."""
    if not private_cluster.state["node"]:
        lacking("KFP needs a node that runs pods, and the running cluster has none")
    return with_addon(private_cluster, "kubeflow")


@pytest.fixture(scope="session")
def kueue(control_plane: AnyCluster) -> AnyCluster:
    """A cluster with Kueue; its nodes may be simulated."""
    return with_addon(control_plane, "kueue")


@pytest.fixture(scope="session")
def jobset(control_plane: AnyCluster) -> AnyCluster:
    """A cluster with JobSet, and with names where a node runs pods; its nodes may be simulated."""
    return with_addon(control_plane, "jobset")


@pytest.fixture
def namespace(proof_ground: AnyCluster) -> Iterator[Kube]:
    """kubectl in a namespace made for this test and deleted after it."""
    name = f"gpuflow-{uuid.uuid4().hex[:10]}"
    kube = proof_ground.kube.within(name)
    kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": OWNER}})
    until("the default service account", lambda: kube.get("serviceaccount", "default"))
    yield kube
    release_all(kube)
    kube("delete", "namespace", name, "--wait=false")


@pytest.fixture
def workflows(argo: AnyCluster, namespace: Kube) -> Kube:
    """A namespace in which Argo's pods may report."""
    argo_addon.permit(namespace)
    return namespace


@pytest.fixture
def faults(proof_ground: AnyCluster, namespace: Kube) -> Iterator[Faults]:
    """Ways to hurt the pods of this test's namespace; what was broken is mended afterwards."""
    tool = Faults(proof_ground, namespace)
    yield tool
    tool.undo()


@pytest.fixture(scope="session")
def kubeconfig(proof_ground: AnyCluster) -> Path:
    return proof_ground.kube.kubeconfig
