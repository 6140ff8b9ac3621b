"""Queues and nodes together: Kueue gives quota and sends a pod to the nodes of a flavor, then it needs room there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpuflow.checker.contention.concurrency import Concurrency
from gpuflow.checker.hints.trials import Trials
from gpuflow.checker.outcome import Outcome, merge, outcome_of
from gpuflow.checker.pipeline.mixed_gangs import mixed_gang_outcome
from gpuflow.checker.pipeline.nodes.claims import claim_outcome
from gpuflow.checker.pipeline.nodes.devices import read_devices
from gpuflow.checker.pipeline.nodes.findings import node_outcome
from gpuflow.checker.pipeline.nodes.mounted_claims import MountedClaims
from gpuflow.checker.pipeline.nodes.pending import read_pending_pods
from gpuflow.checker.pipeline.nodes.verdicts import NodeVerdicts
from gpuflow.checker.pipeline.pod_groups import pod_groups
from gpuflow.checker.pipeline.queues.findings import queue_outcome
from gpuflow.checker.pipeline.queues.requests import UNQUEUED
from gpuflow.checker.pipeline.queues.sent_pods import SentPods, sent_pods
from gpuflow.checker.pipeline.queues.setup import read_setup
from gpuflow.checker.pipeline.queues.verdicts import QueueVerdicts
from gpuflow.checker.pipeline.stuck_on_flavor import stuck_on_flavor
from gpuflow.checker.quota.namespace import NamespacePolicy, StepAdmission
from gpuflow.checker.rules.later_attempts import nodes_avoided
from gpuflow.checker.snapshot.prepared import PreparedCluster
from gpuflow.checker.snapshot.unmodeled_kinds import makers_of_nodes
from gpuflow.demands import Demand


class Home(NamedTuple):
    """A namespace to which pods go: what it says to them, and what of the demand goes there."""

    prepared: PreparedCluster
    demand: Demand
    policy: NamespacePolicy
    admissions: Sequence[StepAdmission]


def placement_outcome(
    demand: Demand,
    homes: Sequence[Home],
    runs: int,
    claims: MountedClaims | None = None,
    trials: Trials | None = None,
) -> Outcome:
    """What queues and nodes say to the whole pipeline, in whatever namespaces; nothing where the snapshot has neither.

    Without `trials` only the verdict is asked for: what it costs to find a way out is spared.
    """
    prepared = homes[0].prepared
    cluster, namespace = prepared.cluster, prepared.namespace
    node_pools, setup = prepared.node_pools, read_setup(cluster, *(each.prepared.namespace for each in homes))
    if node_pools is None and setup is None:
        return Outcome()
    pending_pods = [] if node_pools is None else read_pending_pods(cluster, node_pools)
    repelling = node_pools is not None and any(
        pod.affinity.apart for host in node_pools.node_list.hosts for pod in host.pods
    )
    repelling = repelling or any(each.pod.affinity.apart for each in pending_pods)
    groups = [
        group
        for each in homes
        for group in pod_groups(each.demand, each.policy, each.admissions, each.prepared.namespace, by_labels=repelling)
    ]
    concurrency, makers = Concurrency(demand), makers_of_nodes(cluster)
    devices = None
    if node_pools is not None and len(homes) == 1:
        devices = read_devices(cluster, namespace, node_pools, groups, pending_pods, concurrency, runs)
        node_pools = node_pools if devices is None else devices.node_pools
    queue_verdicts = None if setup is None else QueueVerdicts(setup, groups, concurrency, runs)
    parts = [] if queue_verdicts is None else [queue_outcome(demand, queue_verdicts, is_trial=trials is None)]
    if node_pools is not None:
        sent = [
            (pod_group, (UNQUEUED,) if queue_verdicts is None else queue_verdicts.assignments(pod_group))
            for pod_group in groups
        ]
        share = None if queue_verdicts is None else queue_verdicts.share
        avoided = nodes_avoided(demand)
        others = SentPods([], {})
        if queue_verdicts is not None:
            others = sent_pods(
                queue_verdicts.kueue,
                queue_verdicts.pending.workloads,
                queue_verdicts.setup.admitted,
                node_pools,
                pending_pods,
            )
        pending_pods += others.pods
        node_verdicts = NodeVerdicts(
            node_pools, sent, concurrency, runs, claims, share, pending_pods, avoided, others.most, devices
        )
        parts.append(node_outcome(demand, node_verdicts, sent, makers, trials))
        if queue_verdicts is not None and not makers and parts[-1].verdict != "never":
            parts.append(outcome_of(stuck_on_flavor(demand, queue_verdicts, node_verdicts), "never"))
        if claims is not None:
            parts.append(claim_outcome(demand, claims, node_verdicts, cluster))
    parts.append(mixed_gang_outcome(demand, groups, setup, None if makers else node_pools))
    return merge(parts)
