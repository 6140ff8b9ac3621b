"""Kubernetes' own kinds on its own controllers: the quota that they use is the peak that the reader says.

No node takes the pods, so none of them ends, and what the API server has charged is the worst moment.
"""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from gpuflow.demands import Demand
from gpuflow.quantity import Quantity

from ..readers.kubernetes.reading import demand, findings
from ..readers.kubernetes.samples import SAMPLES
from .fixtures import AnyCluster
from .kube import Kube
from .waiting import until

pytestmark = pytest.mark.control_plane

NATIVE = (
    "pod",
    "replication controller",
    "replica set",
    "deployment",
    "stateful set",
    "job",
    "job with more completions than parallelism",
)
KEYS = ("pods", "requests.cpu", "requests.memory", "limits.cpu", "requests.nvidia.com/gpu", "persistentvolumeclaims")
HARD = {**dict.fromkeys(KEYS, "1M"), "requests.memory": "1Ei", "requests.storage": "1Ei"}
QUOTA = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "counts"}, "spec": {"hard": HARD}}


def runnable(name: str) -> dict[str, Any]:
    """The sample as the API server takes it: with selector and labels, on no node that there is."""
    tree: dict[str, Any] = yaml.safe_load(SAMPLES[name].text)
    spec = tree["spec"] if tree["kind"] == "Pod" else tree["spec"]["template"]["spec"]
    spec["nodeSelector"] = {"gpuflow.test/pool": "nowhere"}
    if tree["kind"] in ("ReplicationController", "ReplicaSet", "Deployment", "StatefulSet"):
        spec["restartPolicy"] = "Always"
        tree["spec"]["template"]["metadata"] = {"labels": {"app": "x"}}
        selector = {"app": "x"}
        tree["spec"]["selector"] = selector if tree["kind"] == "ReplicationController" else {"matchLabels": selector}
    if tree["kind"] == "Job":
        for rule in tree["spec"].get("podFailurePolicy", {}).get("rules", ()):
            rule["onPodConditions"][0]["status"] = "True"
    return tree


@pytest.mark.parametrize("name", NATIVE)
def test_the_quota_that_controllers_use_is_the_peak(control_plane: AnyCluster, namespace: Kube, name: str) -> None:
    tree = runnable(name)
    expected = demand(yaml.safe_dump(tree))
    assert isinstance(expected, Demand)
    namespace.create(QUOTA)
    namespace.await_object("resourcequota", "counts", "counted", lambda item: "used" in item.get("status", {}))
    namespace.create(tree)

    def used() -> dict[str, Quantity]:
        found = namespace.get("resourcequota", "counts") or {}
        return {key: Quantity(value) for key, value in found["status"]["used"].items()}

    def peak(key: str) -> Quantity | None:
        bound = expected.peak.get(key)
        return Quantity.zero if bound is None else bound.value

    pods = peak("pods")
    until(f"{pods} pods of {name}", lambda: used()["pods"] == pods, timeout=120, otherwise=used)
    found = used()
    assert {key: found[key] for key in HARD} == {key: peak(key) for key in HARD}


def test_an_update_has_as_many_pods_as_the_finding_says(control_plane: AnyCluster, namespace: Kube) -> None:
    tree = runnable("deployment")
    (said,) = [each for each in findings(yaml.safe_dump(tree)) if each.code == "GF773"]
    most = int(said.message.split("up to ")[1].split()[0])
    namespace.create(tree)

    def pods() -> int:
        return len(namespace.list("pod", "app=x"))

    # A rolling update waits for pods that are available, and these never are: it stops at its surge.
    tree["spec"]["strategy"] = {"rollingUpdate": {"maxUnavailable": 0}}
    until("the first start", lambda: pods() == tree["spec"]["replicas"])
    tree["spec"]["template"]["spec"]["containers"][0]["image"] = "registry.example.com/train:2"
    namespace.apply(tree)
    until("the surge", lambda: pods() == most, otherwise=pods)
    assert pods() == most
