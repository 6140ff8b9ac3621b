"""Pods as people post them: resources in every notation, side and init containers, classes, and mistakes."""

from __future__ import annotations

from typing import Any

from tests.differential.draw import Draw, without_none
from tests.differential.quantities import BAD_GPUS, CPU, GPUS, HUGE, MEMORY, STORAGE

Manifest = dict[str, Any]

AMOUNTS: dict[str, tuple[Any, ...]] = {
    "cpu": CPU,
    "memory": MEMORY,
    "ephemeral-storage": STORAGE,
    "nvidia.com/gpu": GPUS,
    "nvidia.com/mig-1g.10gb": GPUS,
    "hugepages-2Mi": HUGE,
    "hugepages-1Gi": ("1Gi", "2Gi"),
}
ASKED = {"cpu": 0.7, "memory": 0.7, "ephemeral-storage": 0.15, "nvidia.com/gpu": 0.3, "nvidia.com/mig-1g.10gb": 0.12,
         "hugepages-2Mi": 0.03, "hugepages-1Gi": 0.02}  # fmt: skip
OVERCOMMITTED = ("cpu", "memory", "ephemeral-storage")
WRONG_NAMES = ("gpu", "GPU", "nvidia-gpu", "nvidia.com/", "nvidia.com/gpu/x", "requests.cpu", "requests.nvidia.com/gpu",
               "pods", "foo.kubernetes.io/gpu", "kubernetes.io/gpu", "storage")  # fmt: skip
CLASSES = ("high", "low", "std", "system-cluster-critical", "system-node-critical")
RUNTIMES = ("plain", "kata", "big")
SELECTORS = ({"app": "a"}, {"app": "b"}, {"tier": "x"})


def pod(draw: Draw) -> Manifest:
    """One pod; about one in four has something wrong with it."""
    spec = without_none(
        containers=draw.times({1: 5, 2: 3, 3: 2}, lambda index: container(draw, f"c{index}")),
        initContainers=draw.times({0: 5, 1: 3, 2: 2, 3: 1}, lambda index: _init(draw, f"i{index}")) or None,
        resources=_pod_level(draw) if draw.chance(0.13) else None,
        overhead=_overhead(draw) if draw.chance(0.1) else None,
        runtimeClassName=draw.pick(RUNTIMES) if draw.chance(0.15) else None,
        priorityClassName=draw.pick(CLASSES) if draw.chance(0.4) else None,
        priority=draw.pick((0, 5, 1000)) if draw.chance(0.02) else None,
        preemptionPolicy=draw.pick(("Never", "PreemptLowerPriority")) if draw.chance(0.02) else None,
        activeDeadlineSeconds=draw.weighted({1: 5, 100: 5, 3600: 5, 0: 1, -1: 1}) if draw.chance(0.2) else None,
        restartPolicy=draw.pick(("Always", "Never", "OnFailure")) if draw.chance(0.2) else None,
        affinity=_affinity(draw) if draw.chance(0.1) else None,
        hostNetwork=True if draw.chance(0.02) else None,
        hostPID=True if draw.chance(0.02) else None,
        volumes=_volumes(draw) if draw.chance(0.08) else None,
        terminationGracePeriodSeconds=draw.pick((0, 30)) if draw.chance(0.05) else None,
    )
    if draw.chance(0.12):
        harden(draw, spec)
    return {"metadata": {"name": "p", "namespace": "ns"}, "spec": spec}


def container(draw: Draw, name: str) -> Manifest:
    made: Manifest = {"name": name, "image": "localhost/x:1"}
    if draw.chance(0.93):
        made["resources"] = resources(draw)
    if draw.chance(0.01):
        made["securityContext"] = draw.pick(({"privileged": True}, {"capabilities": {"add": ["SYS_ADMIN"]}}))
    if draw.chance(0.02):
        made["ports"] = [{"containerPort": 80, **({"hostPort": 80} if draw.chance(0.5) else {})}]
    return made


def _init(draw: Draw, name: str) -> Manifest:
    made = container(draw, name)
    return {**made, "restartPolicy": "Always"} if draw.chance(0.45) else made


def resources(draw: Draw) -> Manifest:
    """Requests and limits: either side, both, or neither, mostly in the order that is legal."""
    limits: Manifest = {}
    requests: Manifest = {}
    for name, probability in ASKED.items():
        if not draw.chance(probability):
            continue
        amounts = AMOUNTS[name]
        if name in OVERCOMMITTED:
            low, high = sorted((draw.number(0, len(amounts) - 1), draw.number(0, len(amounts) - 1)))
            if draw.chance(0.04):
                low, high = high, low
            side = draw.weighted({"both": 5, "limits": 4, "requests": 3})
        else:
            low = high = draw.number(0, len(amounts) - 1)
            side = draw.weighted({"both": 4, "limits": 5, "requests": 0.2, "unequal": 0.2})
        if side in ("both", "limits", "unequal"):
            limits[name] = amounts[high]
        if side in ("both", "requests"):
            requests[name] = amounts[low]
        if side == "unequal":
            requests[name] = draw.pick(amounts)
    if draw.chance(0.015):
        limits["nvidia.com/gpu"] = draw.pick(BAD_GPUS)
    if draw.chance(0.01):
        draw.pick((limits, requests))[draw.pick(WRONG_NAMES)] = "1"
    if draw.chance(0.005):
        draw.pick((limits, requests))["cpu"] = draw.pick(("-1", "-100m"))
    return {side: listed for side, listed in (("limits", limits), ("requests", requests)) if listed or draw.chance(0.3)}


def _pod_level(draw: Draw) -> Manifest:
    sides: Manifest = {}
    for side, probability in (("limits", 0.7), ("requests", 0.6)):
        if draw.chance(probability):
            sides[side] = {
                **({"cpu": draw.pick(("1", "4", "16", "32"))} if draw.chance(0.6) else {}),
                **({"memory": draw.pick(("1Gi", "4Gi", "4Ti", "1e12"))} if draw.chance(0.6) else {}),
                **({"hugepages-2Mi": "4Mi"} if draw.chance(0.04) else {}),
                **({"nvidia.com/gpu": "1"} if draw.chance(0.03) else {}),
            }
    return sides


def _overhead(draw: Draw) -> Manifest:
    return draw.pick(
        (
            {},
            {"cpu": "250m", "memory": "120Mi"},
            {"cpu": "0.25", "memory": "120Mi"},
            {"cpu": "1"},
            {"memory": "1Gi"},
            {"cpu": "0.5", "memory": "0.5Gi", "ephemeral-storage": "1G"},
            {"cpu": "-1"},
        )
    )


def _affinity(draw: Draw) -> Manifest:
    """Affinity to other pods; a namespace in it makes the pod one of CrossNamespacePodAffinity."""
    term = without_none(
        topologyKey="kubernetes.io/hostname",
        labelSelector={"matchLabels": draw.pick(SELECTORS)},
        namespaces=["other"] if draw.chance(0.4) else None,
        namespaceSelector=draw.pick(({}, {"matchLabels": {"team": "x"}})) if draw.chance(0.3) else None,
    )
    side = draw.pick(("podAffinity", "podAntiAffinity"))
    if draw.chance(0.5):
        return {side: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    weighted = {"weight": 1, "podAffinityTerm": term}
    return {side: {"preferredDuringSchedulingIgnoredDuringExecution": [weighted]}}


def _volumes(draw: Draw) -> list[Manifest]:
    kinds: tuple[Manifest, ...] = (
        {"emptyDir": {}},
        {"emptyDir": {"sizeLimit": "1Gi", "medium": "Memory"}},
        {"hostPath": {"path": "/data"}},
        {"configMap": {"name": "c"}},
        {"nfs": {"server": "s", "path": "/"}},
        {"persistentVolumeClaim": {"claimName": "d"}},
    )
    return [{"name": f"v{index}", **kind} for index, kind in enumerate(draw.some(kinds, 1, 3))]


def harden(draw: Draw, spec: Manifest) -> None:
    """What the restricted Pod Security level asks for, with a gap now and then."""
    spec["securityContext"] = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    for each in (*spec["containers"], *spec.get("initContainers", ())):
        each["securityContext"] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        if draw.chance(0.1):
            del each["securityContext"][draw.pick(("allowPrivilegeEscalation", "capabilities"))]
    if draw.chance(0.15):
        del spec["securityContext"][draw.pick(("runAsNonRoot", "seccompProfile"))]
