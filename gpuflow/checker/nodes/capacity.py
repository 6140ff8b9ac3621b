"""Room for a whole demand: how many copies of a pod the cluster holds now, and could ever hold.

Exact for copies of one pod and for a leader with identical workers, by labels, taints, resources, pod slots, ports
and disks. What copies ask of each other (affinity, spreading) only makes less room: *never* stands, and the answer
says that it was not modeled. An empty node still carries the pods that belong to it, those of DaemonSets and static
ones. Some pods no node ever takes although there is room: for want of a free port, or of a domain for a whole gang.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from gpuflow.checker.nodes import node_info
from gpuflow.checker.nodes.amounts import as_quantity
from gpuflow.checker.nodes.filters import affinity_state, placement_refusal
from gpuflow.checker.nodes.node_info import NO_FEATURES, NodeInfo, NodeList, UnboundPod
from gpuflow.checker.nodes.node_pools import (
    HOSTNAME,
    NodePools,
    Space,
    can_share,
    is_eligible,
    most_per_node,
    offer,
    scarce_first,
    volume_refusals,
)
from gpuflow.checker.nodes.pod_affinity import Affinity
from gpuflow.quantity import Quantity


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
