"""What stands in a namespace when a pod arrives: quotas, LimitRanges, classes, Pod Security."""

from __future__ import annotations

from typing import Any

from tests.differential.draw import Draw, without_none
from tests.differential.pods import AMOUNTS, CLASSES, Manifest, pod

COUNTED = ("pods", "count/pods", "configmaps", "persistentvolumeclaims", "count/jobs.batch", "count/deployments.apps")
CPU_KEYS = ("cpu", "requests.cpu", "limits.cpu")
BYTE_KEYS = ("memory", "requests.memory", "limits.memory", "ephemeral-storage", "requests.ephemeral-storage",
             "limits.ephemeral-storage", "hugepages-2Mi", "requests.hugepages-2Mi", "requests.storage")  # fmt: skip
GPU_KEYS = ("requests.nvidia.com/gpu", "requests.nvidia.com/mig-1g.10gb", "nvidia.com/gpu", "limits.nvidia.com/gpu",
            "limits.nvidia.com/mig-1g.10gb")  # fmt: skip
HARD: dict[tuple[str, ...], tuple[tuple[str, ...], tuple[str, ...]]] = {
    COUNTED: (("0", "1", "2", "4", "8", "16", "1k"), ("0", "1", "2", "3")),
    CPU_KEYS: (("0", "500m", "1", "2", "4", "16", "64", "1k"), ("0", "0", "250m", "1", "1500m")),
    BYTE_KEYS: (("0", "64Mi", "2G", "4Gi", "32Gi", "1Ti", "1e13", "100Ti"), ("0", "0", "500M", "512Mi", "1.5Gi", "3G")),
    GPU_KEYS: (("0", "1", "2", "4", "8", "16", "50", "1k"), ("0", "0", "1", "3")),
}
"""For each family of keys: what is allowed, and what is used already."""
ROOMY = 4
"""The last so many amounts of a family leave room."""
SCOPES = ("Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "CrossNamespacePodAffinity", "PriorityClass")
OPPOSITE = ({"Terminating", "NotTerminating"}, {"BestEffort", "NotBestEffort"})
SCOPED = frozenset({"pods", *CPU_KEYS, *BYTE_KEYS[:3], *GPU_KEYS})
"""The keys that may stand in a quota with scopes; a quota for BestEffort pods may only count them, besides GPUs."""
GPU_STEPS = ("0", "1", "2", "4", "8")
LEVELS = ("privileged", "baseline", "restricted")


def case(draw: Draw) -> dict[str, Any]:
    """A pod and everything that has a say in its admission."""
    return {
        "pod": pod(draw),
        "quotas": draw.times({0: 2, 1: 5, 2: 3, 3: 1}, lambda index: quota(draw, f"q{index}")),
        "limitranges": draw.times({0: 6, 1: 4, 2: 1.5}, lambda index: limit_range(draw, f"lr{index}")),
        "priorityclasses": _priority_classes(draw) if draw.chance(0.6) else None,
        "runtimeclasses": _runtime_classes(draw) if draw.chance(0.5) else None,
        "namespace": {"labels": _security(draw) if draw.chance(0.12) else {}},
    }


def quota(draw: Draw, name: str) -> Manifest:
    """A quota with its status, which is what counts; sometimes the status lags behind or is not there yet."""
    scopes = _scopes(draw)
    hard: Manifest = {}
    used: Manifest = {}
    roomy = draw.chance(0.6)
    for family in draw.some(tuple(HARD), 1, 3):
        allowed, taken = HARD[family]
        for key in draw.some(family, 1, 2):
            if _may_stand(key, scopes):
                hard[key] = draw.pick(allowed[-ROOMY:] if roomy else allowed)
                used[key] = draw.pick(taken)
    if not hard:
        hard, used = {"pods": "1"}, {"pods": "1"}
    seen = {**hard}
    if draw.chance(0.05):
        key = draw.pick(tuple(hard))
        seen[key] = draw.pick(next(amounts for family, (amounts, _) in HARD.items() if key in family))
    if draw.chance(0.05):
        del used[draw.pick(tuple(used))]
    return {
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {**_spelled(draw, scopes), "hard": hard},
        "status": {"hard": seen, "used": used},
    }


def _scopes(draw: Draw) -> list[str]:
    chosen = draw.some(SCOPES, 1, 2) if draw.chance(0.4) else []
    return chosen[:1] if any(pair <= set(chosen) for pair in OPPOSITE) else chosen


def _may_stand(key: str, scopes: list[str]) -> bool:
    if "BestEffort" in scopes:
        return key == "pods" or key in GPU_KEYS
    return not scopes or key in SCOPED


def _spelled(draw: Draw, scopes: list[str]) -> Manifest:
    """Scopes by name, or as a selector; a selector can also choose among priority classes."""
    if not scopes:
        return {}
    if draw.chance(0.4):
        return {"scopes": scopes}
    return {"scopeSelector": {"matchExpressions": [_scope(draw, name) for name in scopes]}}


def _scope(draw: Draw, name: str) -> Manifest:
    if name != "PriorityClass":
        return {"scopeName": name, "operator": "Exists"}
    operator = draw.pick(("In", "NotIn", "Exists", "DoesNotExist"))
    values = draw.some((*CLASSES[:3], "x"), 1, 2) if operator in ("In", "NotIn") else None
    return without_none(scopeName=name, operator=operator, values=values)


def limit_range(draw: Draw, name: str) -> Manifest:
    """One item each for containers and pods at most: the API refuses two of a type."""
    items = [_item(draw, kind) for kind in draw.some(("Container", "Pod"), 1)]
    if draw.chance(0.1):
        items.append({"type": "PersistentVolumeClaim", "max": {"storage": "10Gi"}})
    return {"metadata": {"name": name, "namespace": "ns"}, "spec": {"limits": items}}


def _item(draw: Draw, kind: str) -> Manifest:
    fields: dict[str, Manifest] = {
        "min": {},
        "defaultRequest": {},
        "default": {},
        "max": {},
        "maxLimitRequestRatio": {},
    }
    names = [name for name in AMOUNTS if not name.startswith("hugepages")]
    for name in draw.some(names, 0, 2):
        steps = GPU_STEPS if name.startswith("nvidia") else AMOUNTS[name]
        rungs = sorted(draw.number(0, len(steps) - 1) for _ in range(4))
        for field, rung in zip(("min", "defaultRequest", "default", "max"), rungs, strict=True):
            if draw.chance(0.35):
                fields[field][name] = steps[rung]
        # A default that is there on both sides must be the same for what cannot be overcommitted.
        if name.startswith("nvidia") and name in fields["default"] and name in fields["defaultRequest"]:
            fields["defaultRequest"][name] = fields["default"][name]
        if draw.chance(0.15):
            fields["maxLimitRequestRatio"][name] = draw.pick(("1", "1.5", "2500m", "4"))
    if kind == "Pod":
        fields["default"] = fields["defaultRequest"] = {}
    return {"type": kind, **{field: listed for field, listed in fields.items() if listed}}


def _priority_classes(draw: Draw) -> list[Manifest]:
    values = {"high": 1000, "low": -10, "std": 5}
    return [
        without_none(
            metadata={"name": name},
            value=values[name],
            globalDefault=True if name == "std" and draw.chance(0.6) else None,
            preemptionPolicy="Never" if draw.chance(0.15) else None,
        )
        for name in (tuple(values) if draw.chance(0.8) else draw.some(tuple(values)))
    ]


def _runtime_classes(draw: Draw) -> list[Manifest]:
    overheads: dict[str, Manifest | None] = {
        "plain": None,
        "kata": {"podFixed": {"cpu": "250m", "memory": "120Mi"}},
        "big": {"podFixed": {"cpu": "0.5", "memory": "0.5Gi", "ephemeral-storage": "1G"}},
    }
    return [
        without_none(metadata={"name": name}, handler=name, overhead=overheads[name])
        for name in (tuple(overheads) if draw.chance(0.8) else draw.some(tuple(overheads)))
    ]


def _security(draw: Draw) -> Manifest:
    prefix = "pod-security.kubernetes.io/enforce"
    labels = {prefix: draw.pick(LEVELS)}
    if draw.chance(0.25):
        labels[f"{prefix}-version"] = draw.pick(("latest", "v1.24", "v1.30", "v1.36"))
    return labels
