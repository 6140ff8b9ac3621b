"""Pipelines with gangs, and clusters with nodes in racks and a queue for them."""

from __future__ import annotations

from typing import Any

import gpuflow
from gpuflow.checker.report import Report
from gpuflow.site import Site
from gpuflow.site.model import Gangs, TopologySpelling

RACK, HOST, PRODUCT = "cloud.com/rack", "kubernetes.io/hostname", "nvidia.com/gpu.product"
KUEUE = "kueue.x-k8s.io/v1beta2"
STEP = """
    image: registry.example.com/nlp/train:1.4
    command: [torchrun, train.py]
    gang: {workers: 4}
    gpu: h100-80gb x 8
    cpu: 8
    memory: 64Gi
    queue: research
    topology: {same: rack}
    service_account: default
    retry: {interruptions: 2}
"""


def pipeline(*names: str, more: str = "") -> gpuflow.Pipeline:
    steps = "".join(f"  {name}:{STEP}{more}" for name in names)
    return gpuflow.loads(f"apiVersion: gpuflow/v1\nkind: Pipeline\nname: demo\nsteps:\n{steps}")


def node(name: str, rack: str, gpus: int = 8) -> dict[str, Any]:
    labels = {HOST: name, RACK: rack, PRODUCT: "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.count": "8"}
    allocatable = {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": str(gpus), "pods": "110"}
    status = {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}


def nodes(**racks: int) -> list[dict[str, Any]]:
    return [node(f"{rack}-{index}", rack) for rack, count in racks.items() for index in range(count)]


def queue_objects(*, topology: str | None = "racks", levels: tuple[str, ...] = (RACK, HOST)) -> list[dict[str, Any]]:
    flavor: dict[str, Any] = {"nodeLabels": {PRODUCT: "NVIDIA-H100-80GB-HBM3"}}
    found = []
    if topology is not None:
        flavor["topologyName"] = topology
        spec: dict[str, Any] = {"levels": [{"nodeLabel": level} for level in levels]}
        found.append({"apiVersion": KUEUE, "kind": "Topology", "metadata": {"name": topology}, "spec": spec})
    quotas = [{"name": name, "nominalQuota": "1000"} for name in ("cpu", "nvidia.com/gpu")]
    quotas.append({"name": "memory", "nominalQuota": "100Ti"})
    groups = [
        {"coveredResources": [each["name"] for each in quotas], "flavors": [{"name": "h100", "resources": quotas}]}
    ]
    return [
        *found,
        {"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": "h100"}, "spec": flavor},
        {
            "apiVersion": KUEUE,
            "kind": "ClusterQueue",
            "metadata": {"name": "cq"},
            "spec": {"namespaceSelector": {}, "resourceGroups": groups},
        },
        {
            "apiVersion": KUEUE,
            "kind": "LocalQueue",
            "metadata": {"name": "research", "namespace": "research"},
            "spec": {"clusterQueue": "cq"},
        },
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "research"}},
        *(
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "research"}}
            for name in ("default", "gpuflow-gang")
        ),
    ]


def running(name: str, on: str, gpus: int, **metadata: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1", "nvidia.com/gpu": str(gpus)}}}
    container["resources"] = {**container["resources"], "limits": {"nvidia.com/gpu": str(gpus)}}  # type: ignore[dict-item]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "other", **metadata},
        "spec": {"containers": [container], "nodeName": on},
        "status": {"phase": "Running"},
    }


IDLE = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "done", "namespace": "other"},
    "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": "gone"},
    "status": {"phase": "Succeeded"},
}
"""Shows that somebody looked at pods."""


def check(given: gpuflow.Pipeline, *objects: dict[str, Any], queues: tuple[str, ...] = ("research",)) -> Report:
    """`queues`: those of which the site says that their flavors carry a Topology."""
    fields = {
        "namespace": "research",
        "topology": TopologySpelling(rack=RACK, queues=queues),
        "gangs": Gangs(service_account="gpuflow-gang"),
    }
    return gpuflow.check(given, [*objects, IDLE], site=Site.load("nvidia").model_copy(update=fields), engine="argo")


def words(report: Report) -> str:
    return "\n".join(
        f"{each.code} {each.message} {each.kubernetes or ''} {each.hint or ''}" for each in report.findings
    )
