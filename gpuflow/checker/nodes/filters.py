"""On which nodes a pod can run, by the scheduler's filters, and its sentence about a pod that fits nowhere.

Mirrors the default Filter plugins in k8s.io/kubernetes/pkg/scheduler/framework/plugins, in their order, and
k8s.io/kubernetes/pkg/scheduler/framework.FitError.Error, Kubernetes v1.36.3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpuflow.checker.nodes import node_info, volumes
from gpuflow.checker.nodes.node_info import (
    CORDON,
    NO_FEATURES,
    Node,
    NodeInfo,
    NodeList,
    UnboundPod,
    read_node_list,
    read_unbound_pod,
)
from gpuflow.checker.nodes.pod_affinity import AffinityState, Domain, PodAffinityTerm, SpreadBalance
from gpuflow.checker.nodes.volumes import Storage

NO_NODES = "no nodes available to schedule pods"


def fit_error(total: int, reasons: Iterable[Iterable[str]]) -> str:
    """Every reason with the number of nodes that gave it, in the order of the texts, numbers included."""
    counts = Counter(reason for node in reasons for reason in node)
    return fit_error_for(total, ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items())))


def fit_error_for(total: int, reason: str) -> str:
    return f"0/{total} nodes are available: {reason}."


REASON_CORDONED: Final = "node(s) were unschedulable"
OTHER_NAME: Final = "node(s) didn't match the requested node name"
REASON_TAINTED: Final = "node(s) had untolerated taint(s)"
REASON_NOT_SELECTED: Final = "node(s) didn't match Pod's node affinity/selector"
REASON_NOT_NAMED: Final = "node(s) didn't satisfy plugin(s) [NodeAffinity]"
CONFLICT: Final = "pod affinity terms conflict"
NO_DEVICES: Final = "cannot allocate all claims"
PORTS_TAKEN: Final = "node(s) didn't have free ports for the requested pod ports"


def placement_refusal(pod: UnboundPod, node: Node) -> str | None:
    """Why a node is not one for this pod, whatever runs on it."""
    if node.is_cordoned and not pod.tolerations.cover(CORDON):
        return REASON_CORDONED
    if pod.placement.node_name not in ("", node.name):
        return OTHER_NAME
    if not pod.tolerations.cover_all(node.taints):
        return REASON_TAINTED
    if not pod.placement.matches(node.name, node.labels):
        return REASON_NOT_SELECTED
    return None


def host_refusals(
    pod: UnboundPod, host: NodeInfo, balances: Iterable[SpreadBalance], affinity_state: AffinityState | None
) -> list[str]:
    """The reasons of the first filter that turns the pod away, in the scheduler's order of filters."""
    node = host.node
    reason = placement_refusal(pod, node)
    if reason is not None:
        return [reason]
    if pod.ports and node_info.ports_clash(pod.ports, (port for other in host.pods for port in other.ports)):
        return [PORTS_TAKEN]
    short = host.shortages(pod.requests)
    if short:
        return sorted(short)
    if pod.disks and volumes.disks_clash(pod.disks, (disk for other in host.pods for disk in other.disks)):
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


def balances(pod: UnboundPod, node_list: NodeList) -> list[SpreadBalance]:
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
        SpreadBalance(each, tally, int(each.counts(pod.labels)))
        for each, tally in zip(pod.constraints, tallies, strict=True)
    ]


def affinity_state(pod: UnboundPod, node_list: NodeList) -> AffinityState | None:
    """What bound pods and this one ask of each other; `None` when nothing."""
    together = [term.merge_namespaces(node_list.namespaces) for term in pod.affinity.together]
    apart = [term.merge_namespaces(node_list.namespaces) for term in pod.affinity.apart]
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


@dataclass(frozen=True, slots=True)
class NodeFit:
    """Where a pod fits, and in the scheduler's words why not elsewhere."""

    feasible: list[str]
    """The nodes that pass every filter, sorted."""
    reasons: dict[str, list[str]]
    """For each other node, the reasons of the first filter that refused it, sorted."""
    message: str | None
    """What the scheduler says of a pod that fits nowhere; `None` when it fits somewhere."""
    unknown: list[str]
    """What the scheduler also considers and this answer does not, such as claims; empty: nothing."""


def fit_nodes(
    pod: Mapping[str, Any],
    nodes: Iterable[Mapping[str, Any]],
    pods: Iterable[Mapping[str, Any]] = (),
    namespaces: Mapping[str, Any] | Iterable[Mapping[str, Any]] | None = None,
    *,
    gates: Collection[str] = (),
    storage: Storage | None = None,
) -> NodeFit:
    """Hold a pod against the nodes of a cluster and the pods bound to them.

    The pod is taken as it is posted; what admission adds to it (LimitRange defaults, a RuntimeClass' overhead and
    node selector) must already be there, see `Admission.pod`. `namespaces` are manifests, or labels by name; `None`
    when they are not known. Node-group templates are no nodes to the scheduler and are left out. `gates` names alpha
    features of the scheduler that are on; `storage` is what claims depend on, see `nodes.volumes.read_storage`.
    `ValueError` when a manifest cannot be read.
    """
    return fit(read_pending(pod, gates, storage), read_node_list(nodes, pods, namespaces))


def read_pending(pod: object, gates: Collection[str] = (), storage: Storage | None = None) -> UnboundPod:
    """Read a pod that waits; `ValueError` names the place that cannot be read."""
    try:
        return read_unbound_pod(pod, frozenset(gates), storage)
    except ValueError as error:
        raise ValueError(f"pod: {error}") from None


def fit(pod: UnboundPod, node_list: NodeList) -> NodeFit:
    """`fit_nodes` for what is already read."""
    unknown = list(node_list.unknown(pod))
    if not node_list.hosts:
        return NodeFit([], {}, NO_NODES, unknown)
    named = pod.placement.node_names
    conflict = CONFLICT if named is not None and not named else None
    if refusal := conflict or (None if pod.volumes is None else pod.volumes.refusal):
        reasons = {host.node.name: [refusal] for host in node_list.hosts}
        return NodeFit([], reasons, fit_error_for(len(reasons), refusal), unknown)
    if pod.volumes is not None:
        pod = pod._replace(is_held=_is_claim_in_use(pod, node_list))
    spread, affinity = balances(pod, node_list), affinity_state(pod, node_list)
    feasible, reasons = [], {}
    for host in node_list.hosts:
        name = host.node.name
        if named is not None and name not in named:
            reasons[name] = [REASON_NOT_NAMED]
        elif refusals := host_refusals(pod, host, spread, affinity):
            reasons[name] = refusals
        else:
            feasible.append(name)
    sentence = None if feasible else fit_error(len(node_list.hosts), reasons.values())
    return NodeFit(sorted(feasible), dict(sorted(reasons.items())), sentence, unknown)


def _is_claim_in_use(pod: UnboundPod, node_list: NodeList) -> bool:
    """Whether another pod has a claim of this one that is for one pod alone."""
    alone = {claim.name for claim in pod.volumes.claims if claim.is_for_one_pod} if pod.volumes is not None else set()
    return bool(alone) and any(
        other.namespace == pod.namespace and not alone.isdisjoint(other.claims)
        for host in node_list.hosts
        for other in host.pods
    )
