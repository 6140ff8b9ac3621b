"""Steps of which one surely gets a flavor without nodes: it stays Pending, and the run never ends.

Whichever step its queues admit first finds the quota as the snapshot shows it, or more. If each of them
would then get the first flavor of its list, and no node of that flavor can hold it, one is stuck in every order.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpuflow.checker.kueue.tree import QuotaNode
from gpuflow.checker.pipeline.nodes.verdicts import NodeVerdicts
from gpuflow.checker.pipeline.queues.requests import QueueRequest, root_of
from gpuflow.checker.pipeline.queues.verdicts import QueueVerdicts
from gpuflow.checker.wording import listed, where_of
from gpuflow.demands import Demand
from gpuflow.errors import Finding


def stuck_on_flavor(demand: Demand, queue_verdicts: QueueVerdicts, node_verdicts: NodeVerdicts) -> Iterator[Finding]:
    """One finding for each cohort, or queue without one, in which the first admitted step is stuck."""
    trees: dict[QuotaNode, list[QueueRequest]] = {}
    for request in queue_verdicts.requests:
        if not request.is_hopeless and request.cluster_queue is not None:
            trees.setdefault(root_of(queue_verdicts.kueue, request), []).append(request)
    for root, requests in trees.items():
        flavors = tuple(dict.fromkeys(name for each in requests for group in each.groups for name in group.flavors))
        if queue_verdicts.pending.below(root, flavors) is not None:
            continue  # somebody else may be admitted first
        firsts = [_first(each) for each in requests]
        steps = [step for each in requests for step in each.pod_group.steps]
        sure = any(demand.by_name[step].is_sure and demand.by_name[step].copies for step in steps)
        if sure and all(
            names is not None and _has_no_node(node_verdicts, each, names)
            for each, names in zip(requests, firsts, strict=True)
        ):
            names = ", ".join(dict.fromkeys(name for first in firsts for name in first or ()))
            yield Finding(
                "GF511",
                f"the run cannot finish: whichever of {listed(steps)} is admitted first gets quota of flavor {names}, "
                "whose nodes cannot hold it",
                where_of(demand, steps[0]),
                "keep them off that flavor with a node selector, or have nodes with the flavor's labels added",
            )


def _first(request: QueueRequest) -> tuple[str, ...] | None:
    """The flavors that it gets when nothing of the pipeline is admitted yet, if these are the first of their lists."""
    if request.found.verdict != "fit" or not all(group.stops_when_borrowing for group in request.groups):
        return None
    given = {name for flavors in request.found.pod_sets.values() for name in flavors.values()}
    firsts = tuple(dict.fromkeys(group.flavors[0] for group in request.groups if group.flavors))
    return firsts if given and given <= set(firsts) else None


def _has_no_node(node_verdicts: NodeVerdicts, request: QueueRequest, flavors: tuple[str, ...]) -> bool:
    own = [each for each in node_verdicts.verdicts if each.request.pod_group is request.pod_group]
    return any(each.verdict == "never" and each.request.assignment.flavors == flavors for each in own)
