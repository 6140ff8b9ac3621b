"""Kueue's workloads: those that hold quota, and the one that asks for it."""

from __future__ import annotations

from tests.differential.draw import Draw, without_none
from tests.differential.pods import Manifest

API = "kueue.x-k8s.io/v1beta2"
NAMESPACE = "team-a"
LABELS: dict[str, tuple[str, ...]] = {
    "cloud.com/gpu-type": ("a100", "l4"),
    "cloud.com/spot": ("true", "false"),
    "cloud.com/gen": ("7", "9"),
    "topology.kubernetes.io/zone": ("z1", "z2"),
}
TAINTS: tuple[Manifest, ...] = (
    {"key": "spot", "value": "true", "effect": "NoSchedule"},
    {"key": "maint", "effect": "NoExecute"},
    {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
    {"key": "sla", "value": "950", "effect": "NoSchedule"},
    {"key": "old", "value": "yes", "effect": "PreferNoSchedule"},
)
ASKED: dict[str, tuple[str, ...]] = {
    "cpu": ("500m", "1", "1.5", "2", "3"),
    "memory": ("512Mi", "1Gi", "2560Mi", "4.5Gi"),
    "nvidia.com/gpu": ("1", "2"),
    "nvidia.com/mig-1g.10gb": ("1", "2"),
}
PRIORITIES = (-10, 0, 5, 10, 100)
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
Groups = list[tuple[list[str], list[str]]]
"""Which resources are covered together, and by which flavors."""


def admitted(draw: Draw, index: int, queue: str, groups: Groups) -> Manifest:
    """A workload that holds quota in every group, in one flavor of each."""
    flavors: Manifest = {}
    usage: Manifest = {}
    requests: Manifest = {}
    count = draw.number(1, 2)
    for resources, candidates in groups:
        flavor = draw.pick(candidates)
        for resource in resources:
            if resource == "pods":
                flavors["pods"], usage["pods"] = flavor, str(count)
            elif draw.chance(0.7):
                amount = draw.number(1, 3)
                requests[resource] = f"{amount}Gi" if resource == "memory" else str(amount)
                flavors[resource] = flavor
                usage[resource] = f"{amount * count}Gi" if resource == "memory" else str(amount * count)
    pod_set = _pod_set("main", count, {"containers": [_container("c", {"requests": requests})]})
    assignment = {"name": "main", "count": count, "flavors": flavors, "resourceUsage": usage}
    minute = f"{draw.number(0, 59):02d}"
    metadata = {
        "name": f"adm{index}",
        "namespace": NAMESPACE,
        "uid": f"uid-adm{index}",
        "creationTimestamp": f"2026-01-01T00:{minute}:00Z",
    }
    reserved = {
        "type": "QuotaReserved",
        "status": "True",
        "reason": "QuotaReserved",
        "message": "",
        "lastTransitionTime": f"2026-01-01T0{draw.number(1, 9)}:{minute}:00Z",
    }
    return {
        "apiVersion": API,
        "kind": "Workload",
        "metadata": metadata,
        "spec": {"queueName": f"lq-{queue}", "priority": draw.pick(PRIORITIES), "podSets": [pod_set]},
        "status": {
            "conditions": [reserved],
            "admission": {"clusterQueue": queue, "podSetAssignments": [assignment]},
        },
    }


def asking(draw: Draw, groups: Groups) -> Manifest:
    """A workload of one to three pod sets."""
    names = draw.weighted({("main",): 5, ("driver", "workers"): 4, ("a", "b", "c"): 1})
    covered = [resource for resources, _ in groups for resource in resources]
    return {
        "apiVersion": API,
        "kind": "Workload",
        "metadata": {
            "name": "wl",
            "namespace": NAMESPACE,
            "uid": "uid-wl",
            "creationTimestamp": "2026-01-01T00:30:00Z",
        },
        "spec": {
            "queueName": "lq",
            "priority": draw.pick(PRIORITIES),
            "podSets": [_asked(draw, name, covered) for name in names],
        },
    }


def _asked(draw: Draw, name: str, covered: list[str]) -> Manifest:
    spec = without_none(
        containers=draw.times({1: 8, 2: 1}, lambda index: _container(f"c{index}", _resources(draw, covered))),
        restartPolicy="Never",
        initContainers=[_init(draw, covered)] if draw.chance(0.08) else None,
        tolerations=[toleration(draw)] if draw.chance(0.35) else None,
        nodeSelector=_node_selector(draw) if draw.chance(0.15) else None,
        affinity=_affinity(draw) if draw.chance(0.12) else None,
        overhead={"cpu": "500m"} if draw.chance(0.03) else None,
    )
    return _pod_set(name, draw.weighted({1: 5, 2: 3, 3: 2, 4: 1}), spec)


def _pod_set(name: str, count: int, spec: Manifest) -> Manifest:
    return {"name": name, "count": count, "template": {"spec": spec}}


def _container(name: str, resources: Manifest) -> Manifest:
    return {"name": name, "image": "i", "resources": resources}


def _init(draw: Draw, covered: list[str]) -> Manifest:
    made = _container("init", _resources(draw, covered))
    return {**made, "restartPolicy": "Always"} if draw.chance(0.5) else made


def _resources(draw: Draw, covered: list[str]) -> Manifest:
    names = [name for name in ASKED if name in covered] + (["memory"] if draw.chance(0.02) else [])
    requests = {name: draw.pick(ASKED[name]) for name in names if draw.chance(0.6)}
    if draw.chance(0.01):
        requests["example.com/fpga"] = "1"
    limits = {name: amount for name, amount in requests.items() if "/" in name}
    if draw.chance(0.1):
        # Kueue fills in what only a limit says.
        limits |= {"cpu": requests.pop("cpu", "1")}
    if draw.chance(0.01):
        requests, limits = {**requests, "cpu": "2"}, {**limits, "cpu": "1"}
    return {"requests": requests, **({"limits": limits} if limits else {})}


def toleration(draw: Draw, *, compare: bool = True) -> Manifest:
    """Flavors may not compare, pods may."""
    if draw.chance(0.15):
        return {"operator": "Exists", **({"effect": "NoExecute"} if draw.chance(0.4) else {})}
    taint = draw.pick(TAINTS)
    if compare and taint["key"] == "sla" and draw.chance(0.4):
        return {"key": "sla", "operator": draw.pick(("Gt", "Lt")), "value": draw.pick(("900", "990"))}
    operator = draw.pick(("Exists", "Equal"))
    return without_none(
        key=taint["key"],
        operator=operator,
        value=taint.get("value") if operator == "Equal" else None,
        effect=taint["effect"] if draw.chance(0.6) else None,
    )


def _node_selector(draw: Draw) -> Manifest:
    known = {key: draw.pick(LABELS[key]) for key in draw.some(tuple(LABELS), 0, 2)}
    return {**known, **({"disk": "ssd"} if draw.chance(0.2) else {})} or {"disk": "ssd"}


def _affinity(draw: Draw) -> Manifest:
    terms = draw.times({1: 3, 2: 1}, lambda _: _term(draw))
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}


def _term(draw: Draw) -> Manifest:
    if draw.chance(0.08):
        return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    return {"matchExpressions": draw.times({1: 3, 2: 1}, lambda _: _requirement(draw))}


def _requirement(draw: Draw) -> Manifest:
    key = draw.pick((*LABELS, "disk"))
    operator = draw.pick(("In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
    if operator in ("Gt", "Lt"):
        return {"key": "cloud.com/gen", "operator": operator, "values": ["8"]}
    values = draw.some((*LABELS.get(key, ("ssd",)), "other"), 1) if operator in ("In", "NotIn") else None
    return without_none(key=key, operator=operator, values=values)
