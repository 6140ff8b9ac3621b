"""The nodes of a cluster with what is bound to them, and one pod held against them.

Mirrors k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources.Fit.Filter, Kubernetes v1.36.3.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from gpuflow.checker.nodes.affinity import Namespaces
from gpuflow.checker.nodes.amounts import Amounts
from gpuflow.checker.nodes.subjects import BoundPod, Node, UnboundPod, read_bound, read_node
from gpuflow.kubernetes.admission.pod import read_object, read_text
from gpuflow.kubernetes.labels import read_labels
from gpuflow.resources import read_map

TOO_MANY_PODS: Final = "Too many pods"


def insufficient(resource: str) -> str:
    """That a node has too little of a resource, in the scheduler's words."""
    return f"Insufficient {resource}"


class NodeInfo(NamedTuple):
    """A node and the pods on it."""

    node: Node
    pods: tuple[BoundPod, ...]
    used: Amounts

    def shortages(self, requests: Amounts) -> list[str]:
        """What it has too little of, in the scheduler's words."""
        short = [TOO_MANY_PODS] if len(self.pods) >= self.node.slots else []
        for name, amount in requests.items():
            if name not in self.node.claimed and self._lacks(name, amount):
                short.append(insufficient(name))
        return short

    def lacks_devices(self, requests: Amounts) -> bool:
        """Whether claims find too few devices."""
        return any(name in self.node.claimed and self._lacks(name, amount) for name, amount in requests.items())

    def _lacks(self, name: str, amount: int) -> bool:
        return amount > self.node.allocatable.get(name, 0) - self.used.get(name, 0)


class NodeList(NamedTuple):
    hosts: tuple[NodeInfo, ...]
    templates: tuple[Node, ...]
    """One node for each autoscaled node group."""
    namespaces: Namespaces
    knows_namespaces: bool
    asks_for_namespaces: bool
    """Whether a bound pod keeps apart from pods of namespaces with certain labels."""

    def unknown(self, pod: UnboundPod) -> tuple[str, ...]:
        """What the scheduler will consider of a pod and the manifests at hand do not say."""
        terms = (*pod.affinity.together, *pod.affinity.apart)
        asked = self.asks_for_namespaces or any(term.asks_for_namespaces for term in terms)
        if self.knows_namespaces or not asked:
            return pod.unknown
        return (*pod.unknown, "which namespaces the namespaceSelector of an affinity means")


def read_node_list(
    nodes: Iterable[object],
    pods: Iterable[object] = (),
    namespaces: Mapping[str, Any] | Iterable[object] | None = None,
) -> NodeList:
    """Read the manifests once, to ask about many pods. `ValueError` names the manifest that cannot be read.

    Pods may be manifests, or bound pods that were read before.
    """
    bound: defaultdict[str, list[BoundPod]] = defaultdict(list)
    for index, manifest in enumerate(_listed(pods, "pods")):
        try:
            pod = manifest if isinstance(manifest, BoundPod) else read_bound(manifest)
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
    return NodeList(
        tuple(_host(node, bound.get(node.name, ())) for node in known.values() if node.group_max is None),
        tuple(node for node in known.values() if node.group_max is not None),
        _read_namespaces(namespaces),
        namespaces is not None,
        any(term.asks_for_namespaces for there in bound.values() for pod in there for term in pod.affinity.apart),
    )


def _host(node: Node, pods: Sequence[BoundPod]) -> NodeInfo:
    used: Amounts = {}
    for pod in pods:
        for name, amount in pod.requests.items():
            used[name] = used.get(name, 0) + amount
    return NodeInfo(node, tuple(pods), used)


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
