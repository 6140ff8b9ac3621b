"""A cluster's quota at one moment: the tree, who holds what, and the flavors there are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpuflow.checker.kueue.amounts import FlavorResource
from gpuflow.checker.kueue.flavors import Flavor
from gpuflow.checker.kueue.queues import ClusterQueue, Cohort
from gpuflow.checker.kueue.topology_tree import TopologyInventory, TopologyTree
from gpuflow.checker.kueue.tree import build_tree
from gpuflow.checker.kueue.workloads import Holder


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
        self._settle(each for each in holders if each.cluster_queue in queues)
        for holder in holders:
            node = self.nodes.get(holder.cluster_queue)
            if node is not None:
                node.add(holder.usage)
                self.holders.setdefault(holder.cluster_queue, []).append(holder)
        for name, amounts in (reserved or {}).items():
            node = self.nodes.get(name)
            if node is not None:
                lacking = {key: amount - node.usage.get(key, 0) for key, amount in amounts.items()}
                node.add({key: amount for key, amount in lacking.items() if amount > 0})

    def add(self, holder: Holder) -> None:
        self.nodes[holder.cluster_queue].add(holder.usage)
        self._use(holder, 1)

    def remove(self, holder: Holder) -> None:
        self.nodes[holder.cluster_queue].remove(holder.usage)
        self._use(holder, -1)

    def _use(self, holder: Holder, times: int) -> None:
        known = self.queues[holder.cluster_queue].flavors
        for each in holder.places:
            if self.trees is not None and each.flavor in self.trees and each.flavor in known:
                self.trees[each.flavor].use(each.domain, each.amounts, times)

    def _settle(self, holders: Iterable[Holder]) -> None:
        """Who holds a place from the beginning. A node that several flavors know is taken in all of them."""
        if self.trees is None:
            return
        by_node = [tree for tree in self.trees.values() if tree.is_by_node]
        for each in (place for holder in holders for place in holder.places):
            tree = self.trees.get(each.flavor)
            for one in () if tree is None else by_node if tree.is_by_node else (tree,):
                one.use(each.domain, each.amounts)


def _trees(flavors: Mapping[str, Flavor], inventory: TopologyInventory) -> dict[str, TopologyTree]:
    return {
        name: TopologyTree(flavor.topology, inventory.levels[flavor.topology], flavor, inventory)
        for name, flavor in flavors.items()
        if flavor.topology is not None and flavor.topology in inventory.levels
    }
