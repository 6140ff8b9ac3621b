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

Below = Callable[[QuotaNode, tuple[str, ...]], Competitors]
"""Who may be charged for some flavors in the queues below a node."""
MostCharged = Callable[[QuotaNode, FlavorResource], int | None]
"""The most that the pipeline's steps are charged at a node for a resource of a flavor; `None`: not known."""


class Level(NamedTuple):
    """One limit on the way up, and whether all that can ever be charged there is within it."""

    contention: Contention
    is_enough: bool


class CohortHeadroom(NamedTuple):
    """A resource of one flavor: there is room when no level refuses, or when the queue's own quota does not."""

    levels: list[Level]
    own: Level


def cohort_headroom(
    kueue: Kueue,
    request: QueueRequest,
    group: GroupRequest,
    below: Below,
    most_charged: MostCharged,
    pending: PendingBelow,
) -> Iterator[list[CohortHeadroom]]:
    """For each flavor that the search is sure to try, all resources of the request; no flavor without a cohort."""
    assert request.cluster_queue is not None
    leaf = kueue.snapshot.nodes[request.cluster_queue.name]
    if leaf.parent is None or group.own_quota_only:
        return

    def headroom(flavor: str, resource: str, amount: int) -> CohortHeadroom:
        key = flavor, resource

        def level(node: QuotaNode, room: int) -> Level:
            most, waiting = most_charged(node, key), pending(node, (flavor,))
            contention = Contention(
                request.pod_group.steps,
                {resource: amount},
                [Bin({resource: room})],
                below(node, (flavor,)),
                COUNT,
                pending=waiting,
                reaches_outside=True,
            )
            others = 0 if waiting is None else waiting.total(resource)
            return Level(contention, most is not None and most + others <= room)

        levels = [level(node, _let_through(leaf, height, key)) for height, node in enumerate(leaf.path())]
        # Where the cohort has given out more than it has, Kueue takes the difference from what the queue keeps.
        kept = max(0, min(leaf.local_available(key), leaf.available(key)))
        return CohortHeadroom(levels, level(leaf, kept))

    for flavor in group.flavors[:1] if group.first_flavor_only else group.flavors:
        yield [headroom(flavor, resource, amount) for resource, amount in group.asked.items()]


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
