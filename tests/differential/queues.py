"""Kueue: flavors, cohorts, ClusterQueues, what they have admitted, and a workload that asks for quota.

Manifests are written as the API server stores them, with the fields that Kueue's definitions default.
"""

from __future__ import annotations

from typing import Any

from tests.differential.draw import Draw, without_none
from tests.differential.pods import Manifest
from tests.differential.workloads import API, LABELS, NAMESPACE, TAINTS, Groups, admitted, asking, toleration

AMOUNTS: dict[str, tuple[str, ...]] = {  # from little to much
    "cpu": ("0", "2500m", "4", "8", "9.5", "10", "12"),
    "memory": ("0", "4608Mi", "9Gi", "19Gi", "24576Mi", "32Gi"),
    "nvidia.com/gpu": ("0", "2", "3", "4", "8", "8"),
    "nvidia.com/mig-1g.10gb": ("0", "2", "4", "7", "14"),
    "pods": ("0", "2", "4", "6", "10"),
}
WITHIN = ("Never", "LowerPriority", "LowerOrNewerEqualPriority")
RECLAIM = ("Never", "LowerPriority", "Any")
PARENTS: dict[str, dict[str, str | None]] = {
    "none": {},
    "one": {"co": None},
    "tree": {"left": "root", "right": "root", "root": None},
    "deep": {"deep": "right", "left": "root", "right": "root", "root": None},
    "cycle": {"left": "root", "right": "root", "root": "left"},
}


def case(draw: Draw) -> dict[str, Any]:
    """A tree of queues and one workload; now and then a queue is stopped, missing, or not for this namespace."""
    flavors = ["fa", "fb", "fc"][: draw.weighted({1: 2, 2: 4, 3: 2})]
    groups = _groups(draw, flavors)
    cohorts = _cohorts(draw, groups)
    names = [cohort["metadata"]["name"] for cohort in cohorts]
    queues = draw.times({1: 2, 2: 3, 3: 3}, lambda index: _cluster_queue(draw, f"cq{index}", groups, names))
    target = "gone" if draw.chance(0.015) else "cq0"
    workload = asking(draw, groups)
    if draw.chance(0.015):
        workload["spec"]["queueName"] = "nolq"
    return {
        "namespaces": [{"metadata": {"name": NAMESPACE, "labels": {"dept": draw.pick(("ml", "ops"))}}}],
        "flavors": [_flavor(draw, name) for name in flavors if not draw.chance(0.004)],
        "cohorts": cohorts,
        "clusterQueues": queues,
        "localQueues": [local_queue(draw, target)],
        "admitted": [
            admitted(draw, index, queue["metadata"]["name"], groups)
            for index, queue in enumerate(draw.pick(queues) for _ in range(draw.number(0, 9)))
        ],
        "workload": workload,
    }


def _groups(draw: Draw, flavors: list[str]) -> Groups:
    """Which resources are covered together, and by which flavors. No flavor stands in two groups."""
    devices = draw.some(("nvidia.com/gpu", "nvidia.com/mig-1g.10gb"), 1)
    common = ["cpu", *draw.some(("memory", "pods"))]
    if len(flavors) > 1 and draw.chance(0.4):
        split = draw.number(1, len(flavors) - 1)
        return [(common, flavors[:split]), (devices, flavors[split:])]
    return [(common + devices, flavors)]


def _flavor(draw: Draw, name: str) -> Manifest:
    labels = {key: draw.pick(values) for key, values in LABELS.items() if draw.chance(0.25)}
    spec = without_none(
        nodeLabels=labels or None,
        nodeTaints=draw.some(TAINTS, 1, 2) if draw.chance(0.2) else None,
        tolerations=[toleration(draw, compare=False)] if draw.chance(0.05) else None,
    )
    return {"apiVersion": API, "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": spec}


def _cohorts(draw: Draw, groups: Groups) -> list[Manifest]:
    """No cohort, one, or a tree; rarely a tree that bites its own tail."""
    shape = draw.weighted({"none": 2, "one": 3, "tree": 4, "deep": 1, "cycle": 0.1})
    parents = PARENTS[shape]
    return [
        {
            "apiVersion": API,
            "kind": "Cohort",
            "metadata": {"name": name},
            "spec": without_none(
                parentName=parent,
                resourceGroups=_resource_groups(draw, groups, limits=parent is not None) if draw.chance(0.4) else None,
            ),
        }
        for name, parent in parents.items()
    ]


def _cluster_queue(draw: Draw, name: str, groups: Groups, cohorts: list[str]) -> Manifest:
    cohort = draw.pick(cohorts) if cohorts and draw.chance(0.9) else None
    spec = without_none(
        resourceGroups=_resource_groups(draw, groups, limits=cohort is not None),
        namespaceSelector=_namespace_selector(draw),
        queueingStrategy="BestEffortFIFO",
        cohortName=cohort,
        flavorFungibility=fungibility(draw) if draw.chance(0.7) else None,
        preemption=preemption(draw),
        stopPolicy=draw.weighted({"None": 80, "Hold": 1, "HoldAndDrain": 1}),
    )
    return {"apiVersion": API, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec}


def _resource_groups(draw: Draw, groups: Groups, *, limits: bool) -> list[Manifest]:
    return [
        {
            "coveredResources": resources,
            "flavors": [
                {"name": flavor, "resources": [_quota(draw, resource, limits) for resource in resources]}
                for flavor in flavors
            ],
        }
        for resources, flavors in groups
    ]


def _quota(draw: Draw, resource: str, limits: bool) -> Manifest:
    amounts = AMOUNTS[resource]
    nominal = draw.number(0, len(amounts) - 1)
    return without_none(
        name=resource,
        nominalQuota=amounts[nominal],
        borrowingLimit=draw.pick(amounts) if limits and draw.chance(0.25) else None,
        # Nobody can lend more than they have.
        lendingLimit=draw.pick(amounts[: nominal + 1]) if limits and draw.chance(0.25) else None,
    )


def _namespace_selector(draw: Draw) -> Manifest | None:
    """Mostly every namespace; none at all when it is missing."""
    selectors: tuple[Manifest | None, ...] = (
        {"matchLabels": {"dept": "ml"}},
        {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}},
        {"matchExpressions": [{"key": "dept", "operator": "NotIn", "values": ["ops"]}]},
        None,
    )
    return draw.pick(selectors) if draw.chance(0.04) else {}


def fungibility(draw: Draw) -> Manifest:
    """When the search for flavors stops early."""
    if draw.chance(0.06):
        both = {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor"}
        return {**both, "preference": "PreemptionOverBorrowing"}
    stop = ("MayStopSearch", "TryNextFlavor")
    return {"whenCanBorrow": draw.pick(stop), "whenCanPreempt": draw.pick(stop)}


def preemption(draw: Draw) -> Manifest:
    """Whom a ClusterQueue may preempt."""
    reclaim = draw.pick(RECLAIM)
    borrow: Manifest = {"policy": "Never"}
    if reclaim != "Never" and draw.chance(0.3):
        borrow = {"policy": "LowerPriority", **({"maxPriorityThreshold": 5} if draw.chance(0.3) else {})}
    return {"withinClusterQueue": draw.pick(WITHIN), "reclaimWithinCohort": reclaim, "borrowWithinCohort": borrow}


def local_queue(draw: Draw, target: str) -> Manifest:
    """The LocalQueue of the workload; now and then it is stopped."""
    return {
        "apiVersion": API,
        "kind": "LocalQueue",
        "metadata": {"name": "lq", "namespace": NAMESPACE},
        "spec": {"clusterQueue": target, "stopPolicy": draw.weighted({"None": 60, "Hold": 1, "HoldAndDrain": 1})},
    }
