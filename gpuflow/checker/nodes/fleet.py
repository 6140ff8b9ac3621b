"""The nodes of a cluster with what is bound to them, and one pod held against them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from gpuflow.checker.nodes import ports, volumes
from gpuflow.checker.nodes.affinity import Domain, Namespaces, Neighbours, Term
from gpuflow.checker.nodes.amounts import Amounts
from gpuflow.checker.nodes.features import NO_FEATURES
from gpuflow.checker.nodes.spread import Balance
from gpuflow.checker.nodes.subjects import BoundPod, Node, WaitingPod, read_bound, read_node
from gpuflow.checker.nodes.taints import CORDON
from gpuflow.kubernetes.admission.pod import read_object, read_text
from gpuflow.kubernetes.labels import read_labels
from gpuflow.resources import read_map

CORDONED: Final = "node(s) were unschedulable"
OTHER_NAME: Final = "node(s) didn't match the requested node name"
TAINTED: Final = "node(s) had untolerated taint(s)"
NOT_SELECTED: Final = "node(s) didn't match Pod's node affinity/selector"
NOT_NAMED: Final = "node(s) didn't satisfy plugin(s) [NodeAffinity]"
CONFLICT: Final = "pod affinity terms conflict"
PORTS_TAKEN: Final = "node(s) didn't have free ports for the requested pod ports"
CROWDED: Final = "Too many pods"


class Host(NamedTuple):
    """A node and the pods on it."""

    node: Node
    pods: tuple[BoundPod, ...]
    used: Amounts

    def shortages(self, requests: Amounts) -> list[str]:
        """What it has too little of, in the scheduler's words."""
        short = [CROWDED] if len(self.pods) >= self.node.slots else []
        for name, amount in requests.items():
            if amount > self.node.allocatable.get(name, 0) - self.used.get(name, 0):
                short.append(f"Insufficient {name}")
        return short


class Fleet(NamedTuple):
    hosts: tuple[Host, ...]
    templates: tuple[Node, ...]
    """One node for each autoscaled node group."""
    namespaces: Namespaces
    knows_namespaces: bool
    asks_for_namespaces: bool
    """Whether a bound pod keeps apart from pods of namespaces with certain labels."""

    def unknown(self, pod: WaitingPod) -> tuple[str, ...]:
        """What the scheduler will weigh of a pod and the manifests at hand cannot tell."""
        terms = (*pod.affinity.together, *pod.affinity.apart)
        asked = self.asks_for_namespaces or any(term.asks_for_namespaces for term in terms)
        if self.knows_namespaces or not asked:
            return pod.unknown
        return (*pod.unknown, "which namespaces the namespaceSelector of an affinity means")


def read_fleet(
    nodes: Iterable[object],
    pods: Iterable[object] = (),
    namespaces: Mapping[str, Any] | Iterable[object] | None = None,
) -> Fleet:
    """Read the manifests once, to ask about many pods. `ValueError` names the manifest that cannot be read."""
    bound: defaultdict[str, list[BoundPod]] = defaultdict(list)
    for index, manifest in enumerate(_listed(pods, "pods")):
        try:
            pod = read_bound(manifest)
        except ValueError as error:
            raise ValueError(f"{_place('pods', index, manifest)}: {error}") from None
        if pod is not None:
            bound[pod.node].append(pod)
    known: dict[str, Node] = {}
    for index, manifest in enumerate(_listed(nodes, "nodes")):
        try:
            node = read_node(manifest)
        except ValueError as error:
            raise ValueError(f"{_place('nodes', index, manifest)}: {error}") from None
        if node.name in known:
            raise ValueError(f'nodes[{index}]: there is already a node "{node.name}"')
        known[node.name] = node
    return Fleet(
        tuple(_host(node, bound.get(node.name, ())) for node in known.values() if node.group_max is None),
        tuple(node for node in known.values() if node.group_max is not None),
        _read_namespaces(namespaces),
        namespaces is not None,
        any(term.asks_for_namespaces for there in bound.values() for pod in there for term in pod.affinity.apart),
    )


def _host(node: Node, pods: Sequence[BoundPod]) -> Host:
    used: Amounts = {}
    for pod in pods:
        for name, amount in pod.requests.items():
            used[name] = used.get(name, 0) + amount
    return Host(node, tuple(pods), used)


def _listed(manifests: Iterable[object], what: str) -> Iterable[object]:
    if isinstance(manifests, Mapping | str) or not isinstance(manifests, Iterable):
        raise ValueError(f"{what}: must be a list of manifests, not {type(manifests).__name__}")
    return manifests


def _place(what: str, index: int, manifest: object) -> str:
    metadata = manifest.get("metadata") if isinstance(manifest, Mapping) else None
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    return f"{what}[{index}] ({name})" if isinstance(name, str) else f"{what}[{index}]"


def _read_namespaces(namespaces: Mapping[str, Any] | Iterable[object] | None) -> Namespaces:
    """Labels by name, from a map of just that or from manifests, which then carry their own name as a label."""
    if isinstance(namespaces, Mapping):
        return {name: read_labels(labels, f"namespaces[{name}]") for name, labels in namespaces.items()}
    found = {}
    for index, manifest in enumerate(_listed(namespaces or (), "namespaces")):
        where = f"namespaces[{index}].metadata"
        try:
            metadata = read_map(read_object(manifest, "Namespace").get("metadata"), where)
            name = read_text(metadata, "name", where) or ""
        except ValueError as error:
            raise ValueError(f"namespaces[{index}]: {error}") from None
        found[name] = {**read_labels(metadata.get("labels"), f"{where}.labels"), "kubernetes.io/metadata.name": name}
    return found


def placement_refusal(pod: WaitingPod, node: Node) -> str | None:
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


def host_refusals(pod: WaitingPod, host: Host, balances: Iterable[Balance], neighbours: Neighbours | None) -> list[str]:
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
    for balance in balances:
        reason = balance.refusal(node.labels)
        if reason is not None:
            return [reason]
    reason = neighbours.refusal(node.labels) if neighbours else None
    if reason is None and not pod.features <= node.features:
        reason = NO_FEATURES
    return [] if reason is None else [reason]


def balances(pod: WaitingPod, fleet: Fleet) -> list[Balance]:
    """For each spread constraint, how the pods it counts lie over the domains that it takes into account."""
    tallies: list[dict[str, int]] = [{} for _ in pod.constraints]
    hosts = fleet.hosts if pod.constraints else ()
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


def neighbours(pod: WaitingPod, fleet: Fleet) -> Neighbours | None:
    """What bound pods and this one ask of each other; `None` when nothing."""
    together = [term.unrolled(fleet.namespaces) for term in pod.affinity.together]
    apart = [term.unrolled(fleet.namespaces) for term in pod.affinity.apart]
    own_namespace = fleet.namespaces.get(pod.namespace, {})
    matching: set[Domain] = set()
    unwanted: set[Domain] = set()
    refusing: set[Domain] = set()

    def note(domains: set[Domain], node: Node, term: Term) -> None:
        value = node.labels.get(term.topology_key)
        if value is not None:
            domains.add((term.topology_key, value))

    for node, bound, _ in fleet.hosts:
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
    return Neighbours(pod.affinity, frozenset(matching), frozenset(unwanted), frozenset(refusing), is_first)
