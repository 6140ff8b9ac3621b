"""Queues and nodes together: Kueue gives quota and sends a pod to the nodes of a flavor, then it needs room there.

Gangs whose pods differ, such as a leader and its workers, are checked as a whole too: each part may fit, and all of
them never. Of some steps one surely gets a flavor without nodes: it stays Pending, and the run never ends. Whichever
step its queues admit first finds the quota as the snapshot shows it, or more. If each of them would then get the first
flavor of its list, and no node of that flavor can hold it, one is stuck in every order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuflow.checker.contention.concurrency import Concurrency
from gpuflow.checker.dra.plan import Group
from gpuflow.checker.hints.refusals import Trials
from gpuflow.checker.kueue.snapshot import QuotaNode
from gpuflow.checker.nodes.capacity import NodePools, led_room, room
from gpuflow.checker.nodes.filters import read_pending
from gpuflow.checker.pipeline.nodes.claims import claim_outcome
from gpuflow.checker.pipeline.nodes.findings import node_outcome
from gpuflow.checker.pipeline.nodes.mounted_claims import MountedClaims
from gpuflow.checker.pipeline.nodes.pending import SentPods, read_pending_pods, sent_pods
from gpuflow.checker.pipeline.nodes.verdicts import NodeVerdicts, read_devices
from gpuflow.checker.pipeline.pod_groups import POD_AFFINITIES, PodGroup, pod_groups
from gpuflow.checker.pipeline.queues.findings import queue_outcome
from gpuflow.checker.pipeline.queues.requests import UNQUEUED_ASSIGNMENT, QueueRequest
from gpuflow.checker.pipeline.queues.setup import Setup
from gpuflow.checker.pipeline.queues.verdicts import QueueVerdicts
from gpuflow.checker.report import Outcome, merge_outcomes, outcome_of
from gpuflow.checker.snapshot.missing_kinds import makers_of_nodes
from gpuflow.checker.snapshot.validation import NamespacePart
from gpuflow.core.errors import Finding, list_names
from gpuflow.demands import Demand


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
        queued = list(_unqueueable_gang(demand, name, queued_parts[name], setup))
        # Whoever looks after a gang may be anywhere.
        ranks = [group for _, group in queued_parts[name]]
        findings += queued or _unplaceable_gang(demand, name, ranks, setup, node_pools)
    return outcome_of(findings, "never")


def _unqueueable_gang(
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
        text = f'step "{name}" waits in queue {queue} forever: its pods fit one by one, but not all together'
        hint = "ask for less in it, or ask the owner of the queue"
        yield Finding("GF507", text, demand.where(demand.gangs[name][0].name), hint, kubernetes=found.message)


def gang_workload(name: str, parts: Sequence[tuple[str, PodGroup]], setup: Setup, queue: str) -> dict[str, Any]:
    """The Workload that Kueue makes of a gang: a pod set, with its name, for each part."""
    first, *others = (setup.workload(group, queue) for _, group in parts)
    pod_sets = [each["spec"]["podSets"][0] for each in (first, *others)]
    named = [{**each, "name": part} for each, (part, _) in zip(pod_sets, parts, strict=True)]
    metadata = {**first["metadata"], "name": name.replace(".", "-")}
    return {"metadata": metadata, "spec": {**first["spec"], "podSets": named}}


def _unplaceable_gang(
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
            demand.where(demand.gangs[name][0].name),
            "ask for less in it, or have nodes added",
        )


def stuck_steps(demand: Demand, queue_verdicts: QueueVerdicts, node_verdicts: NodeVerdicts) -> Iterator[Finding]:
    """One finding for each cohort, or queue without one, in which the first admitted step is stuck."""
    trees: dict[QuotaNode, list[QueueRequest]] = {}
    for request in queue_verdicts.requests:
        if not request.is_hopeless and request.cluster_queue is not None:
            trees.setdefault(queue_verdicts.root_of(request), []).append(request)
    for root, requests in trees.items():
        flavors = tuple(dict.fromkeys(name for each in requests for group in each.groups for name in group.flavors))
        if queue_verdicts.pending.requests_below(root, flavors) is not None:
            continue  # somebody else may be admitted first
        firsts = [_first_flavors(each) for each in requests]
        steps = [step for each in requests for step in each.pod_group.steps]
        sure = any(demand.by_name[step].is_sure and demand.by_name[step].copies for step in steps)
        if sure and all(
            names is not None and _has_no_node(node_verdicts, each, names)
            for each, names in zip(requests, firsts, strict=True)
        ):
            names = ", ".join(dict.fromkeys(name for first in firsts for name in first or ()))
            text = f"the run cannot finish: whichever of {list_names(steps)} is admitted first gets quota of flavor "
            text += f"{names}, whose nodes cannot hold it"
            hint = "keep them off that flavor with a node selector, or have nodes with the flavor's labels added"
            yield Finding("GF511", text, demand.where(steps[0]), hint)


def _first_flavors(request: QueueRequest) -> tuple[str, ...] | None:
    """The flavors that it gets when nothing of the pipeline is admitted yet, if these are the first of their lists."""
    if request.found.verdict != "fit" or not all(group.stops_when_borrowing for group in request.groups):
        return None
    given = {name for flavors in request.found.pod_sets.values() for name in flavors.values()}
    firsts = tuple(dict.fromkeys(group.flavors[0] for group in request.groups if group.flavors))
    return firsts if given and given <= set(firsts) else None


def _has_no_node(node_verdicts: NodeVerdicts, request: QueueRequest, flavors: tuple[str, ...]) -> bool:
    own = [each for each in node_verdicts.verdicts if each.request.pod_group is request.pod_group]
    return any(each.verdict == "never" and each.request.assignment.flavors == flavors for each in own)


def placement_outcome(
    demand: Demand,
    namespaces: Sequence[NamespacePart],
    node_pools: NodePools | None,
    setup: Setup | None,
    runs: int,
    claims: MountedClaims | None,
    trials: Trials | None,
) -> Outcome:
    """What queues and nodes say to the whole pipeline, in whatever namespaces.

    Without `trials` only the verdict is asked for: what it costs to find a way out is spared.
    """
    prepared = namespaces[0].prepared
    cluster, namespace = prepared.cluster, prepared.namespace
    pending_pods = [] if node_pools is None else read_pending_pods(prepared, node_pools)
    by_labels = node_pools is not None and any(
        pod.affinity.apart for host in node_pools.node_list.hosts for pod in host.pods
    )
    by_labels = by_labels or any(each.pod.affinity.apart for each in pending_pods)
    specs = [one.ever.pod["spec"] for each in namespaces for one in each.admissions]
    by_labels = by_labels or any(spec.get("topologySpreadConstraints") for spec in specs)
    by_labels = by_labels or any(POD_AFFINITIES & (spec.get("affinity") or {}).keys() for spec in specs)
    groups = [
        group
        for each in namespaces
        for group in pod_groups(each.demand, each.policy, each.admissions, each.prepared.namespace, by_labels=by_labels)
    ]
    concurrency, makers = Concurrency(demand), makers_of_nodes(cluster)
    devices: Mapping[PodGroup, Group] = {}
    if node_pools is not None and len(namespaces) == 1:
        node_pools, devices = read_devices(cluster, namespace, node_pools, groups, pending_pods, concurrency, runs)
    queue_verdicts = None if setup is None else QueueVerdicts(setup, groups, concurrency, runs)
    parts = [] if queue_verdicts is None else [queue_outcome(demand, queue_verdicts, is_trial=trials is None)]
    if node_pools is not None:
        sent = [
            (pod_group, (UNQUEUED_ASSIGNMENT,) if queue_verdicts is None else queue_verdicts.assignments(pod_group))
            for pod_group in groups
        ]
        share = None if queue_verdicts is None else queue_verdicts.share
        # Of each step that tries again on another node, how many nodes its last attempt keeps away from.
        avoided = {step.name: step.nodes_avoided for step in demand.steps if step.nodes_avoided}
        others = SentPods([], {})
        if queue_verdicts is not None:
            others = sent_pods(queue_verdicts.kueue, queue_verdicts.pending.workloads, node_pools, pending_pods)
        pending_pods += others.pods
        node_verdicts = NodeVerdicts(
            node_pools, sent, concurrency, runs, claims, share, pending_pods, avoided, others.most, devices
        )
        parts.append(node_outcome(demand, node_verdicts, sent, makers, trials))
        if queue_verdicts is not None and not makers and parts[-1].verdict != "never":
            parts.append(outcome_of(stuck_steps(demand, queue_verdicts, node_verdicts), "never"))
        if claims is not None:
            parts.append(claim_outcome(demand, claims, node_verdicts, cluster))
    parts.append(mixed_gang_outcome(demand, groups, setup, None if makers else node_pools))
    return merge_outcomes(parts)
