"""A cluster's quota at one moment: the tree, who holds what, and the flavors there are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpuflow.checker.kueue.amounts import FlavorResource
from gpuflow.checker.kueue.flavors import Flavor
from gpuflow.checker.kueue.queues import ClusterQueue, Cohort
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
    ) -> None:
        """`reserved`: what each ClusterQueue says that it has reserved. More than its holders have belongs to somebody
        who is not shown, and whom nobody can preempt here."""
        self.flavors = flavors
        self.queues = queues
        self.nodes = build_tree(queues.values(), cohorts, active)
        self.holders: dict[str, list[Holder]] = {}
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

    def remove(self, holder: Holder) -> None:
        self.nodes[holder.cluster_queue].remove(holder.usage)
