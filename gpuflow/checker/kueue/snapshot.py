"""A cluster's quota at one moment: the tree of quota, who holds what, and the flavors there are.

ClusterQueues are the leaves of the tree; cohorts lend between them what lending limits let out.

Mirrors sigs.k8s.io/kueue/pkg/cache/scheduler.available, potentialAvailable, addUsage and removeUsage, Kueue v0.19.2.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from gpuflow.checker.kueue.flavors import Flavor
from gpuflow.checker.kueue.reasons import FlavorResource, minus, plus
from gpuflow.checker.kueue.tas_flavor_snapshot import TopologyInventory, TopologyTree
from gpuflow.checker.kueue.workloads import ClusterQueue, Cohort, FlavorQuota, Holder

NO_QUOTA = FlavorQuota(0, None, None)


class QuotaNode:
    """A ClusterQueue or a cohort: its own quota, that of everything below it, and what is used of it."""

    __slots__ = ("cohorts", "height", "name", "parent", "queues", "quotas", "subtree", "usage")

    def __init__(self, name: str, quotas: Mapping[FlavorResource, FlavorQuota], parent: QuotaNode | None) -> None:
        self.name = name
        self.quotas = quotas
        self.parent = parent
        self.cohorts: list[QuotaNode] = []
        self.queues: list[QuotaNode] = []
        """ClusterQueues directly below that are active; the others still count in quota and usage."""
        self.height = 0
        self.subtree = {key: quota.nominal for key, quota in quotas.items()}
        self.usage: dict[FlavorResource, int] = {}

    def local_quota(self, key: FlavorResource) -> int:
        """Quota that the lending limit keeps from all others."""
        lending = self.quotas.get(key, NO_QUOTA).lending
        return 0 if lending is None else max(0, minus(self.subtree.get(key, 0), lending))

    def local_available(self, key: FlavorResource) -> int:
        return max(0, minus(self.local_quota(key), self.usage.get(key, 0)))

    def path(self) -> list[QuotaNode]:
        """This node and everything above it, the root last."""
        path = [self]
        while (above := path[-1].parent) is not None:
            path.append(above)
        return path

    def available(self, key: FlavorResource) -> int:
        """What is left for this node; below zero where more was admitted than there is now."""
        *below, root = self.path()
        left = minus(root.subtree.get(key, 0), root.usage.get(key, 0))
        for node in reversed(below):
            limit = node.quotas.get(key, NO_QUOTA).borrowing
            if limit is not None:
                local = node.local_quota(key)
                stored_in_parent = minus(node.subtree.get(key, 0), local)
                used_in_parent = max(0, minus(node.usage.get(key, 0), local))
                left = min(plus(minus(stored_in_parent, used_in_parent), limit), left)
            left = plus(node.local_available(key), left)
        return left

    def potential_available(self, key: FlavorResource) -> int:
        """The most this node could ever have, if nothing was in use."""
        *below, root = self.path()
        most = root.subtree.get(key, 0)
        for node in reversed(below):
            most = plus(node.local_quota(key), most)
            limit = node.quotas.get(key, NO_QUOTA).borrowing
            if limit is not None:
                most = min(plus(node.subtree.get(key, 0), limit), most)
        return most

    def borrowing_with(self, key: FlavorResource, amount: int) -> bool:
        return self.subtree.get(key, 0) < plus(self.usage.get(key, 0), amount)

    def is_within_nominal_in_resources(self, keys: Iterable[FlavorResource]) -> bool:
        return all(self.subtree.get(key, 0) >= self.usage.get(key, 0) for key in keys)

    def add_usage(self, usage: Mapping[FlavorResource, int]) -> None:
        for key, amount in usage.items():
            for node in self.path():
                local = node.local_available(key)
                node.usage[key] = plus(node.usage.get(key, 0), amount)
                if amount <= local:
                    break
                amount = minus(amount, local)

    def remove_usage(self, usage: Mapping[FlavorResource, int]) -> None:
        for key, amount in usage.items():
            for node in self.path():
                stored_in_parent = minus(node.usage.get(key, 0), node.local_quota(key))
                node.usage[key] = minus(node.usage.get(key, 0), amount)
                if stored_in_parent <= 0:
                    break
                amount = min(amount, stored_in_parent)

    def find_height_of_lowest_subtree_that_fits(self, key: FlavorResource, amount: int) -> tuple[int, bool]:
        """How high up the tree quota for so much more is found, and whether that is below the whole tree. The height is
        zero without borrowing, and that of the whole tree when nothing fits."""
        if self.parent is None or not self.borrowing_with(key, amount):
            return 0, self.parent is not None
        left = minus(amount, self.local_available(key))
        above = self.path()[1:]
        for node in above:
            if not node.borrowing_with(key, left):
                return node.height, node.parent is not None
            left = minus(left, node.local_available(key))
        return above[-1].height, False


def cyclic_cohorts(cohorts: Mapping[str, Cohort]) -> frozenset[str]:
    """The cohorts whose way up never ends."""
    ends: dict[str, bool] = {}
    for name in cohorts:
        way: dict[str, None] = {}
        while name in cohorts and name not in ends and name not in way:
            way[name] = None
            name = cohorts[name].parent
        is_cycle = name in way or not ends.get(name, True)
        ends.update(dict.fromkeys(way, not is_cycle))
    return frozenset(name for name, is_ending in ends.items() if not is_ending)


def build_tree(
    queues: Iterable[ClusterQueue], cohorts: Mapping[str, Cohort], active: Collection[str]
) -> dict[str, QuotaNode]:
    """The nodes of the ClusterQueues, tied together above; those below a cycle of cohorts are left out."""
    cyclic = cyclic_cohorts(cohorts)
    nodes: dict[str, QuotaNode] = {}
    order: list[QuotaNode] = []
    leaves: dict[str, QuotaNode] = {}
    for name in cohorts.keys() - cyclic:
        _cohort_node(name, cohorts, nodes, order)
    for queue in queues:
        if queue.cohort in cyclic:
            continue
        parent = _cohort_node(queue.cohort, cohorts, nodes, order) if queue.cohort else None
        leaf = leaves[queue.name] = QuotaNode(queue.name, queue.quotas, parent)
        if parent is not None:
            _accumulate_from_child(leaf)
            if queue.name in active:
                parent.queues.append(leaf)
    for node in reversed(order):
        # Those below come later in the order: their quota is complete.
        node.height = max((below.height + 1 for below in node.cohorts), default=min(len(node.queues), 1))
        if node.parent is not None:
            _accumulate_from_child(node)
    return leaves


def _accumulate_from_child(node: QuotaNode) -> None:
    assert node.parent is not None
    above = node.parent.subtree
    for key, amount in node.subtree.items():
        above[key] = plus(above.get(key, 0), minus(amount, node.local_quota(key)))


def _cohort_node(
    name: str, cohorts: Mapping[str, Cohort], nodes: dict[str, QuotaNode], order: list[QuotaNode]
) -> QuotaNode:
    """The node of a cohort, made with those above it when it is new; a cohort without an object has no quota."""
    way = []
    at = name
    while at and at not in nodes:
        way.append(at)
        at = cohorts[at].parent if at in cohorts else ""
    parent = nodes.get(at)
    for below in reversed(way):
        nodes[below] = QuotaNode(below, cohorts[below].quotas if below in cohorts else {}, parent)
        if parent is not None:
            parent.cohorts.append(nodes[below])
        order.append(nodes[below])
        parent = nodes[below]
    return nodes[name]


class Snapshot:
    """What the scheduler looks at. Trials take quota away and give it back; between calls nothing changes."""

    def __init__(
        self,
        flavors: Mapping[str, Flavor],
        queues: Mapping[str, ClusterQueue],
        cohorts: Mapping[str, Cohort],
        active: frozenset[str],
        holders: Iterable[Holder],
        reserved: Mapping[str, Mapping[FlavorResource, int]] | None = None,
        levels: Mapping[str, tuple[str, ...]] | None = None,
        inventory: TopologyInventory | None = None,
    ) -> None:
        """`reserved`: what each ClusterQueue says that it has reserved. More than its holders have belongs to somebody
        who is not shown, and whom nobody can preempt here. `levels`: of each Topology; `None` where they are not
        known. Without an `inventory` topologies are not followed to the nodes."""
        self.flavors = flavors
        self.queues = queues
        self.nodes = build_tree(queues.values(), cohorts, active)
        self.levels = levels
        self.trees = None if inventory is None else _trees(flavors, inventory)
        self.holders: dict[str, list[Holder]] = {}
        holders = tuple(holders)
        self._add_initial_tas_usage(each for each in holders if each.cluster_queue in queues)
        for holder in holders:
            node = self.nodes.get(holder.cluster_queue)
            if node is not None:
                node.add_usage(holder.usage)
                self.holders.setdefault(holder.cluster_queue, []).append(holder)
        for name, amounts in (reserved or {}).items():
            node = self.nodes.get(name)
            if node is not None:
                lacking = {key: amount - node.usage.get(key, 0) for key, amount in amounts.items()}
                node.add_usage({key: amount for key, amount in lacking.items() if amount > 0})

    def add_workload(self, holder: Holder) -> None:
        self.nodes[holder.cluster_queue].add_usage(holder.usage)
        self._update_tas_usage(holder, 1)

    def remove_workload(self, holder: Holder) -> None:
        self.nodes[holder.cluster_queue].remove_usage(holder.usage)
        self._update_tas_usage(holder, -1)

    def _update_tas_usage(self, holder: Holder, times: int) -> None:
        known = self.queues[holder.cluster_queue].flavors
        for each in holder.places:
            if self.trees is not None and each.flavor in self.trees and each.flavor in known:
                self.trees[each.flavor].update_tas_usage(each.domain, each.amounts, times)

    def _add_initial_tas_usage(self, holders: Iterable[Holder]) -> None:
        """Who holds a place from the beginning. A node that several flavors know is taken in all of them."""
        if self.trees is None:
            return
        by_node = [tree for tree in self.trees.values() if tree.is_by_node]
        for each in (place for holder in holders for place in holder.places):
            tree = self.trees.get(each.flavor)
            for one in () if tree is None else by_node if tree.is_by_node else (tree,):
                one.update_tas_usage(each.domain, each.amounts)


def _trees(flavors: Mapping[str, Flavor], inventory: TopologyInventory) -> dict[str, TopologyTree]:
    return {
        name: TopologyTree(flavor.topology, inventory.levels[flavor.topology], flavor, inventory)
        for name, flavor in flavors.items()
        if flavor.topology is not None and flavor.topology in inventory.levels
    }
