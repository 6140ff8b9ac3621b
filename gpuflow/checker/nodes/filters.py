"""The scheduler's filters: why a node does not take a pod.

Mirrors the default Filter plugins in k8s.io/kubernetes/pkg/scheduler/framework/plugins, in their order, Kubernetes
v1.36.3.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gpuflow.checker.nodes import ports, volumes
from gpuflow.checker.nodes.affinity import AffinityState, Domain, PodAffinityTerm
from gpuflow.checker.nodes.features import NO_FEATURES
from gpuflow.checker.nodes.node_list import NodeInfo, NodeList
from gpuflow.checker.nodes.spread import Balance
from gpuflow.checker.nodes.subjects import Node, UnboundPod
from gpuflow.checker.nodes.taints import CORDON

CORDONED: Final = "node(s) were unschedulable"
OTHER_NAME: Final = "node(s) didn't match the requested node name"
TAINTED: Final = "node(s) had untolerated taint(s)"
NOT_SELECTED: Final = "node(s) didn't match Pod's node affinity/selector"
NOT_NAMED: Final = "node(s) didn't satisfy plugin(s) [NodeAffinity]"
CONFLICT: Final = "pod affinity terms conflict"
NO_DEVICES: Final = "cannot allocate all claims"
PORTS_TAKEN: Final = "node(s) didn't have free ports for the requested pod ports"


def placement_refusal(pod: UnboundPod, node: Node) -> str | None:
    """Why a node is not one for this pod, whatever runs on it."""
    if node.is_cordoned and not pod.tolerations.cover(CORDON):
        return CORDONED
    if pod.placement.node_name not in ("", node.name):
        return OTHER_NAME
    if not pod.tolerations.cover_all(node.taints):
        return TAINTED
    if not pod.placement.matches(node.name, node.labels):
        return NOT_SELECTED
    return None


def host_refusals(
    pod: UnboundPod, host: NodeInfo, balances: Iterable[Balance], affinity_state: AffinityState | None
) -> list[str]:
    """The reasons of the first filter that turns the pod away, in the scheduler's order of filters."""
    node = host.node
    reason = placement_refusal(pod, node)
    if reason is None and pod.ports and ports.clash(pod.ports, (port for other in host.pods for port in other.ports)):
        reason = PORTS_TAKEN
    if reason is not None:
        return [reason]
    short = host.shortages(pod.requests)
    if short:
        return sorted(short)
    if pod.disks and volumes.clash(pod.disks, (disk for other in host.pods for disk in other.disks)):
        return [volumes.NO_DISK]
    if pod.is_held:
        return [volumes.CLAIM_TAKEN]
    if pod.volumes is not None and (unreached := pod.volumes.refusals(node.name, node.labels)):
        return unreached
    for balance in balances:
        reason = balance.refusal(node.labels)
        if reason is not None:
            return [reason]
    reason = affinity_state.refusal(node.labels) if affinity_state else None
    if reason is None and not pod.features <= node.features:
        reason = NO_FEATURES
    if reason is None and node.claimed and host.lacks_devices(pod.requests):
        reason = NO_DEVICES
    return [] if reason is None else [reason]


def balances(pod: UnboundPod, node_list: NodeList) -> list[Balance]:
    """For each spread constraint, how the pods it counts lie over the domains that it takes into account."""
    tallies: list[dict[str, int]] = [{} for _ in pod.constraints]
    hosts = node_list.hosts if pod.constraints else ()
    for node, bound, _ in hosts:
        if any(each.topology_key not in node.labels for each in pod.constraints):
            continue
        selected = pod.placement.matches(node.name, node.labels)
        tolerated = pod.tolerations.cover_all(node.taints)
        counted = [other.labels for other in bound if other.namespace == pod.namespace and not other.is_leaving]
        for each, tally in zip(pod.constraints, tallies, strict=True):
            if (selected or not each.honors_affinity) and (tolerated or not each.honors_taints):
                domain = node.labels[each.topology_key]
                tally[domain] = tally.get(domain, 0) + each.tally(counted)
    return [
        Balance(each, tally, int(each.counts(pod.labels))) for each, tally in zip(pod.constraints, tallies, strict=True)
    ]


def affinity_state(pod: UnboundPod, node_list: NodeList) -> AffinityState | None:
    """What bound pods and this one ask of each other; `None` when nothing."""
    together = [term.unrolled(node_list.namespaces) for term in pod.affinity.together]
    apart = [term.unrolled(node_list.namespaces) for term in pod.affinity.apart]
    own_namespace = node_list.namespaces.get(pod.namespace, {})
    matching: set[Domain] = set()
    unwanted: set[Domain] = set()
    refusing: set[Domain] = set()

    def note(domains: set[Domain], node: Node, term: PodAffinityTerm) -> None:
        value = node.labels.get(term.topology_key)
        if value is not None:
            domains.add((term.topology_key, value))

    for node, bound, _ in node_list.hosts:
        for other in bound:
            for term in other.affinity.apart:
                if term.matches(pod.namespace, pod.labels, own_namespace):
                    note(refusing, node, term)
            if together and all(term.matches(other.namespace, other.labels, {}) for term in together):
                for term in together:
                    note(matching, node, term)
            for term in apart:
                if term.matches(other.namespace, other.labels, {}):
                    note(unwanted, node, term)
    if not (refusing or pod.affinity):
        return None
    is_first = not matching and all(term.matches(pod.namespace, pod.labels, {}) for term in together)
    return AffinityState(pod.affinity, frozenset(matching), frozenset(unwanted), frozenset(refusing), is_first)
