"""Small folders as people write them: nothing is taken for granted but what stands in them."""

from __future__ import annotations

from typing import Any

from gpuflow.checker.report import Report
from gpuflow.checker.run import check
from gpuflow.cluster import cluster_of
from gpuflow.demands import demand_of
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from tests.checker.whole_scenes import HEAD, HOME, NAMESPACE, Body, node

ONE = "steps: {a: {command: [x]}}"
A100 = "steps: {a: {command: [x], gpu: a100-80gb}}"
QUEUED = "steps: {a: {command: [x], queue: lq, gpu: a100-80gb, retry: {interruptions: 1}}}"
NODE = node("n", 8)
LIMIT: Body = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "q", "namespace": NAMESPACE},
    "spec": {"hard": {"requests.nvidia.com/gpu": "8"}},
    "status": {"hard": {"requests.nvidia.com/gpu": "8"}, "used": {"requests.nvidia.com/gpu": "0"}},
}


def record(*listed: str, **more: Any) -> Body:
    """What a folder says of itself."""
    return {"apiVersion": "gpuflow/v1", "kind": "Snapshot", "listed": list(listed), **more}


def shown(text: str, *objects: Any) -> Report:
    """The report on a pipeline against exactly these objects."""
    demand = demand_of(loads(HEAD + text, "p.yaml"), Site.load("nvidia"), "none")
    return check(demand, cluster_of(objects, "cluster/"), NAMESPACE)


def home(**more: Any) -> Body:
    """The namespace with something about it: annotations, labels, a status."""
    metadata = {key: more.pop(key) for key in ("annotations", "labels", "deletionTimestamp") if key in more}
    return {**HOME, "metadata": {**HOME["metadata"], **metadata}, **more}
