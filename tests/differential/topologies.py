"""Kueue's topology-aware scheduling: nodes in racks and blocks, who is there already, and a workload to be placed.

Manifests are written as the API server stores them, with the fields that Kueue's definitions default.
"""

from __future__ import annotations

from typing import Any

from tests.differential.draw import Draw, without_none
from tests.differential.pods import Manifest
from tests.differential.queues import fungibility, local_queue, preemption
from tests.differential.workloads import API, NAMESPACE, PRIORITIES

BLOCK, RACK, HOST = "cloud.com/block", "cloud.com/rack", "kubernetes.io/hostname"
POOL = "cloud.com/pool"
GPU = "nvidia.com/gpu"
SHAPES = {(BLOCK, RACK, HOST): 6, (RACK, HOST): 4, (HOST,): 1, (BLOCK, RACK): 2, (RACK,): 1}
"""The levels of a Topology. Where the last one is not the node, Kueue sees only what a whole rack has."""
TAINTS: tuple[Manifest, ...] = (
    {"key": GPU, "value": "present", "effect": "NoSchedule"},
    {"key": "maint", "effect": "NoExecute"},
    {"key": "old", "value": "yes", "effect": "PreferNoSchedule"},
)
QUOTAS = {"cpu": ("12", "40", "200", "200", "200"), GPU: ("12", "32", "64", "64", "64")}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def case(draw: Draw) -> dict[str, Any]:
    """Topologies, flavors on their nodes, queues with mostly enough quota, and one workload."""
    shapes = [draw.weighted(SHAPES) for _ in range(draw.weighted({1: 5, 2: 1}))]
    topologies = [_topology(f"t{index}", levels) for index, levels in enumerate(shapes)]
    flavors = draw.times({1: 4, 2: 4, 3: 1}, lambda index: _flavor(draw, f"f{index}", len(shapes)))
    nodes = draw.times(dict.fromkeys(range(2, 15), 1), lambda index: _node(draw, f"n{index}"))
    queues = draw.times({1: 3, 2: 2}, lambda index: _cluster_queue(draw, f"cq{index}", flavors))
    levels = {each["metadata"]["name"]: shape for each, shape in zip(topologies, shapes, strict=True)}
    return {
        "namespaces": [{"metadata": {"name": NAMESPACE}}],
        "flavors": flavors,
        "cohorts": [],
        "clusterQueues": queues,
        "localQueues": [local_queue(draw, "cq0")],
        "admitted": [
            _admitted(draw, index, draw.pick(queues), flavors, levels, nodes) for index in range(draw.number(0, 8))
        ],
        "workload": _asking(draw, flavors, levels),
        "topologies": [each for each in topologies if not draw.chance(0.01)],
        "nodes": nodes,
        "pods": [_pod(draw, f"p{index}", nodes) for index in range(draw.number(0, 6))],
    }


def _topology(name: str, levels: tuple[str, ...]) -> Manifest:
    spec = {"levels": [{"nodeLabel": level} for level in levels]}
    return {"apiVersion": API, "kind": "Topology", "metadata": {"name": name}, "spec": spec}


def _flavor(draw: Draw, name: str, topologies: int) -> Manifest:
    """Mostly for topologies; several flavors may have the same nodes."""
    spec = without_none(
        nodeLabels={POOL: draw.weighted({"a": 4, "b": 1})} if draw.chance(0.6) else None,
        topologyName=f"t{draw.number(0, topologies - 1)}" if draw.chance(0.9) else None,
        tolerations=[{"key": GPU, "operator": "Exists"}] if draw.chance(0.2) else None,
    )
    if "topologyName" in spec:
        spec.setdefault("nodeLabels", {"cloud.com/ours": "true"})
    return {"apiVersion": API, "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": spec}


def _node(draw: Draw, name: str) -> Manifest:
    block = draw.pick(("b1", "b2"))
    labels = {
        HOST: name,
        POOL: draw.weighted({"a": 4, "b": 1}),
        "cloud.com/ours": "true",
        RACK: f"{block}-{draw.pick(('r1', 'r2', 'r3'))}",
        BLOCK: block,
        "disk": draw.pick(("ssd", "hdd")),
    }
    if draw.chance(0.05):
        del labels[draw.pick((RACK, BLOCK, HOST))]
    allocatable = {
        "cpu": draw.pick(("4", "8", "15900m")),
        GPU: draw.pick(("0", "4", "8", "8")),
        "pods": draw.pick(("2", "110", "110")),
    }
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": without_none(
            taints=draw.some(TAINTS, 1, 2) if draw.chance(0.2) else None,
            unschedulable=True if draw.chance(0.05) else None,
        ),
        "status": {
            "allocatable": allocatable,
            "conditions": [{"type": "Ready", "status": draw.weighted({"True": 20, "False": 1, "Unknown": 1})}],
        },
    }


def _cluster_queue(draw: Draw, name: str, flavors: list[Manifest]) -> Manifest:
    own = draw.some([each["metadata"]["name"] for each in flavors], 1)
    resources = ["cpu", GPU, *(["pods"] if draw.chance(0.15) else [])]
    groups = [{"coveredResources": resources, "flavors": [_quotas(draw, each, resources) for each in own]}]
    if len(own) > 1 and draw.chance(0.1):
        groups = [
            {"coveredResources": ["cpu"], "flavors": [_quotas(draw, own[0], ["cpu"])]},
            {"coveredResources": [GPU], "flavors": [_quotas(draw, each, [GPU]) for each in own[1:]]},
        ]
    spec = without_none(
        resourceGroups=groups,
        namespaceSelector={},
        queueingStrategy="BestEffortFIFO",
        cohortName="co" if draw.chance(0.5) else None,
        flavorFungibility=fungibility(draw) if draw.chance(0.4) else None,
        preemption=preemption(draw),
        stopPolicy="None",
    )
    return {"apiVersion": API, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec}


def _quotas(draw: Draw, flavor: str, resources: list[str]) -> Manifest:
    quotas = [{"name": each, "nominalQuota": draw.pick(QUOTAS.get(each, ("6", "100")))} for each in resources]
    return {"name": flavor, "resources": quotas}


def _requests(draw: Draw) -> Manifest:
    requests = {"cpu": draw.pick(("500m", "1", "1", "2")), GPU: draw.pick(("1", "1", "2", "4"))}
    return {key: value for key, value in requests.items() if draw.chance(0.85)}


def _template(draw: Draw, requests: Manifest) -> Manifest:
    resources = {"requests": requests, **({"limits": {GPU: requests[GPU]}} if GPU in requests else {})}
    return without_none(
        containers=[{"name": "c", "image": "i", "resources": resources}],
        restartPolicy="Never",
        tolerations=[{"key": draw.pick((GPU, "maint")), "operator": "Exists"}] if draw.chance(0.3) else None,
        nodeSelector={"disk": "ssd"} if draw.chance(0.1) else None,
        affinity=_affinity(draw) if draw.chance(0.1) else None,
    )


def _affinity(draw: Draw) -> Manifest:
    terms: tuple[Manifest, ...] = (
        {"matchExpressions": [{"key": "disk", "operator": draw.pick(("In", "NotIn")), "values": ["hdd"]}]},
        {"matchExpressions": [{"key": RACK, "operator": "Exists"}]},
        {"matchFields": [{"key": "metadata.name", "operator": draw.pick(("In", "NotIn")), "values": ["n1"]}]},
    )
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": draw.some(terms, 1, 2)}}}


def _asking(draw: Draw, flavors: list[Manifest], levels: dict[str, tuple[str, ...]]) -> Manifest:
    """One pod set, two, or a leader and its workers, which must be in one domain."""
    shape = draw.weighted({"one": 6, "two": 2, "led": 3})
    if shape == "led":
        request = _topology_request(draw, levels, only=("required", "preferred"))
        if request:
            request = {**request, "podSetGroupName": "gang"}
        counts = {"leader": 1, "workers": draw.number(1, 7)}
        if draw.chance(0.2):
            counts = {"workers": counts["workers"], "leader": 1}
        pod_sets = [_pod_set(draw, name, count, request) for name, count in counts.items()]
        if pod_sets and draw.chance(0.15):
            pod_sets[0]["template"]["spec"]["containers"][0]["resources"] = {}
    else:
        names = ("main",) if shape == "one" else ("driver", "workers")
        pod_sets = [_pod_set(draw, name, draw.number(1, 7), _topology_request(draw, levels)) for name in names]
        if draw.chance(0.05) and pod_sets[0]["count"] > 1:
            pod_sets[0]["minCount"] = 1
    metadata = {
        "name": "wl",
        "namespace": NAMESPACE,
        "uid": "uid-wl",
        "creationTimestamp": "2026-01-01T00:30:00Z",
    }
    spec = {"queueName": "lq", "priority": draw.pick(PRIORITIES), "podSets": pod_sets}
    return {"apiVersion": API, "kind": "Workload", "metadata": metadata, "spec": spec}


def _pod_set(draw: Draw, name: str, count: int, request: Manifest | None) -> Manifest:
    made = {"name": name, "count": count, "template": {"spec": _template(draw, _requests(draw))}}
    return {**made, **({"topologyRequest": request} if request else {})}


def _topology_request(
    draw: Draw, levels: dict[str, tuple[str, ...]], only: tuple[str, ...] = ("required", "preferred", "unconstrained")
) -> Manifest | None:
    if draw.chance(0.12):
        return None
    how = draw.pick((*only, "required"))
    if how == "unconstrained":
        return {how: True}
    known = [level for each in levels.values() for level in each]
    return {how: "cloud.com/hall" if draw.chance(0.02) else draw.pick(known)}


def _admitted(
    draw: Draw,
    index: int,
    queue: Manifest,
    flavors: list[Manifest],
    levels: dict[str, tuple[str, ...]],
    nodes: list[Manifest],
) -> Manifest:
    """A workload that holds quota of one flavor, and mostly places on its nodes."""
    quotas = {each["name"] for group in queue["spec"]["resourceGroups"] for each in group["flavors"]}
    flavor = next(each for each in flavors if each["metadata"]["name"] in quotas)
    name, count = flavor["metadata"]["name"], draw.number(1, 4)
    requests = _requests(draw) or {"cpu": "1"}
    usage = {key: f"{count * 500}m" if value == "500m" else str(count * int(value)) for key, value in requests.items()}
    assignment: Manifest = {
        "name": "main",
        "count": count,
        "flavors": dict.fromkeys(requests, name),
        "resourceUsage": usage,
    }
    shape = levels.get(flavor["spec"].get("topologyName", ""))
    if shape and not draw.chance(0.1):
        assignment["topologyAssignment"] = _places(draw, shape, nodes, count)
    minute = f"{draw.number(0, 59):02d}"
    return {
        "apiVersion": API,
        "kind": "Workload",
        "metadata": {
            "name": f"adm{index}",
            "namespace": NAMESPACE,
            "uid": f"uid-adm{index}",
            "creationTimestamp": f"2026-01-01T00:{minute}:00Z",
        },
        "spec": {
            "queueName": f"lq-{queue['metadata']['name']}",
            "priority": draw.pick(PRIORITIES),
            "podSets": [{"name": "main", "count": count, "template": {"spec": _template(draw, requests)}}],
        },
        "status": {
            "conditions": [
                {
                    "type": "QuotaReserved",
                    "status": "True",
                    "reason": "QuotaReserved",
                    "message": "",
                    "lastTransitionTime": f"2026-01-01T0{draw.number(1, 9)}:{minute}:00Z",
                }
            ],
            "admission": {"clusterQueue": queue["metadata"]["name"], "podSetAssignments": [assignment]},
        },
    }


def _places(draw: Draw, shape: tuple[str, ...], nodes: list[Manifest], count: int) -> Manifest:
    """The pods, each in the domain of some node, packed as the API packs them."""
    found: dict[tuple[str, ...], int] = {}
    for _ in range(count):
        labels = draw.pick(nodes)["metadata"]["labels"]
        values = tuple(labels.get(level, "gone") for level in (shape[-1:] if shape[-1] == HOST else shape))
        found[values] = found.get(values, 0) + 1
    domains = sorted(found)
    columns = list(zip(*domains, strict=True))
    counts = [found[each] for each in domains]
    return {
        "levels": list(shape[-1:] if shape[-1] == HOST else shape),
        "slices": [
            {
                "domainCount": len(domains),
                "valuesPerLevel": [_column(list(each)) for each in columns],
                "podCounts": {"universal": counts[0]} if len(set(counts)) == 1 else {"individual": counts},
            }
        ],
    }


def _column(values: list[str]) -> Manifest:
    if len(set(values)) == 1:
        return {"universal": values[0]}
    if all(each.startswith("n") for each in values):
        return {"individual": {"prefix": "n", "roots": [each[1:] for each in values]}}
    return {"individual": {"roots": values}}


def _pod(draw: Draw, name: str, nodes: list[Manifest]) -> Manifest:
    """A pod on a node: of a DaemonSet, of anybody, finished, or one that a topology has placed."""
    requests = {"cpu": draw.pick(("100m", "1", "2")), **({GPU: "1"} if draw.chance(0.3) else {})}
    metadata: Manifest = {"name": name, "namespace": "other"}
    if draw.chance(0.3):
        metadata["ownerReferences"] = [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u"}]
    elif draw.chance(0.2):
        metadata["annotations"] = {"kueue.x-k8s.io/podset-unconstrained-topology": "true"}
    spec = _template(draw, requests)
    if not draw.chance(0.1):
        spec["nodeName"] = draw.pick(nodes)["metadata"]["name"]
    return {
        "metadata": metadata,
        "spec": spec,
        "status": {"phase": draw.weighted({"Running": 8, "Pending": 1, "Succeeded": 1, "Failed": 1})},
    }
