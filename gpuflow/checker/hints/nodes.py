"""Why no node takes a pod, in a sentence that says what the scheduler says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

from gpuflow.checker.nodes.affinity import NO_AFFINITY, NO_ANTI_AFFINITY, NO_EXISTING
from gpuflow.checker.nodes.amounts import as_quantity
from gpuflow.checker.nodes.capacity import way_out
from gpuflow.checker.nodes.features import NO_FEATURES
from gpuflow.checker.nodes.filters import CORDONED, NO_DEVICES, NOT_SELECTED, OTHER_NAME, PORTS_TAKEN, TAINTED
from gpuflow.checker.nodes.fit import NodeFit
from gpuflow.checker.nodes.node_list import TOO_MANY_PODS, insufficient
from gpuflow.checker.nodes.node_pools import NodePools
from gpuflow.checker.nodes.shut_out import gang_has_no_domain, taken_for_good
from gpuflow.checker.nodes.spread import UNEVEN
from gpuflow.checker.nodes.subjects import UnboundPod
from gpuflow.checker.nodes.volumes import NO_DISK
from gpuflow.checker.wording import amount

DOES: Final = {
    TOO_MANY_PODS: "has no pod slot free",
    PORTS_TAKEN: "has a pod on a host port that it asks for",
    NO_DISK: "has a pod with a disk that it asks for",
    NO_EXISTING: "runs a pod that keeps apart from it (anti-affinity)",
    NO_ANTI_AFFINITY: "runs a pod that it keeps apart from (anti-affinity)",
    NO_AFFINITY: "runs no pod that it must be with (affinity)",
    UNEVEN: "is left out by its topology spread constraints",
    NO_DEVICES: "has too few devices left for its claims",
    NO_FEATURES: "lacks a feature that it asks for",
    TAINTED: "has a taint that it does not tolerate",
    NOT_SELECTED: "lacks the labels that it asks for",
    OTHER_NAME: "is not the node that it names",
    CORDONED: "is cordoned",
}
"""What a node does or is, for each of the scheduler's reasons but room."""


def not_now(pod: UnboundPod, nodes: str, names: Collection[str], fitted: NodeFit) -> str:
    """Why none of the nodes that are for a pod takes it as they are. `nodes` is what a sentence calls them."""
    short = {insufficient(name): name for name in pod.requests}
    reasons = [reason for name in names for reason in fitted.reasons.get(name, ())]
    if set(reasons) == {NO_DEVICES}:
        return f"none of {nodes} has the devices of its claims free"
    lacking = [short[reason] for reason in dict.fromkeys(reasons) if reason in short]
    if len(lacking) == len(set(reasons)):
        wanted = lacking or list(pod.requests)
        wanted = [each for each in wanted if "/" in each] or wanted
        asks = ", ".join(f"{amount(as_quantity(each, pod.requests[each]))} {each}" for each in sorted(wanted))
        return f"none of {nodes} has {asks or 'a place'} free"
    return _each(nodes, len(names), Counter(reasons), short)


def _each(nodes: str, count: int, reasons: Mapping[str, int], short: Mapping[str, str]) -> str:
    """`each of 2 nodes (a100) has no pod slot free`, or what each part of them does."""
    said = {reason: DOES.get(reason) or f"has too little {short.get(reason, 'room')} free" for reason in reasons}
    if len(said) == 1:
        (text,) = said.values()
        return f"{nodes} {text}" if count == 1 else f"each of {nodes} {text}"
    parts = ", ".join(f"{number} {said[reason]}" for reason, number in sorted(reasons.items()))
    return f"none of {nodes} takes it: {parts}"


def nowhere(node_pools: NodePools, pod: UnboundPod, pods: int) -> str:
    """Why no node ever takes a pod, or the pods of a gang together."""
    found = way_out(node_pools, pod)
    if found.shortfalls:
        return ", ".join(
            f"{name}: asked {amount(offer.asked)}, the largest eligible node has {amount(offer.largest)}"
            for name, offer in found.shortfalls.items()
        )
    pool = node_pools.pool(pod)
    if not pool.ever and not pool.templates:
        named = [DOES[reason] for reason in found.refusals if reason in DOES]
        return f"every node {' or '.join(named)}" if named else "no node has the labels and taints the step asks for"
    if all(node_pools.empty[index].slots < 1 for index in pool.ever):
        return "every eligible node has no pod slot (allocatable pods) left beside the pods that belong to it"
    if taken_for_good(node_pools, pod):
        return "on every eligible node a pod that belongs to the node has a host port that the step asks for"
    if gang_has_no_domain(node_pools, pod, pods):
        return f"no domain that the gang must be in together holds all {pods} pods"
    if pods > 1:
        return f"the nodes cannot hold all {pods} pods of the gang together"
    return "no eligible node has room, pod slots and ports for it at the same time"
