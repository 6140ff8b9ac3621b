"""Room for a whole demand: how many copies of a pod the cluster holds now, and could ever hold.

Exact for copies of one pod and for a leader with identical workers, by labels, taints, resources, pod slots, ports
and disks. What copies ask of each other (affinity, spreading) only makes less room: *never* stands, and the answer
says that it was not modeled. An empty node still carries the pods that belong to it, those of DaemonSets and static
ones. Some pods no node ever takes although there is room: for want of a free port, or of a domain for a whole gang.

How many copies of a pod the nodes hold, prepared for thousands of questions about the same nodes.

Nodes that look alike to a pod are checked once, and what they have left is kept in tables from which a count is read
with few comparisons.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

from gpuflow.checker.nodes import node_info, volumes
from gpuflow.checker.nodes.filters import affinity_state, balances, host_refusals, placement_refusal
from gpuflow.checker.nodes.node_info import (
    NO_FEATURES,
    TEMPORARY_TAINTS,
    Amounts,
    BoundPod,
    Node,
    NodeInfo,
    NodeList,
    UnboundPod,
    as_quantity,
    sum_amounts,
)
from gpuflow.checker.nodes.pod_affinity import Affinity, PodAffinityTerm
from gpuflow.checker.nodes.volumes import NO_SPACE
from gpuflow.quantity import Quantity

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


def is_kept_out_for_good(node_pools: NodePools, pod: UnboundPod) -> bool:
    """Whether every node for the pod is closed to it for good, or no pod can be one that it follows."""
    if pod.affinity.follows_nobody:
        return True
    ever = node_pools.pool(pod).ever
    return bool(ever) and not hosts_not_closed(node_pools, pod)


def hosts_not_closed(node_pools: NodePools, pod: UnboundPod) -> Sequence[int]:
    """The nodes for the pod that have the labels by which it is spread or follows others, and no pod that stays and
    keeps it out."""
    ever = node_pools.pool(pod).ever
    if not (pod.ports or pod.affinity or pod.constraints or node_pools.is_repelled(pod)):
        return ever
    apart = tuple(term for term in pod.affinity.apart if term.is_plain)
    hosts, keys = node_pools.only_fixtures.hosts, {each.topology_key for each in pod.constraints}
    keys = keys.union(term.topology_key for term in pod.affinity.together) - {HOSTNAME}
    state = affinity_state(pod._replace(affinity=Affinity((), apart)), node_pools.only_fixtures)

    def keeps_out(host: NodeInfo) -> bool:
        labels = host.node.labels
        taken = any(node_info.ports_clash(pod.ports, there.ports) for there in host.pods)
        return taken or not labels.keys() >= keys or (state is not None and state.refusal(labels) is not None)

    return [index for index in ever if not keeps_out(hosts[index])]


def gang_has_no_domain(node_pools: NodePools, pod: UnboundPod, pods: int, led: Iterable[int] = ()) -> bool:
    """Whether the pods of a gang must all be in one domain (a rack, a zone), and none is large enough when empty; or
    each in another, and there are too few.

    The first goes anywhere, since it means itself; all others follow it, or another pod that they mean: one that runs
    now, or that may come to be on the nodes `led`.
    """
    if pods == 1:
        return False
    hosts, most = node_pools.node_list.hosts, most_per_node(pod)
    labels = node_pools.node_list.namespaces.get(pod.namespace, {})
    open_hosts = hosts_not_closed(node_pools, pod)

    def held_by(key: str) -> Counter[str | None]:
        held: Counter[str | None] = Counter()
        for index in open_hosts:
            held[hosts[index].node.labels.get(key)] += node_pools.empty[index].holds(pod.requests, most)
        return held

    for term in pod.affinity.apart:
        if term.is_plain and term.matches(pod.namespace, pod.labels, labels):
            held = held_by(term.topology_key)
            if held.pop(None, 0) + sum(map(bool, held.values())) < pods:
                return True
    leaders = (*led, *leading_hosts(node_pools.node_list, pod))
    for term in pod.affinity.together:
        if term.matches(pod.namespace, pod.labels, labels):
            held = held_by(term.topology_key)
            del held[None]
            entered = {hosts[index].node.labels.get(term.topology_key) for index in leaders}
            others = (count for domain, count in held.items() if domain not in entered)
            if sum(held[domain] for domain in entered) + max(others, default=0) < pods:
                return True
    return False


def leading_hosts(node_list: NodeList, pod: UnboundPod) -> Iterator[int]:
    """The nodes where a pod runs that all affinity terms of this one mean."""
    terms = [term.merge_namespaces(node_list.namespaces) for term in pod.affinity.together]
    for index, host in enumerate(node_list.hosts if terms else ()):
        if any(all(term.matches(there.namespace, there.labels, {}) for term in terms) for there in host.pods):
            yield index


RoomStatus = Literal["now", "wait", "never"]


@dataclass(frozen=True, slots=True)
class Capacity:
    """How many copies of a pod fit, node by node; nodes that take none are left out."""

    now: dict[str, int]
    empty: dict[str, int]
    """When nothing else runs there, on nodes that are cordoned or unwell today too."""
    new: dict[str, int]
    """On all the nodes that a node group may add, by the name of its template."""


@dataclass(frozen=True, slots=True)
class Room:
    """Whether so many copies fit at the same time."""

    verdict: RoomStatus
    copies: int
    now: int
    """How many fit next to what runs; not counted beyond `copies`."""
    empty: int
    """How many fit on the nodes there are, when nothing else runs on them."""
    new: int
    """How many more fit on nodes that node groups may add."""
    unknown: tuple[str, ...]
    """What the scheduler also considers and this count does not."""


class LargestOffer(NamedTuple):
    """The most of a resource that one node has to give, against what a pod asks of it."""

    asked: Quantity
    largest: Quantity
    node: str


@dataclass(frozen=True, slots=True)
class CapacityHint:
    """What to know of a pod that is too much for any node."""

    eligible: tuple[str, ...]
    """The nodes and node groups that are for the pod by labels, taints and names."""
    refusals: dict[str, int]
    """Why the other nodes are not, in the scheduler's words, with their number."""

    closest: str | None
    """The eligible node that falls short in the fewest resources."""
    shortfalls: dict[str, LargestOffer]
    """What the closest node has too little of."""


@dataclass(frozen=True, slots=True)
class Fragmentation:
    """How much of what is free cannot be used because it lies in pieces."""

    placeable: int
    """Pods that fit when each node is asked on its own."""
    whole: int
    """Pods that would fit if all that is free were on one node."""


def capacity_in(node_pools: NodePools, pod: UnboundPod) -> Capacity:
    """How many copies of a pod each node takes."""
    pool, most, hosts = node_pools.pool(pod), most_per_node(pod), node_pools.node_list.hosts

    def count_copies(indices: Iterable[int], spaces: Sequence[Space]) -> dict[str, int]:
        copies = {hosts[index].node.name: spaces[index].holds(pod.requests, most) for index in indices}
        return {name: count for name, count in sorted(copies.items()) if count}

    new = {node.name: (node.group_max or 0) * offer(node).holds(pod.requests, most) for node in pool.templates}
    return Capacity(
        count_copies(node_pools.open_hosts(pod), node_pools.free),
        count_copies(pool.ever, node_pools.empty),
        {name: count for name, count in sorted(new.items()) if count},
    )


def room(node_pools: NodePools, pod: UnboundPod, copies: int = 1) -> Room:
    """Whether so many copies of a pod fit at once: a gang of identical pods, or what runs side by side."""
    now = node_pools.count_now(pod, copies)
    empty, new = node_pools.count_ever(pod)
    verdict, unknown = _verdict(now, empty + new, copies), _unknown(node_pools, copies, pod)
    return Room(verdict, copies, min(now, copies), empty, new, unknown)


def led_room(node_pools: NodePools, leader: UnboundPod, worker: UnboundPod, workers: int) -> Room:
    """Whether a leader and its identical workers fit at once; the numbers count the workers."""
    leading, working = set(node_pools.open_hosts(leader)), set(node_pools.open_hosts(worker))
    free = [(space, 1, index in leading, index in working) for index, space in enumerate(node_pools.free)]
    leading, working = set(node_pools.pool(leader).ever), set(node_pools.pool(worker).ever)
    there = [(space, 1, index in leading, index in working) for index, space in enumerate(node_pools.empty)]
    added = [
        (offer(node), node.group_max or 0, is_eligible(leader, node), is_eligible(worker, node))
        for node in node_pools.node_list.templates
    ]
    now, empty, ever = (_count_led(leader, worker, places) for places in (free, there, [*there, *added]))
    known, unknown = max(empty, 0), _unknown(node_pools, workers + 1, leader, worker)
    verdict = _verdict(now, ever, workers)
    return Room(verdict, workers, max(min(now, workers), 0), known, max(ever - known, 0), unknown)


def _count_led(leader: UnboundPod, worker: UnboundPod, places: Iterable[tuple[Space, int, bool, bool]]) -> int:
    """How many workers fit with the leader on the node where it takes least from them; -1: it fits on none."""
    most, shares = most_per_node(worker), can_share(leader, worker)
    total, loss = 0, None
    for space, nodes, may_lead, may_work in places:
        alone = space.holds(worker.requests, most) if may_work else 0
        total += nodes * alone
        if may_lead and nodes and space.holds(leader.requests):
            with_leader = space.with_pod(leader.requests).holds(worker.requests, most) if may_work and shares else 0
            loss = alone - with_leader if loss is None else min(loss, alone - with_leader)
    return -1 if loss is None else total - loss


def fragmentation(node_pools: NodePools, pod: UnboundPod, resource: str) -> Fragmentation:
    """How the free amount of a resource lies over the nodes that are for a pod, in pieces of what the pod asks."""
    piece = pod.requests.get(resource, 0)
    if not piece:
        asked = ", ".join(scarce_first(pod.requests)) or "nothing"
        raise ValueError(f"pod: asks for no {resource}; it asks for {asked}")
    free = [max(node_pools.free[index].free.get(resource, 0), 0) for index in node_pools.pool(pod).now]
    return Fragmentation(sum(amount // piece for amount in free), sum(free) // piece)


def capacity_hint(node_pools: NodePools, pod: UnboundPod) -> CapacityHint:
    """What the nodes that are for a pod have to offer, for one that is too much for each of them."""
    pool = node_pools.pool(pod)
    hosts = node_pools.node_list.hosts
    offers = [(hosts[index].node.name, node_pools.empty[index].free) for index in pool.ever]
    offers += [(node.name, node.allocatable) for node in pool.templates]
    names = scarce_first(pod.requests)

    def short(free: Mapping[str, int]) -> Iterator[str]:
        return (name for name in names if free.get(name, 0) < pod.requests[name])

    closest, free = min(offers, key=lambda each: sum(1 for _ in short(each[1])), default=("", {}))
    shortfalls = {
        name: LargestOffer(as_quantity(name, pod.requests[name]), as_quantity(name, free.get(name, 0)), closest)
        for name in (short(free) if offers else ())
    }
    eligible = set(pool.ever)
    refusals = Counter(
        placement_refusal(pod, host.node) or next(iter(volume_refusals(pod, host.node)), NO_FEATURES)
        for index, host in enumerate(hosts)
        if index not in eligible
    )
    names_of_nodes = tuple(sorted(name for name, _ in offers))
    return CapacityHint(names_of_nodes, dict(sorted(refusals.items())), closest or None, shortfalls)


def _verdict(now: int, ever: int, copies: int) -> RoomStatus:
    if now >= copies:
        return "now"
    return "wait" if ever >= copies else "never"


def _unknown(node_pools: NodePools, copies: int, *pods: UnboundPod) -> tuple[str, ...]:
    found = [each for pod in pods for each in node_pools.node_list.unknown(pod)]
    if copies > 1 and any(pod.affinity for pod in pods):
        found.append("what the copies' affinity and anti-affinity leave to each other")
    if copies > 1 and any(pod.constraints for pod in pods):
        found.append("what topology spread constraints leave to the copies")
    return tuple(dict.fromkeys(found))
