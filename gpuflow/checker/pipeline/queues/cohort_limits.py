"""The limits from a ClusterQueue up to its root cohort, each with the requests that can use it up.

What a queue can still have is the least of what each level lets through: its own borrowing limit, that of every cohort
above it, and what the root has left. Steps of another queue count only on the levels that both queues share, and never
on quota that a lending limit keeps from all others. A workload may take a part of what it asks from such quota and
the rest from what is lent, so that one which is too large for a level can still use it up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from gpuflow.checker.contention.bins import Bin
from gpuflow.checker.contention.competitors import Competitors
from gpuflow.checker.contention.proof import Contention
from gpuflow.checker.kueue import Kueue
from gpuflow.checker.kueue.amounts import UNLIMITED, FlavorResource, minus, plus
from gpuflow.checker.kueue.tree import NO_QUOTA, QuotaNode
from gpuflow.checker.pipeline.queues.requests import COUNT, GroupRequest, PendingBelow, QueueRequest

Below = Callable[[QuotaNode, FlavorResource], Competitors]
"""Who may be charged for a resource of a flavor in the queues below a node."""


class CohortHeadroom(NamedTuple):
    """A resource of one flavor: there is room when no level refuses, or when the queue's own quota does not."""

    levels: list[Contention]
    own: Contention


def cohort_headroom(
    kueue: Kueue, request: QueueRequest, group: GroupRequest, below: Below, pending: PendingBelow
) -> Iterator[list[CohortHeadroom]]:
    """For each flavor that the search is sure to try, all resources of the request; no flavor without a cohort."""
    assert request.cluster_queue is not None
    leaf = kueue.snapshot.nodes[request.cluster_queue.name]
    if leaf.parent is None or group.own_quota_only:
        return
    for flavor in group.flavors[:1] if group.first_flavor_only else group.flavors:
        yield [_headroom(leaf, request, (flavor, name), amount, below, pending) for name, amount in group.asked.items()]


def _headroom(
    leaf: QuotaNode, request: QueueRequest, key: FlavorResource, amount: int, below: Below, pending: PendingBelow
) -> CohortHeadroom:
    flavors, resource = (key[0],), key[1]

    def contention(node: QuotaNode, room: int) -> Contention:
        asked, bins, competitors = {resource: amount}, [Bin({resource: room})], below(node, key)
        return Contention(
            request.pod_group.steps,
            asked,
            bins,
            competitors,
            COUNT,
            pending=pending(node, flavors),
            reaches_outside=True,
        )

    levels = [contention(node, _let_through(leaf, height, key)) for height, node in enumerate(leaf.path())]
    # Where the cohort has given out more than it has, Kueue takes the difference from what the queue keeps.
    kept = max(0, min(leaf.local_available(key), leaf.available(key)))
    return CohortHeadroom(levels, contention(leaf, kept))


def _let_through(leaf: QuotaNode, height: int, key: FlavorResource) -> int:
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
