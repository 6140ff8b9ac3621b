"""Queues and nodes together: Kueue gives quota and sends a pod to the nodes of a flavor, then it needs room there."""

from __future__ import annotations

from collections.abc import Sequence

from gpuflow.checker.contention.concurrency import Crowd
from gpuflow.checker.outcome import Outcome, joined
from gpuflow.checker.pipeline.nodes.findings import housing, read_nodes
from gpuflow.checker.pipeline.nodes.pending import read_waiters
from gpuflow.checker.pipeline.nodes.verdicts import Seating
from gpuflow.checker.pipeline.pod_groups import kinds_of
from gpuflow.checker.pipeline.queues.findings import queueing
from gpuflow.checker.pipeline.queues.oversubscribed import oversold_waiters
from gpuflow.checker.pipeline.queues.requests import DIRECT
from gpuflow.checker.pipeline.queues.setup import read_setup
from gpuflow.checker.pipeline.queues.verdicts import Standings
from gpuflow.checker.quota.namespace import Judged, Surroundings
from gpuflow.checker.quota.volume_claims import open_claims
from gpuflow.checker.rules.later_attempts import nodes_avoided
from gpuflow.checker.snapshot.unmodelled_kinds import makers_of_nodes
from gpuflow.cluster import Cluster
from gpuflow.demands import Demand


def placing(
    demand: Demand, cluster: Cluster, namespace: str, around: Surroundings, judged: Sequence[Judged], runs: int
) -> Outcome:
    """What queues and nodes say to the whole pipeline; nothing where the snapshot has neither."""
    stock, setup = read_nodes(cluster), read_setup(cluster, namespace)
    if stock is None and setup is None:
        return Outcome()
    waiters = [] if stock is None else read_waiters(cluster)
    shunning = stock is not None and any(pod.affinity.apart for host in stock.fleet.hosts for pod in host.pods)
    shunning = shunning or any(each.pod.affinity.apart for each in waiters)
    kinds = kinds_of(demand, around, judged, namespace, by_labels=shunning)
    crowd = Crowd(demand)
    standings = None if setup is None else Standings(setup, kinds, crowd, runs)
    parts = [] if standings is None else [queueing(demand, standings)]
    if stock is not None:
        sent = [(kind, (DIRECT,) if standings is None else standings.routes(kind)) for kind in kinds]
        share = None if standings is None else standings.share
        claims, avoided = open_claims(cluster, namespace), nodes_avoided(demand)
        if standings is not None:
            waiters += oversold_waiters(standings.kueue, standings.line.candidates, stock)
        seating = Seating(stock, sent, crowd, runs, claims, share, waiters, avoided)
        parts.append(housing(demand, seating, sent, makers_of_nodes(cluster)))
    return joined(parts)
