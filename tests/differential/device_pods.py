"""Pods that ask for GPUs as an extended resource or by a claim, on nodes with a plug-in, with slices, or neither."""

from __future__ import annotations

from typing import Any

from tests.differential.devices import CLASSES, GPU, nvidia_slices
from tests.differential.draw import Draw, without_none
from tests.differential.pods import Manifest

RESOURCE = "nvidia.com/gpu"
IMPLICIT = f"deviceclass.resource.kubernetes.io/{GPU}"


def case(draw: Draw) -> dict[str, Any]:
    names = [f"n{index}" for index in range(draw.weighted({1: 2, 2: 3, 3: 2}))]
    slices = [each for name in names if draw.chance(0.75) for each in nvidia_slices(draw, name, mig=draw.chance(0.2))]
    claims = _held(draw, slices)
    wanted = draw.chance(0.3)
    if wanted:
        asked = {"name": "r", "exactly": {"deviceClassName": GPU, "count": draw.number(1, 3)}}
        spec = {"devices": {"requests": [asked]}}
        claims.append({"metadata": {"name": "mine", "namespace": "ns"}, "spec": spec})
    return {
        "family": "pods",
        "pod": _pod(draw, claim="mine" if wanted else None),
        "nodes": [_node(draw, name) for name in names],
        "claims": claims,
        "classes": _classes(draw),
        "slices": slices,
    }


def _node(draw: Draw, name: str) -> Manifest:
    allocatable = {"cpu": draw.pick(("2", "8")), "memory": "64Gi", "pods": "110"}
    if draw.chance(0.3):
        allocatable[RESOURCE] = draw.pick(("0", "1", "4"))
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": allocatable},
    }


def _classes(draw: Draw) -> list[Manifest]:
    found = []
    for name, expression in CLASSES.items():
        resource = RESOURCE if name == GPU and draw.chance(0.8) else None
        spec = without_none(selectors=[{"cel": {"expression": expression}}], extendedResourceName=resource)
        found.append({"metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": spec})
    if draw.chance(0.25):
        made = draw.pick(("2025-01-01T00:00:00Z", "2026-01-01T00:00:00Z", "2026-06-01T00:00:00Z"))
        only = f"device.driver == '{GPU}' && device.attributes['{GPU}'].uuid.endsWith('-0')"
        spec = {"selectors": [{"cel": {"expression": only}}], "extendedResourceName": RESOURCE}
        found.append({"metadata": {"name": draw.pick(("a-class", "z-class")), "creationTimestamp": made}, "spec": spec})
    return found


def _pod(draw: Draw, claim: str | None) -> Manifest:
    def container(name: str, **more: Any) -> Manifest:
        requests = {"cpu": draw.pick(("1", "2", "3"))}
        if draw.chance(0.65):
            requests[draw.weighted({RESOURCE: 5, IMPLICIT: 1})] = draw.pick(("1", "1", "2", "3", "4"))
        limits = {key: value for key, value in requests.items() if "/" in key}
        return {"name": name, "image": "i", "resources": {"requests": requests, "limits": limits}, **more}

    inits = draw.times({0: 5, 1: 2, 2: 1}, lambda index: container(f"i{index}"))
    for each in inits:
        if draw.chance(0.3):
            each["restartPolicy"] = "Always"
    spec = without_none(
        containers=draw.times({1: 4, 2: 2}, lambda index: container(f"c{index}")),
        initContainers=inits or None,
        resourceClaims=[{"name": "g", "resourceClaimName": claim}] if claim else None,
    )
    return {"metadata": {"name": "p", "namespace": "ns", "uid": "p"}, "spec": spec}


def _held(draw: Draw, slices: list[Manifest]) -> list[Manifest]:
    share = draw.pick((0.0, 0.2, 0.5))
    found = []
    for each in slices:
        for device in each["spec"].get("devices", ()):
            if draw.chance(share):
                result = {"request": "r", "driver": GPU, "pool": each["spec"]["pool"]["name"], "device": device["name"]}
                found.append(
                    {
                        "metadata": {"name": f"held{len(found)}", "namespace": "other"},
                        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": GPU}}]}},
                        "status": {"allocation": {"devices": {"results": [result]}}},
                    }
                )
    return found
