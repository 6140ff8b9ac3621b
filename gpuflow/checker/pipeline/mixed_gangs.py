"""Gangs whose pods differ, such as a leader and its workers, as a whole: each part may fit, and all of them never."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gpuflow.checker.nodes.capacity import led_room, room
from gpuflow.checker.nodes.fit import read_pending
from gpuflow.checker.nodes.node_pools import NodePools
from gpuflow.checker.outcome import Outcome, outcome_of
from gpuflow.checker.pipeline.pod_groups import PodGroup
from gpuflow.checker.pipeline.queues.setup import Setup
from gpuflow.checker.wording import where_of
from gpuflow.demands import Demand
from gpuflow.errors import Finding


def mixed_gang_outcome(
    demand: Demand, groups: Sequence[PodGroup], setup: Setup | None, node_pools: NodePools | None
) -> Outcome:
    """Gangs that no queue, or no set of nodes, ever holds whole."""
    group_of = {step: group for group in groups if not group.is_driver for step in group.steps}
    gangs = {
        name: [group_of[part.name] for part in parts]
        for name, parts in demand.gangs.items()
        if len(parts) > 1 and all(part.name in group_of for part in parts)
    }
    queued_parts = {
        name: [(part.pod_sets[0].name, group_of[part.name]) for part in demand.gangs[name] if not part.is_launcher]
        for name in gangs
    }
    findings: list[Finding] = []
    for name in gangs:
        queued = list(_never_queued(demand, name, queued_parts[name], setup))
        # Whoever looks after a gang may be anywhere.
        ranks = [group for _, group in queued_parts[name]]
        findings += queued or _never_placed(demand, name, ranks, setup, node_pools)
    return outcome_of(findings, "never")


def _never_queued(
    demand: Demand, name: str, parts: Sequence[tuple[str, PodGroup]], setup: Setup | None
) -> Iterator[Finding]:
    """Kueue makes one Workload of the gang, with one pod set for each part, and admits it whole."""
    queues = {None if setup is None else setup.queue_of(group) for _, group in parts}
    queue = queues.pop()
    if setup is None or queues or not queue or len(parts) < 2:
        return
    alone = [setup.kueue.assign(setup.workload(group, queue)).verdict for _, group in parts]
    if "never" in alone or "blocked" in alone:
        return  # reported for that part already
    found = setup.kueue.assign(gang_workload(name, parts, setup, queue))
    if found.verdict in ("never", "blocked"):
        yield Finding(
            "GF507",
            f'step "{name}" waits in queue {queue} forever: its pods fit one by one, but not all together',
            where_of(demand, demand.gangs[name][0].name),
            "ask for less in it, or ask the owner of the queue",
            kubernetes=found.message,
        )


def gang_workload(name: str, parts: Sequence[tuple[str, PodGroup]], setup: Setup, queue: str) -> dict[str, Any]:
    """The Workload that Kueue makes of a gang: a pod set, with its name, for each part."""
    first, *others = (setup.workload(group, queue) for _, group in parts)
    pod_sets = [each["spec"]["podSets"][0] for each in (first, *others)]
    named = [{**each, "name": part} for each, (part, _) in zip(pod_sets, parts, strict=True)]
    metadata = {**first["metadata"], "name": name.replace(".", "-")}
    return {"metadata": metadata, "spec": {**first["spec"], "podSets": named}}


def _never_placed(
    demand: Demand, name: str, members: Sequence[PodGroup], setup: Setup | None, node_pools: NodePools | None
) -> Iterator[Finding]:
    """A leader and its workers on the nodes, when nothing else runs there. Larger gangs are checked part by part."""
    if node_pools is None or len(members) != 2 or min(group.pods for group in members) != 1:
        return
    if setup is not None and any(setup.queue_of(group) for group in members):
        return  # the flavors of a queue decide on which nodes
    leader, workers = sorted(members, key=lambda group: group.pods)
    if any(room(node_pools, read_pending(group.pod), group.pods).verdict == "never" for group in members):
        return  # reported for that part already
    found = led_room(node_pools, read_pending(leader.pod), read_pending(workers.pod), workers.pods)
    if found.verdict == "never":
        holds = found.empty + found.new
        yield Finding(
            "GF506",
            f'step "{name}" fits on no set of nodes: with one pod of {leader.steps[0]} they hold {holds} of the '
            f"{workers.pods} pods of {workers.steps[0]}",
            where_of(demand, demand.gangs[name][0].name),
            "ask for less in it, or have nodes added",
        )
