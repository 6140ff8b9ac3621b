"""On which nodes a pod can run, as the default filters of kube-scheduler 1.36 see it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gpuflow.checker.nodes import message
from gpuflow.checker.nodes.filters import CONFLICT, NOT_NAMED, affinity_state, balances, host_refusals
from gpuflow.checker.nodes.node_list import NodeList, read_node_list
from gpuflow.checker.nodes.storage import Storage
from gpuflow.checker.nodes.subjects import UnboundPod, read_unbound_pod


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
    features of the scheduler that are on; `storage` is what claims depend on, see `nodes.storage.read_storage`.
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
        return NodeFit([], {}, message.NO_NODES, unknown)
    named = pod.placement.named
    if named is not None and not named:
        reasons = {host.node.name: [CONFLICT] for host in node_list.hosts}
        return NodeFit([], reasons, message.refusal(len(reasons), CONFLICT), unknown)
    if pod.volumes is not None:
        if refusal := pod.volumes.refusal:
            reasons = {host.node.name: [refusal] for host in node_list.hosts}
            return NodeFit([], reasons, message.refusal(len(reasons), refusal), unknown)
        pod = pod._replace(is_held=_is_held(pod, node_list))
    spread, affinity = balances(pod, node_list), affinity_state(pod, node_list)
    feasible, reasons = [], {}
    for host in node_list.hosts:
        name = host.node.name
        if named is not None and name not in named:
            reasons[name] = [NOT_NAMED]
        elif refusals := host_refusals(pod, host, spread, affinity):
            reasons[name] = refusals
        else:
            feasible.append(name)
    sentence = None if feasible else message.sentence(len(node_list.hosts), reasons.values())
    return NodeFit(sorted(feasible), dict(sorted(reasons.items())), sentence, unknown)


def _is_held(pod: UnboundPod, node_list: NodeList) -> bool:
    """Whether another pod has a claim of this one that is for one pod alone."""
    alone = {claim.name for claim in pod.volumes.claims if claim.is_for_one_pod} if pod.volumes is not None else set()
    return bool(alone) and any(
        other.namespace == pod.namespace and not alone.isdisjoint(other.claims)
        for host in node_list.hosts
        for other in host.pods
    )
