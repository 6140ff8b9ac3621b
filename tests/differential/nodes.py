"""Nodes with labels and taints, the pods bound to them, and a pod that looks for a place."""

from __future__ import annotations

from typing import Any

from tests.differential.draw import Draw, without_none
from tests.differential.pods import Manifest

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
LABELS: dict[str, tuple[str, ...]] = {
    "gpu.product": ("A100", "H100"),
    "disk": ("ssd", "hdd"),
    "cores": ("8", "16", "x"),
    "empty": ("",),
}
TAINTS: tuple[Manifest, ...] = (
    {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
    {"key": "nvidia.com/mig", "effect": "NoSchedule"},
    {"key": "dedicated", "value": "ml", "effect": "NoExecute"},
    {"key": "dedicated", "value": "web", "effect": "PreferNoSchedule"},
    {"key": "sla", "value": "950", "effect": "NoSchedule"},
)
SIZES: dict[str, tuple[str, ...]] = {
    "cpu": ("2", "4", "16", "64"),
    "memory": ("8Gi", "64Gi", "256Gi", "64G"),
    "ephemeral-storage": ("10G", "100Gi", "47093746742"),
    "pods": ("3", "110", "110", "110"),
}
DEVICES: dict[str, tuple[str, ...]] = {
    "nvidia.com/gpu": ("0", "1", "4", "8"),
    "nvidia.com/mig-1g.10gb": ("2", "7", "14"),
    "example.com/fpga": ("1", "2"),
    "hugepages-2Mi": ("4Mi", "1Gi"),
}
WANTED: dict[str, tuple[str, ...]] = {
    "cpu": ("100m", "0.25", "0.5", "1500m", "2", "3", "4"),
    "memory": ("64Mi", "0.5Gi", "1e9", "1G", "1.5Gi", "4Gi", "12Gi"),
    "ephemeral-storage": ("1Gi", "20G", "50Gi"),
}
APPS: tuple[Manifest, ...] = ({"app": "a"}, {"app": "b", "tier": "x"}, {"app": "c"}, {"tier": "y"}, {})
NAMESPACES: dict[str, Manifest] = {"ns": {"team": "x"}, "other": {"team": "y"}}
COMPARISON_GATE = "TaintTolerationComparisonOperators"


def case(draw: Draw) -> dict[str, Any]:
    """A pod, one to six nodes, and up to eight pods that run there."""
    names = [f"n{index}" for index in range(draw.weighted({1: 2, 2: 3, 3: 3, 4: 2, 5: 2, 6: 1}))]
    gates = [COMPARISON_GATE] if draw.chance(0.1) else []
    return {
        "pod": _waiting(draw, names, compare=bool(gates)),
        "nodes": [_node(draw, name) for name in names],
        "pods": [_bound(draw, f"r{index}", names) for index in range(draw.number(0, 8))],
        "namespaces": NAMESPACES,
        **({"gates": gates} if gates else {}),
    }


def _node(draw: Draw, name: str) -> Manifest:
    labels = {HOST: name, **({ZONE: draw.pick(("a", "b"))} if draw.chance(0.85) else {})}
    labels |= {key: draw.pick(values) for key, values in LABELS.items() if draw.chance(0.35)}
    allocatable = {key: draw.pick(values) for key, values in SIZES.items()}
    allocatable |= {key: draw.pick(values) for key, values in DEVICES.items() if draw.chance(0.35)}
    status: Manifest = {"allocatable": allocatable}
    if draw.chance(0.2):
        status["capacity"] = {**allocatable, "cpu": "128"}
    if draw.chance(0.05):
        # A node that reports no allocatable amounts: Kubernetes takes its capacity.
        status = {"capacity": allocatable}
    spec = without_none(
        taints=draw.some(TAINTS, 1, 2) if draw.chance(0.35) else None,
        unschedulable=True if draw.chance(0.04) else None,
    )
    return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status}


def _bound(draw: Draw, name: str, nodes: list[str]) -> Manifest:
    spec: Manifest = {
        "containers": draw.times({1: 4, 2: 1}, lambda index: _container(draw, f"c{index}")),
        "nodeName": draw.pick(nodes),
    }
    if draw.chance(0.2):
        spec["initContainers"] = [_init(draw, "i0")]
    if draw.chance(0.06):
        spec["overhead"] = {"cpu": "250m", "memory": "120Mi"}
    if draw.chance(0.1):
        spec["affinity"] = {"podAntiAffinity": {REQUIRED: [_pod_term(draw)]}}
    phase = draw.weighted({"Running": 8, "Pending": 1, "Succeeded": 1, "Failed": 1})
    metadata = {"name": name, "namespace": draw.pick(tuple(NAMESPACES)), "labels": draw.pick(APPS)}
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase}}


def _container(draw: Draw, name: str) -> Manifest:
    made: Manifest = {"name": name, "image": "localhost/x:1", "resources": _resources(draw)}
    if draw.chance(0.15):
        host = {"hostPort": draw.pick((80, 8080))}
        address = {"hostIP": draw.pick(("0.0.0.0", "127.0.0.1"))} if draw.chance(0.4) else {}
        protocol = {"protocol": "UDP"} if draw.chance(0.2) else {}
        made["ports"] = [{"containerPort": host["hostPort"], **host, **address, **protocol}]
    return made


def _init(draw: Draw, name: str) -> Manifest:
    made = {"name": name, "image": "localhost/x:1", "resources": _resources(draw)}
    return {**made, "restartPolicy": "Always"} if draw.chance(0.5) else made


def _resources(draw: Draw) -> Manifest:
    sides: dict[str, Manifest] = {"requests": {}, "limits": {}}
    for name, amounts in WANTED.items():
        if draw.chance(0.15 if name == "ephemeral-storage" else 0.6):
            sides[draw.pick(("requests", "limits"))][name] = draw.pick(amounts)
    for name in DEVICES:
        if draw.chance(0.06):
            sides["limits"][name] = "2Mi" if name.startswith("huge") else draw.pick(("1", "2", "8"))
            sides["requests"].setdefault("cpu", "100m")
    return {side: listed for side, listed in sides.items() if listed}


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def _waiting(draw: Draw, nodes: list[str], *, compare: bool) -> Manifest:
    affinity = without_none(
        nodeAffinity=_node_affinity(draw, nodes) if draw.chance(0.25) else None,
        podAffinity={REQUIRED: [_pod_term(draw)]} if draw.chance(0.1) else None,
        podAntiAffinity={REQUIRED: [_pod_term(draw)]} if draw.chance(0.1) else None,
    )
    spec = without_none(
        containers=draw.times({1: 4, 2: 1}, lambda index: _container(draw, f"c{index}")),
        initContainers=draw.times({1: 2, 2: 1}, lambda index: _init(draw, f"i{index}")) if draw.chance(0.2) else None,
        overhead={"cpu": "250m", "memory": "120Mi"} if draw.chance(0.06) else None,
        tolerations=draw.times({1: 3, 2: 2, 3: 1}, lambda _: _toleration(draw, compare)) if draw.chance(0.7) else None,
        nodeSelector=_node_selector(draw) if draw.chance(0.12) else None,
        affinity=affinity or None,
        topologySpreadConstraints=[_spread(draw)] if draw.chance(0.2) else None,
        nodeName=draw.pick((*nodes, "gone")) if draw.chance(0.02) else None,
        hostNetwork=True if draw.chance(0.03) else None,
        resources={"requests": {"cpu": draw.pick(("4", "16"))}} if draw.chance(0.03) else None,
    )
    return {"metadata": {"name": "p", "namespace": "ns", "labels": draw.pick(APPS)}, "spec": spec}


def _toleration(draw: Draw, compare: bool) -> Manifest:
    if compare and draw.chance(0.5):
        return {"key": "sla", "operator": draw.pick(("Gt", "Lt")), "value": draw.pick(("900", "950", "990"))}
    if draw.chance(0.1):
        return {"operator": "Exists"}
    if draw.chance(0.1):
        return {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}
    taint = draw.pick(TAINTS)
    operator = draw.pick(("Exists", "Equal", None))
    return without_none(
        key=taint["key"],
        operator=operator,
        value=taint.get("value", "") if operator != "Exists" else None,
        effect=draw.pick((taint["effect"], taint["effect"], "NoExecute")) if draw.chance(0.5) else None,
    )


def _node_selector(draw: Draw) -> Manifest:
    return {key: draw.pick(LABELS[key]) for key in draw.some(tuple(LABELS), 1, 2)}


def _node_affinity(draw: Draw, nodes: list[str]) -> Manifest:
    terms = draw.times({1: 3, 2: 2}, lambda _: _node_term(draw, nodes))
    return {REQUIRED: {"nodeSelectorTerms": terms}}


def _node_term(draw: Draw, nodes: list[str]) -> Manifest:
    fields = {"key": "metadata.name", "operator": draw.pick(("In", "NotIn")), "values": [draw.pick(nodes)]}
    return without_none(
        matchExpressions=draw.times({1: 3, 2: 1}, lambda _: _requirement(draw)) if draw.chance(0.85) else None,
        matchFields=[fields] if draw.chance(0.25) else None,
    )


def _requirement(draw: Draw) -> Manifest:
    key = draw.pick((*LABELS, ZONE, "absent"))
    operator = draw.pick(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
    if operator in ("Gt", "Lt"):
        return {"key": draw.pick(("cores", key)), "operator": operator, "values": [draw.pick(("4", "8", "12"))]}
    values = draw.some((*LABELS.get(key, ("a", "b")), "other"), 1) if operator in ("In", "NotIn") else None
    return without_none(key=key, operator=operator, values=values)


def _pod_term(draw: Draw) -> Manifest:
    expressions = [{"key": "app", "operator": draw.pick(("In", "NotIn")), "values": ["a", "x"]}]
    selector = draw.pick(({"matchLabels": {"app": "a"}}, {"matchLabels": {"tier": "x"}}, {}, None))
    return without_none(
        topologyKey=draw.pick((HOST, ZONE)),
        labelSelector={"matchExpressions": expressions} if draw.chance(0.3) else selector,
        namespaces=draw.some(tuple(NAMESPACES), 1) if draw.chance(0.2) else None,
        namespaceSelector=draw.pick(({}, {"matchLabels": {"team": "y"}})) if draw.chance(0.2) else None,
    )


def _spread(draw: Draw) -> Manifest:
    return without_none(
        maxSkew=draw.number(1, 2),
        topologyKey=draw.pick((HOST, ZONE, "disk")),
        whenUnsatisfiable=draw.weighted({"DoNotSchedule": 4, "ScheduleAnyway": 1}),
        labelSelector=draw.pick(({"matchLabels": {"app": "a"}}, {}, {"matchLabels": {"tier": "x"}})),
        minDomains=None,
        nodeAffinityPolicy=draw.pick(("Honor", "Ignore")) if draw.chance(0.2) else None,
        nodeTaintsPolicy=draw.pick(("Honor", "Ignore")) if draw.chance(0.3) else None,
    )
