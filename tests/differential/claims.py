"""Pods with volume claims: claims that are bound, lost, going or waiting, with volumes, classes and free storage."""

from __future__ import annotations

from typing import Any

from tests.differential.draw import Draw, without_none
from tests.differential.nodes import HOST, ZONE
from tests.differential.pods import Manifest

NAMESPACE = "ns"
OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
RACK = "example.com/rack"
ON_DEMAND = "WaitForFirstConsumer"
CLASSES: dict[str, tuple[str, str]] = {
    "local": ("kubernetes.io/no-provisioner", ON_DEMAND),
    "disk": ("disk.example.com", ON_DEMAND),
    "tracked": ("tracked.example.com", ON_DEMAND),
    "now": ("disk.example.com", "Immediate"),
}
MODES = ("ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany", "ReadWriteOncePod")


def case(draw: Draw) -> dict[str, Any]:
    """A pod with one to three claims, one to five nodes, and what the claims depend on."""
    nodes = [_node(draw, f"n{index}") for index in range(draw.number(1, 5))]
    names = [f"c{index}" for index in range(draw.weighted({1: 4, 2: 3, 3: 1}))]
    claims = [_claim(draw, name, index, nodes) for index, name in enumerate(names) if not draw.chance(0.03)]
    bound = {claim["spec"]["volumeName"]: claim for claim in claims if "volumeName" in claim["spec"]}
    volumes = [_volume(draw, name, 100 + index, claim) for index, (name, claim) in enumerate(bound.items())]
    volumes = [volume for volume in volumes if not draw.chance(0.04)]
    # Sizes differ, so that one volume is the smallest.
    # One volume at most is set aside for a claim: of two the scheduler takes whichever it comes upon first.
    takers = [*names, "else"]
    volumes += [_spare(draw, f"s{index}", 5 + 3 * index, takers) for index in range(draw.number(0, 5))]
    return {
        "pod": _pod("p", names, {}),
        "nodes": nodes,
        "pods": [_other(draw, index, names, nodes) for index in range(draw.weighted({0: 5, 1: 2, 2: 1}))],
        "namespaces": {NAMESPACE: {}, "other": {}},
        "storage": {
            "claims": claims,
            "volumes": volumes,
            "classes": [_class(draw, name) for name in CLASSES if not draw.chance(0.03)],
            "drivers": [_driver(draw, name) for name in ("disk.example.com", "tracked.example.com")],
            "capacities": [_capacity(draw, index) for index in range(draw.number(0, 4))],
        },
    }


def _node(draw: Draw, name: str) -> Manifest:
    labels = {HOST: name}
    if draw.chance(0.8):
        labels[draw.weighted({ZONE: 9, OLD_ZONE: 1})] = draw.pick(("a", "b"))
    if draw.chance(0.5):
        labels[RACK] = draw.pick(("1", "2"))
    allocatable = {"cpu": draw.weighted({"4": 9, "500m": 1}), "memory": "8Gi", "pods": "110"}
    taints = [{"key": "gpu", "value": "x", "effect": "NoSchedule"}] if draw.chance(0.05) else []
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints},
        "status": {"allocatable": allocatable},
    }


def _claim(draw: Draw, name: str, index: int, nodes: list[Manifest]) -> Manifest:
    kind = draw.weighted({"bound": 4, "waiting": 6, "lost": 0.2, "going": 0.2, "given": 0.2})
    annotations: Manifest = {}
    spec: Manifest = {
        "accessModes": [draw.weighted(dict(zip(MODES, (6, 3, 1, 2), strict=True)))],
        "resources": {"requests": {"storage": f"{draw.pick((2, 7, 12)) + index}Gi"}},
        "storageClassName": draw.weighted({"local": 3, "disk": 3, "tracked": 4, "now": 0.3, "": 0.2}),
    }
    phase = "Pending"
    if kind in ("bound", "going"):
        spec["volumeName"], phase = f"v-{name}", "Bound"
        annotations["pv.kubernetes.io/bind-completed"] = "yes"
    elif kind == "lost":
        spec["volumeName"], phase = f"v-{name}", "Lost"
    elif kind == "given":
        spec["volumeName"] = f"v-{name}"
    else:
        if draw.chance(0.1):
            annotations["volume.kubernetes.io/selected-node"] = draw.pick(nodes)["metadata"]["name"]
        if draw.chance(0.1):
            spec["selector"] = {"matchLabels": {"tier": "fast"}}
        if draw.chance(0.05):
            spec["volumeMode"] = "Block"
    metadata = without_none(
        name=name,
        namespace=NAMESPACE,
        annotations=annotations or None,
        deletionTimestamp="2026-01-01T00:00:00Z" if kind == "going" else None,
        finalizers=["kubernetes.io/pvc-protection"] if kind == "going" else None,
    )
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase}}


def _volume(draw: Draw, name: str, size: int, claim: Manifest | None) -> Manifest:
    labels: Manifest = {"tier": "fast"} if draw.chance(0.4) else {}
    if draw.chance(0.3):
        labels[draw.weighted({ZONE: 4, OLD_ZONE: 1})] = draw.pick(("a", "b", "a__b", "c", "a__"))
    spec: Manifest = {
        "capacity": {"storage": f"{size}Gi"},
        "accessModes": draw.some(MODES, 1, 3),
        "csi": {"driver": "disk.example.com", "volumeHandle": name},
        "storageClassName": claim["spec"]["storageClassName"]
        if claim
        else draw.pick(("local", "local", "disk", "tracked")),
    }
    if draw.chance(0.6):
        spec["nodeAffinity"] = {
            "required": {"nodeSelectorTerms": draw.times({1: 4, 2: 2, 0: 0.1}, lambda _: _term(draw))}
        }
    if draw.chance(0.05):
        spec["volumeMode"] = "Block"
    if claim:
        spec["claimRef"] = {"namespace": NAMESPACE, "name": claim["metadata"]["name"]}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": {"phase": "Bound" if claim else "Available"},
    }


def _spare(draw: Draw, name: str, size: int, takers: list[str]) -> Manifest:
    """A volume that nobody has yet; some are set aside for one claim, or not to be had."""
    volume = _volume(draw, name, size, None)
    if takers and draw.chance(0.12):
        taker = draw.pick(takers)
        takers.remove(taker)
        volume["spec"]["claimRef"] = {"namespace": NAMESPACE, "name": taker}
    if draw.chance(0.08):
        volume["status"]["phase"] = "Released"
    return volume


def _term(draw: Draw) -> Manifest:
    key = draw.pick((ZONE, RACK, HOST))
    values = {ZONE: ("a", "b"), RACK: ("1", "2"), HOST: ("n0", "n1", "n2")}[key]
    operator = draw.weighted({"In": 8, "NotIn": 1, "Exists": 1, "DoesNotExist": 0.5})
    listed = draw.some(values, 1, 2) if operator in ("In", "NotIn") else []
    return {"matchExpressions": [without_none(key=key, operator=operator, values=listed or None)]}


def _class(draw: Draw, name: str) -> Manifest:
    provisioner, mode = CLASSES[name]
    made: Manifest = {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode}
    if provisioner != "kubernetes.io/no-provisioner" and draw.chance(0.3):
        made["allowedTopologies"] = draw.times({1: 3, 2: 1}, lambda _: _allowed(draw))
    return made


def _allowed(draw: Draw) -> Manifest:
    key, values = draw.pick(((ZONE, ("a", "b", "c")), (RACK, ("1", "2"))))
    return {"matchLabelExpressions": [{"key": key, "values": draw.some(values, 1, 2)}]}


def _driver(draw: Draw, name: str) -> Manifest:
    return {"metadata": {"name": name}, "spec": {"storageCapacity": name.startswith("tracked") and draw.chance(0.9)}}


def _capacity(draw: Draw, index: int) -> Manifest:
    metadata = {"name": f"k{index}", "namespace": "other"}
    sizes = without_none(
        capacity=f"{draw.pick((1, 8, 50))}Gi" if draw.chance(0.9) else None,
        maximumVolumeSize=f"{draw.pick((1, 8, 50))}Gi" if draw.chance(0.2) else None,
    )
    key, values = draw.pick(((ZONE, ("a", "b")), (RACK, ("1", "2")), (HOST, ("n0", "n1"))))
    topology = draw.weighted({"labels": 6, "all": 1, "none": 1})
    nodes = {"labels": {"matchLabels": {key: draw.pick(values)}}, "all": {}, "none": None}[topology]
    return without_none(
        metadata=metadata, storageClassName=draw.pick(("tracked", "tracked", "disk")), nodeTopology=nodes, **sizes
    )


def _pod(name: str, claims: list[str], where: Manifest, namespace: str = NAMESPACE) -> Manifest:
    volumes = [{"name": f"v{index}", "persistentVolumeClaim": {"claimName": each}} for index, each in enumerate(claims)]
    container = {"name": "c", "image": "localhost/x:1", "resources": {"requests": {"cpu": "1", "memory": "64Mi"}}}
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": {}},
        "spec": {"containers": [container], "volumes": volumes, **where},
    }


def _other(draw: Draw, index: int, claims: list[str], nodes: list[Manifest]) -> Manifest:
    """A pod that has one of the claims, or one of the same name in another namespace."""
    where = {"nodeName": draw.pick(nodes)["metadata"]["name"]}
    pod = _pod(f"o{index}", draw.some(claims, 0, 1), where, draw.weighted({NAMESPACE: 3, "other": 1}))
    return {**pod, "status": {"phase": draw.weighted({"Running": 4, "Succeeded": 1})}}
