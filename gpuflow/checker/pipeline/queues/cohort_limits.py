"""The limits on the way up a tree of quota, each with those who can use it up.

What a queue can still have is the least of what each level lets through: its own borrowing limit, that of every cohort
above it, and what the root has left. Steps of another queue weigh only on the levels that both queues share, and never
on quota that a lending limit keeps from everybody else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from gpuflow.checker.contention.bins import Bin
from gpuflow.checker.contention.competitors import Gathering
from gpuflow.checker.contention.proof import Contest
from gpuflow.checker.kueue import Kueue
from gpuflow.checker.kueue.amounts import UNLIMITED, FlavorResource, minus, plus
from gpuflow.checker.kueue.tree import NO_QUOTA, Node
from gpuflow.checker.pipeline.queues.requests import COUNT, Group, Lane, Waiting

Below = Callable[[Node, tuple[str, ...]], Gathering]
"""Who may be charged for some flavors in the queues below a node."""


class Shelter(NamedTuple):
    """A resource of one flavor: there is room when no level refuses, or when the queue's own quota does not."""

    levels: list[Contest]
    own: Contest


def shelters(kueue: Kueue, lane: Lane, group: Group, below: Below, waiting: Waiting) -> Iterator[list[Shelter]]:
    """For each flavor that a lane is sure to be offered, all resources it asks for; no flavor without a cohort."""
    assert lane.cluster_queue is not None
    leaf = kueue.snapshot.nodes[lane.cluster_queue.name]
    if leaf.parent is None or group.owned:
        return
    for flavor in group.flavors[:1] if group.stopping else group.flavors:
        yield [_shelter(leaf, lane, (flavor, name), amount, below, waiting) for name, amount in group.asked.items()]


def _shelter(leaf: Node, lane: Lane, key: FlavorResource, amount: int, below: Below, waiting: Waiting) -> Shelter:
    flavors, resource = (key[0],), key[1]

    def contest(node: Node, room: int) -> Contest:
        asked, bins, company = {resource: amount}, [Bin({resource: room})], below(node, flavors)
        return Contest(lane.kind.steps, asked, bins, company, COUNT, rivals=waiting(node, flavors))

    levels = [contest(node, _let_through(leaf, height, key)) for height, node in enumerate(leaf.path())]
    return Shelter(levels, contest(leaf, leaf.local_available(key)))


def _let_through(leaf: Node, height: int, key: FlavorResource) -> int:
    """What the level so far above a queue lets it have, with what the levels below keep for it."""
    path = leaf.path()
    node = path[height]
    kept = sum(each.local_available(key) for each in path[:height])
    if node.parent is None:
        return max(0, plus(kept, minus(node.subtree.get(key, 0), node.usage.get(key, 0))))
    limit = node.quotas.get(key, NO_QUOTA).borrowing
    if limit is None:
        return UNLIMITED
    local = node.local(key)
    lent = minus(minus(node.subtree.get(key, 0), local), max(0, minus(node.usage.get(key, 0), local)))
    return max(0, plus(plus(kept, node.local_available(key)), plus(lent, limit)))
