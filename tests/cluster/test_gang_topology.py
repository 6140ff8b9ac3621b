"""A gang that must be in one rack, placed by a live Kueue on simulated nodes: as the check says, and in its words."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from gpuflow.runtime.gangs.attempt_object import Gang, Names
from gpuflow.runtime.gangs.later_attempts import EarlierAttempts
from gpuflow.site import Site
from gpuflow.site.model import Gangs, TopologySpelling

from ..checker import gang_scenes as scenes
from . import nodes
from .fixtures import AnyCluster
from .gang_launches import manifest_of
from .gangs import OF_JOBSET
from .kube import Kube
from .queues import waiting_message
from .waiting import until

pytestmark = pytest.mark.control_plane

TOLERATES = "    kubernetes: {tolerations: [{key: gpuflow.test/simulated, operator: Exists}]}\n"
FOR_LAUNCHERS = scenes.node("for-launchers", "none", gpus=0)
"""In the snapshot alone: the check looks for a place for the launcher, and none is started here."""


@contextlib.contextmanager
def racks(kube: Kube, **sizes: int) -> Iterator[list[dict[str, Any]]]:
    """Nodes in racks, a queue whose flavor knows them, and all of that as a snapshot has it."""
    labels = {scenes.PRODUCT: "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.count": "8"}
    made = [
        nodes.simulated(f"{rack}-{index}", labels={**labels, scenes.RACK: rack}, taints=[nodes.FENCE])
        for rack, count in sizes.items()
        for index in range(count)
    ]
    queue = [each for each in scenes.queue_objects() if each["kind"] not in ("Namespace", "ServiceAccount")]
    kube.apply(*made, *(_within(each, kube.namespace) for each in queue))
    names = [each["metadata"]["name"] for each in made]
    try:
        for name in names:
            nodes.await_ready(kube, name)
        there = [kube.get("node", name) for name in names]
        yield [*filter(None, there), FOR_LAUNCHERS, *scenes.queue_objects()]
    finally:
        kube("delete", "jobset", "--all")
        kube("delete", "clusterqueue", "cq", "--wait=false")
        kube("delete", "resourceflavor", "h100", "--wait=false")
        kube("delete", "topologies.kueue.x-k8s.io", "racks", "--wait=false")
        kube("delete", "node", *names)


def _within(document: dict[str, Any], namespace: str) -> dict[str, Any]:
    if "namespace" not in document["metadata"]:
        return document
    return {**document, "metadata": {**document["metadata"], "namespace": namespace}}


def start(kube: Kube) -> str:
    """The gang as its launcher makes it; the name of its JobSet."""
    fields = {
        "topology": TopologySpelling(rack=scenes.RACK, queues=("research",)),
        "gangs": Gangs(service_account="gpuflow-gang"),
    }
    site = Site.load("nvidia").model_copy(update=fields)
    given = scenes.pipeline("train", more=TOLERATES)
    gang = Gang(manifest_of(given, site), Names("demo", "r", "train", container="main"), None)
    kube.create(gang.body(1, 0, 0, EarlierAttempts()))
    return gang.name(1)


def test_kueue_puts_the_gang_into_the_rack_that_has_room_for_all_of_it(
    kueue: AnyCluster, jobset: AnyCluster, namespace: Kube
) -> None:
    with racks(namespace, a=3, b=4) as snapshot:
        report = scenes.check(scenes.pipeline("train", more=TOLERATES), *snapshot)
        assert report.verdict == "always", scenes.words(report)
        name = start(namespace)

        def placed() -> list[str]:
            pods = namespace.list("pod", f"{OF_JOBSET}={name}")
            found = [each["spec"].get("nodeName") for each in pods]
            return sorted(found) if len(found) == 4 and all(found) else []

        where = until("all ranks to be placed", placed, timeout=120)
        assert where == ["b-0", "b-1", "b-2", "b-3"]


def test_what_the_check_calls_never_waits_in_kueue_for_the_same_reason(
    kueue: AnyCluster, jobset: AnyCluster, namespace: Kube
) -> None:
    with racks(namespace, a=3, b=3) as snapshot:
        report = scenes.check(scenes.pipeline("train", more=TOLERATES), *snapshot)
        assert report.verdict == "never"
        name = start(namespace)
        said = until("Kueue to say why", lambda: waiting_message(namespace, name), timeout=120)
        assert 'topology "racks" allows to fit only 3 out of 4 pod(s)' in said
        assert 'topology "racks" allows to fit only 3 out of 4 pod(s)' in scenes.words(report)
        assert not namespace.list("pod", f"{OF_JOBSET}={name}")
