"""Small clusters whose GPUs come through dynamic resource allocation."""

from __future__ import annotations

from typing import Any

from gpuflow.checker.report import Report
from gpuflow.checker.run import check
from gpuflow.cluster import Cluster
from gpuflow.demands import demand_of
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from tests.checker.whole_scenes import HEAD, HOME, NAMESPACE, assert_a_snapshot_says_the_same, manifest

Body = dict[str, Any]
API = "resource.k8s.io/v1"
GPU = "gpu.nvidia.com"
LISTED = frozenset({"DeviceClass", "ResourceSlice", "ResourceClaim", "ResourceClaimTemplate", "Pod"})
FULL_GPU = f"device.driver == '{GPU}' && device.attributes['{GPU}'].type == 'gpu'"
PARTITION = f"device.driver == '{GPU}' && device.attributes['{GPU}'].type == 'mig'"


def judged(text: str, *objects: Body, listed: frozenset[str] = LISTED, runs: int = 1) -> Report:
    """The report on a pipeline, against a cluster whose device kinds were listed in whole."""
    cluster = Cluster("cluster.yaml", tuple(map(manifest, (HOME, *objects))), listed)
    demand = demand_of(loads(HEAD + text, "p.yaml"), Site.load("nvidia"), "none")
    report = check(demand, cluster, NAMESPACE, runs=runs)
    assert_a_snapshot_says_the_same(report, demand, cluster, runs)
    return report


def step(claim: str = "{template: gpus}", copies: int = 1, name: str = "a", **fields: str) -> str:
    """One line of `steps`."""
    more = "".join(f", {key}: {value}" for key, value in fields.items())
    over = f", for_each: {{i: [{', '.join(map(str, range(copies)))}]}}" if copies > 1 else ""
    return f"  {name}: {{command: [x], device_claim: {claim}{over}{more}}}\n"


def steps(*lines: str) -> str:
    return "steps:\n" + "".join(lines or (step(),))


def named(kind: str, name: str, namespace: str | None = None, **body: Any) -> Body:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": API, "kind": kind, "metadata": metadata, **body}


def device_class(name: str = GPU, selector: str = FULL_GPU, resource: str | None = None) -> Body:
    spec: Body = {"selectors": [{"cel": {"expression": selector}}]}
    return named("DeviceClass", name, spec=spec | ({"extendedResourceName": resource} if resource else {}))


def gpu(index: int, product: str = "NVIDIA H100 80GB HBM3", **more: Any) -> Body:
    texts = {"type": "gpu", "productName": product, "uuid": f"GPU-{index}"}
    attributes = {key: {"string": value} for key, value in texts.items()}
    attributes["driverVersion"] = {"version": "580.65.6"}
    attributes["resource.kubernetes.io/pcieRoot"] = {"string": f"pci0000:0{index // 2}"}
    return {"name": f"gpu-{index}", "attributes": attributes, "capacity": {"memory": {"value": "80Gi"}}, **more}


def gpus(node: str, count: int, **more: Any) -> Body:
    """The slice of a node with so many whole GPUs."""
    return slice_of(node, [gpu(index, **more) for index in range(count)])


def slice_of(node: str, devices: list[Body] | None, count: int = 1, name: str = "", **spec: Any) -> Body:
    pool = {"name": node, "generation": 1, "resourceSliceCount": count}
    given = {"devices": devices} if devices is not None else {}
    return named(
        "ResourceSlice", name or f"{node}-{GPU}", spec={"driver": GPU, "pool": pool, "nodeName": node, **given, **spec}
    )


def partitions(node: str, profile: str, places: list[int], slices: int) -> list[Body]:
    """A GPU that MIG partitions of one profile may be cut from, with the counters that they share."""
    counters = {f"memory-slice-{index}": {"value": "1"} for index in range(8)}
    devices = [
        {
            "name": f"gpu-0-mig-{profile.replace('.', '-')}-{place}",
            "attributes": {"type": {"string": "mig"}, "profile": {"string": profile}},
            "consumesCounters": [
                {
                    "counterSet": "gpu-0",
                    "counters": {f"memory-slice-{index}": {"value": "1"} for index in range(place, place + slices)},
                }
            ],
        }
        for place in places
    ]
    return [
        slice_of(node, None, 2, f"{node}-counters", sharedCounters=[{"name": "gpu-0", "counters": counters}]),
        slice_of(node, devices, 2, f"{node}-devices"),
    ]


def request(count: int = 1, device_class: str = GPU, selector: str | None = None, **more: Any) -> Body:
    selectors = {"selectors": [{"cel": {"expression": selector}}]} if selector else {}
    counted = {} if more.get("allocationMode") == "All" else {"count": count}
    return {"deviceClassName": device_class, **counted, **selectors, **more}


def exactly(name: str = "r", **fields: Any) -> Body:
    return {"name": name, "exactly": request(**fields)}


def claim_spec(*requests: Body, **more: Any) -> Body:
    return {"devices": {"requests": list(requests) or [exactly()], **more}}


def template(*requests: Body, name: str = "gpus", **more: Any) -> Body:
    return named("ResourceClaimTemplate", name, NAMESPACE, spec={"spec": claim_spec(*requests, **more)})


def holding(node: str, *devices: str, name: str = "held", namespace: str = "others") -> Body:
    """A claim of another pod that holds devices of a node."""
    results = [{"request": "r", "driver": GPU, "pool": node, "device": device} for device in devices]
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": [{"resource": "pods", "name": "x"}]}
    return named("ResourceClaim", name, namespace, spec=claim_spec(), status=status)
