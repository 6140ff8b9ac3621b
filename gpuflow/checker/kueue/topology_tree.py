"""The nodes of a cluster as the tree that a Topology makes of them, with what is free in each of its leaves.

Mirrors sigs.k8s.io/kueue/pkg/cache/scheduler.newTopologyTree and TASFlavorCache.snapshot, Kueue v0.19.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from gpuflow.checker.kueue.amounts import amounts_of
from gpuflow.checker.kueue.flavors import Flavor, FlavorTaint, read_name, read_taint
from gpuflow.checker.kueue.requests import read_template
from gpuflow.kubernetes.admission.pod import Body, read_object, read_text
from gpuflow.kubernetes.labels import read_labels
from gpuflow.resources import BadField, read_map, read_maps, read_resource_list

HOSTNAME: Final = "kubernetes.io/hostname"
"""The level at which a domain is one node. Only there does Kueue look at taints, selectors and affinity."""
POD_ANNOTATIONS: Final = (
    "kueue.x-k8s.io/podset-required-topology",
    "kueue.x-k8s.io/podset-preferred-topology",
    "kueue.x-k8s.io/podset-unconstrained-topology",
    "kueue.x-k8s.io/podset-slice-required-topology",
    "kueue.x-k8s.io/podset-slice-required-topology-constraints",
)
"""Pods with one of these are counted with the workload that holds their place, and not by themselves."""
ENDED: Final = ("Succeeded", "Failed")

Amounts = dict[str, int]


class TopologyNode(NamedTuple):
    """A node that is ready and not cordoned: Kueue forgets all others."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[FlavorTaint, ...]
    capacity: Mapping[str, int]


class TopologyInventory(NamedTuple):
    """What topology-aware scheduling sees of a cluster."""

    levels: Mapping[str, tuple[str, ...]]
    """The labels of each Topology, from the highest level to the lowest."""
    nodes: Sequence[TopologyNode]
    busy: Mapping[str, Mapping[str, int]]
    """What pods without a place in a topology take of each node."""
    daemons: Mapping[str, Mapping[str, int]]
    """As far as it is taken for good."""
    waiting: int = 0
    """Pods that no node has yet, and that wait for nothing else."""


class Domain:
    """A place in a topology: a block, a rack, a node."""

    __slots__ = ("children", "free", "key", "node", "nodes", "used", "values")

    def __init__(self, values: tuple[str, ...], key: str, node: TopologyNode | None = None) -> None:
        self.values = values
        self.key = key
        """What names it among the domains of its level."""
        self.node = node
        """Of a leaf that is one node: the node."""
        self.nodes: list[TopologyNode] = []
        self.children: list[Domain] = []
        self.free: Amounts = {}
        """Of a leaf: what its nodes have, less what pods without a place take."""
        self.used: Amounts = {}
        """Of a leaf: what workloads with a place hold."""


class TopologyTree:
    """The domains of one flavor's nodes."""

    def __init__(self, topology: str, levels: tuple[str, ...], flavor: Flavor, inventory: TopologyInventory) -> None:
        self.topology = topology
        self.levels = levels
        self.tolerations = flavor.tolerations
        self.is_by_node = bool(levels) and levels[-1] == HOSTNAME
        self.leaves: dict[str, Domain] = {}
        self.by_level: list[list[Domain]] = [[] for _ in levels]
        self._inner: dict[tuple[str, ...], Domain] = {}
        for node in inventory.nodes:
            if _belongs(node, flavor, levels):
                leaf = self._leaf(node)
                leaf.nodes.append(node)
                add_to(leaf.free, node.capacity)
                add_to(leaf.free, inventory.busy.get(node.name, {}), -1)

    def _leaf(self, node: TopologyNode) -> Domain:
        values = tuple(node.labels[level] for level in self.levels)
        key = values[-1] if self.is_by_node else domain_key(values)
        if key not in self.leaves:
            leaf = Domain(values, key, node if self.is_by_node else None)
            self.leaves[key] = leaf
            self.by_level[len(values) - 1].append(leaf)
            self._hang(leaf)
        return self.leaves[key]

    def _hang(self, domain: Domain) -> None:
        above = domain.values[:-1]
        if not above:
            return
        parent = self._inner.get(above)
        if parent is None:
            parent = self._inner[above] = Domain(above, domain_key(above))
            self.by_level[len(above) - 1].append(parent)
            self._hang(parent)
        parent.children.append(domain)

    def use(self, key: str, amounts: Mapping[str, int], times: int = 1) -> None:
        """Pods of a workload take, or with -1 leave, a leaf; one whose nodes are gone is passed over."""
        if key in self.leaves:
            add_to(self.leaves[key].used, amounts, times)


def _belongs(node: TopologyNode, flavor: Flavor, levels: Iterable[str]) -> bool:
    return all(node.labels.get(key, "") == value for key, value in flavor.labels.items()) and all(
        level in node.labels for level in levels
    )


def domain_key(values: Sequence[str]) -> str:
    return ",".join(values)


def add_to(total: Amounts, amounts: Mapping[str, int], times: int = 1) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + times * amount


def read_inventory(
    levels: Mapping[str, tuple[str, ...]], nodes: Iterable[Body], pods: Iterable[Body]
) -> TopologyInventory:
    """`pods`: those of all namespaces."""
    busy: dict[str, Amounts] = {}
    daemons: dict[str, Amounts] = {}
    waiting = 0
    for manifest in pods:
        manifest = read_object(manifest, "Pod")
        spec = read_map(manifest.get("spec"), "Pod: spec")
        node = read_text(spec, "nodeName", "Pod: spec")
        if not _counts(manifest):
            continue
        if not node:
            waiting += not spec.get("schedulingGates")
            continue
        amounts = {**amounts_of(read_template(spec, "Pod: spec").requests()), "pods": 1}
        add_to(busy.setdefault(node, {}), amounts)
        if _is_daemon(manifest):
            add_to(daemons.setdefault(node, {}), amounts)
    return TopologyInventory(levels, [each for each in map(_read_node, nodes) if each], busy, daemons, waiting)


def _counts(pod: Body) -> bool:
    metadata = read_map(pod.get("metadata"), "Pod: metadata")
    annotations = read_map(metadata.get("annotations"), "Pod: metadata.annotations")
    phase = read_map(pod.get("status"), "Pod: status").get("phase")
    return phase not in ENDED and not any(key in annotations for key in POD_ANNOTATIONS)


def _is_daemon(pod: Body) -> bool:
    metadata = read_map(pod.get("metadata"), "Pod: metadata")
    owners = read_maps(metadata.get("ownerReferences"), "Pod: metadata.ownerReferences")
    return any(owner.get("kind") == "DaemonSet" for owner in owners)


def read_topology(manifest: object) -> tuple[str, tuple[str, ...]]:
    """A Topology, and the labels of its levels."""
    manifest = read_object(manifest, "Topology")
    name = read_name(manifest, "Topology")
    where = f"Topology {name}: spec"
    levels = read_maps(read_map(manifest.get("spec"), where).get("levels"), f"{where}.levels")
    labels = [read_text(each, "nodeLabel", f"{where}.levels[{index}]") for index, each in enumerate(levels)]
    if not labels or not all(labels) or len(set(labels)) < len(labels):
        raise BadField(f"{where}.levels", "one level at least is needed, each with a nodeLabel of its own")
    return name, tuple(label for label in labels if label)


def _read_node(manifest: object) -> TopologyNode | None:
    manifest = read_object(manifest, "Node")
    name = read_name(manifest, "Node")
    where = f"Node {name}"
    spec, status = read_map(manifest.get("spec"), where), read_map(manifest.get("status"), where)
    conditions = read_maps(status.get("conditions"), f"{where}: status.conditions")
    # A node in a file may have no conditions at all; a real one always has.
    is_ready = all(each.get("status") == "True" for each in conditions if each.get("type") == "Ready")
    if spec.get("unschedulable") is True or not is_ready:
        return None
    metadata = read_map(manifest.get("metadata"), f"{where}: metadata")
    taints = read_maps(spec.get("taints"), f"{where}: spec.taints")
    allocatable = status.get("allocatable", status.get("capacity"))
    return TopologyNode(
        name,
        read_labels(metadata.get("labels"), f"{where}: metadata.labels"),
        tuple(read_taint(each, f"{where}: spec.taints[{index}]") for index, each in enumerate(taints)),
        amounts_of(read_resource_list(allocatable, f"{where}: status.allocatable")),
    )
