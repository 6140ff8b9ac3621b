"""How many copies of a pod the nodes hold, prepared for thousands of questions about the same nodes.

Nodes that look alike to a pod are checked once, and what they have left is kept in tables from which a count is read
with few comparisons.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from gpuflow.checker.nodes import node_info, volumes
from gpuflow.checker.nodes.amounts import Amounts, sum_amounts
from gpuflow.checker.nodes.filters import affinity_state, balances, host_refusals, placement_refusal
from gpuflow.checker.nodes.node_info import BoundPod, Node, NodeInfo, NodeList, UnboundPod
from gpuflow.checker.nodes.node_selection import TEMPORARY_TAINTS
from gpuflow.checker.nodes.pod_affinity import PodAffinityTerm
from gpuflow.checker.nodes.volumes import NO_SPACE

HOSTNAME = "kubernetes.io/hostname"


class Space(NamedTuple):
    """What one node has to give, and to how many pods."""

    free: Amounts
    slots: int

    def holds(self, requests: Amounts, most: int | None = None) -> int:
        """How many copies fit; `most`: no more than so many on one node whatever its size."""
        count = self.slots if most is None else min(most, self.slots)
        for name, amount in requests.items():
            count = min(count, self.free.get(name, 0) // amount)
        return max(count, 0)

    def with_pod(self, requests: Amounts) -> Space:
        """What is left when one pod has been put there."""
        return Space({name: amount - requests.get(name, 0) for name, amount in self.free.items()}, self.slots - 1)


class Row(NamedTuple):
    free: tuple[int, ...]
    slots: int
    nodes: int


class Table:
    """Spaces by what is left of a few resources, the largest amount of the first one first."""

    def __init__(self, names: Sequence[str], spaces: Iterable[tuple[Space, int]]) -> None:
        counts: Counter[tuple[tuple[int, ...], int]] = Counter()
        for space, nodes in spaces:
            if space.slots > 0:
                counts[tuple(space.free.get(name, 0) for name in names), space.slots] += nodes
        self.rows = [Row(free, slots, nodes) for (free, slots), nodes in sorted(counts.items(), reverse=True)]

    @cached_property
    def front(self) -> list[tuple[int, ...]]:
        """The spaces that no other outdoes: what fits in none of them fits nowhere."""
        front: list[tuple[int, ...]] = []
        for free in dict.fromkeys(row.free for row in self.rows):
            if not any(all(map(int.__ge__, other, free)) for other in front):
                front.append(free)
        return front

    def count(self, amounts: tuple[int, ...], most: int | None = None, enough: int | None = None) -> int:
        """How many copies fit altogether, counted until there are `enough`."""
        if not any(all(map(int.__ge__, free, amounts)) for free in self.front):
            return 0
        if enough == 1:
            return 1
        total = 0
        for free, slots, nodes in self.rows:
            if amounts and free[0] < amounts[0]:
                break
            copies = slots if most is None else min(most, slots)
            for have, amount in zip(free, amounts, strict=True):
                fitting = have // amount
                if fitting < copies:
                    copies = fitting
            if copies > 0:
                total += copies * nodes
                if enough is not None and total >= enough:
                    break
        return total


@dataclass(frozen=True, eq=False)
class NodePool:
    """The nodes that are eligible for a pod: `now`, `ever` (once temporary taints are gone), and templates."""

    node_pools: NodePools
    now: tuple[int, ...]
    ever: tuple[int, ...]
    templates: tuple[Node, ...]
    _tables: dict[tuple[str, tuple[str, ...]], Table] = field(default_factory=dict)

    @cached_property
    def hosts(self) -> frozenset[int]:
        """The hosts that take such a pod now."""
        return frozenset(self.now)

    def table(self, side: str, names: tuple[str, ...]) -> Table:
        """`side`: "now" with what is free, "empty" with what nodes offer, "new" with what node groups may add."""
        if (side, names) not in self._tables:
            self._tables[side, names] = Table(names, self._spaces(side))
        return self._tables[side, names]

    def _spaces(self, side: str) -> Iterator[tuple[Space, int]]:
        if side == "now":
            yield from ((self.node_pools.free[index], 1) for index in self.now)
        elif side == "empty":
            yield from ((self.node_pools.empty[index], 1) for index in self.ever)
        else:
            yield from ((offer(node), node.group_max or 0) for node in self.templates)


def offer(node: Node) -> Space:
    return Space(node.allocatable, node.slots)


class NodePools:
    """The nodes of a cluster with what is free on them and what would be if they were empty."""

    def __init__(self, node_list: NodeList) -> None:
        self.node_list = node_list
        self.free = [_space(node, used, len(pods)) for node, pods, used in node_list.hosts]
        self.empty = []
        for node, pods, _ in node_list.hosts:
            fixtures = [pod.requests for pod in pods if pod.is_fixture]
            self.empty.append(_space(node, sum_amounts(fixtures), len(fixtures)))
        self._groups: dict[tuple[tuple[str, ...], bool], list[list[int]]] = {}
        self._pools: dict[object, NodePool] = {}
        # Anti-affinity terms of bound pods by the namespace they mean; `None` where a selector decides.
        self._apart: defaultdict[str | None, set[PodAffinityTerm]] = defaultdict(set)
        for _, pods, _ in node_list.hosts:
            for term in (term for pod in pods for term in pod.affinity.apart):
                for namespace in term.namespaces if term.namespace_selector is None else (None,):
                    self._apart[namespace].add(term)

    def pool(self, pod: UnboundPod) -> NodePool:
        """The nodes that labels, taints, names and features leave to a pod."""
        key = (pod.placement.identity, pod.tolerations, pod.features, pod.volumes)
        if key not in self._pools:
            now: list[int] = []
            ever: list[int] = []
            for group in self._alike_hosts(pod):
                node = self.node_list.hosts[group[0]].node
                if not pod.features <= node.features:
                    continue
                if placement_refusal(pod, node) is None and not volume_refusals(pod, node):
                    now += group
                if is_eligible(pod, node):
                    ever += group
            templates = tuple(node for node in self.node_list.templates if is_eligible(pod, node))
            self._pools[key] = NodePool(self, tuple(now), tuple(ever), templates)
        return self._pools[key]

    def _alike_hosts(self, pod: UnboundPod) -> list[list[int]]:
        """The hosts in groups that are one to the pod."""
        keys = tuple(sorted(pod.placement.keys if pod.volumes is None else pod.placement.keys | pod.volumes.keys))
        by_name = pod.placement.looks_at_names or (pod.volumes is not None and pod.volumes.looks_at_names)
        if (keys, by_name) not in self._groups:
            groups: defaultdict[object, list[int]] = defaultdict(list)
            for index, (node, _, _) in enumerate(self.node_list.hosts):
                values = tuple(node.labels.get(key) for key in keys)
                name = node.name if by_name else None
                groups[values, name, node.taints, node.is_cordoned, node.features].append(index)
            self._groups[keys, by_name] = list(groups.values())
        return self._groups[keys, by_name]

    def open_hosts(self, pod: UnboundPod) -> Sequence[int]:
        """The hosts of the pool that no other pod keeps this one from, by affinity, spread, port or disk."""
        hosts = self.pool(pod).now
        if not (pod.affinity or pod.constraints or pod.ports or pod.disks or self.is_repelled(pod)):
            return hosts
        spread, affinity = balances(pod, self.node_list), affinity_state(pod, self.node_list)
        weightless, nodes = pod._replace(requests={}), self.node_list.hosts
        return [index for index in hosts if not host_refusals(weightless, nodes[index], spread, affinity)]

    def is_repelled(self, pod: UnboundPod) -> bool:
        """Whether a bound pod wants to be apart from this one."""
        labels = self.node_list.namespaces.get(pod.namespace, {})
        return any(
            term.matches(pod.namespace, pod.labels, labels)
            for namespace in (pod.namespace, None)
            for term in self._apart.get(namespace, ())
        )

    @cached_property
    def only_fixtures(self) -> NodeList:
        """The nodes with nothing but the pods that belong to them, and of their anti-affinity what is sure."""

        def fixtures_of(host: NodeInfo) -> Iterator[BoundPod]:
            for pod in host.pods:
                if pod.is_fixture and not pod.is_leaving:
                    sure = tuple(term for term in pod.affinity.apart if term.is_plain)
                    yield pod._replace(affinity=pod.affinity._replace(apart=sure))

        hosts = tuple(host._replace(pods=tuple(fixtures_of(host))) for host in self.node_list.hosts)
        return self.node_list._replace(hosts=hosts)

    @cached_property
    def one_node_keys(self) -> frozenset[str]:
        """The labels by which every node that has one is told from all others."""
        hosts = self.node_list.hosts
        counts = Counter(item for host in hosts for item in host.node.labels.items())
        shared = {key for (key, _), count in counts.items() if count > 1}
        return frozenset({HOSTNAME, *(key for key, _ in counts)} - shared)

    @cached_property
    def common_keys(self) -> frozenset[str]:
        """The labels that every node has, those of node groups too."""
        nodes = (*(host.node for host in self.node_list.hosts), *self.node_list.templates)
        return (
            frozenset.intersection(*(frozenset({HOSTNAME, *node.labels}) for node in nodes)) if nodes else frozenset()
        )

    def count_now(self, pod: UnboundPod, enough: int | None = None) -> int:
        """How many copies fit next to what is running, counted until there are `enough`."""
        pool, most = self.pool(pod), most_per_node(pod, self.common_keys if pod.affinity.apart else ())
        hosts = self.open_hosts(pod)
        if hosts is pool.now:
            names = scarce_first(pod.requests)
            return pool.table("now", names).count(tuple(pod.requests[name] for name in names), most, enough)
        return sum(self.free[index].holds(pod.requests, most) for index in hosts)

    def count_ever(self, pod: UnboundPod) -> tuple[int, int]:
        """How many copies fit on empty nodes, and on those that node groups may add."""
        names = scarce_first(pod.requests)
        amounts = tuple(pod.requests[name] for name in names)
        pool, most = self.pool(pod), most_per_node(pod, self.common_keys if pod.affinity.apart else ())
        return pool.table("empty", names).count(amounts, most), pool.table("new", names).count(amounts, most)


def scarce_first(requests: Amounts) -> tuple[str, ...]:
    """The names of resources with the scarce ones, devices, first."""
    return tuple(sorted(requests, key=lambda name: ("/" not in name, name)))


def is_eligible(pod: UnboundPod, node: Node) -> bool:
    """Whether a node is for the pod once it is uncordoned and over the troubles that taint it for a while."""
    healthy = node._replace(is_cordoned=False, taints=tuple(t for t in node.taints if t.key not in TEMPORARY_TAINTS))
    if not pod.features <= node.features or placement_refusal(pod, healthy) is not None:
        return False
    return all(reason == NO_SPACE for reason in volume_refusals(pod, node))  # storage may become free


def volume_refusals(pod: UnboundPod, node: Node) -> list[str]:
    """Why the pod's volumes cannot be there."""
    return [] if pod.volumes is None else pod.volumes.refusals(node.name, node.labels)


def most_per_node(pod: UnboundPod, keys: Collection[str] = (HOSTNAME,)) -> int | None:
    """How many copies of a pod one node takes at most: one that claims something of the node is alone there. `keys`:
    labels that all nodes have, so that none is outside of every domain."""
    alone = any(
        term.topology_key in keys and term.matches(pod.namespace, pod.labels, {}) for term in pod.affinity.apart
    )
    return 1 if alone or pod.ports or volumes.disks_clash(pod.disks, pod.disks) else None


def can_share(pod: UnboundPod, other: UnboundPod) -> bool:
    """Whether the ports and disks of two pods leave them on one node."""
    return not node_info.ports_clash(pod.ports, other.ports) and not volumes.disks_clash(pod.disks, other.disks)


def _space(node: Node, used: Amounts, pods: int) -> Space:
    return Space({name: amount - used.get(name, 0) for name, amount in node.allocatable.items()}, node.slots - pods)
