"""Queues and nodes together: Kueue gives quota and sends a pod to the nodes of a flavor, then it needs room there."""

from __future__ import annotations

from collections.abc import Sequence

from gpuflow.check.attempts import nodes_avoided
from gpuflow.check.claims import open_claims
from gpuflow.check.outcome import Outcome, joined
from gpuflow.check.quotas import Judged, Surroundings
from gpuflow.check.strangers import makers_of_nodes
from gpuflow.check.whole.crowd import Crowd
from gpuflow.check.whole.kinds import kinds_of
from gpuflow.check.whole.lanes import DIRECT
from gpuflow.check.whole.oversold import oversold_waiters
from gpuflow.check.whole.queue_setup import read_setup
from gpuflow.check.whole.queueing import queueing
from gpuflow.check.whole.rooms import housing, read_nodes
from gpuflow.check.whole.seats import Seating
from gpuflow.check.whole.standings import Standings
from gpuflow.check.whole.waiters import read_waiters
from gpuflow.cluster import Cluster
from gpuflow.demand import Demand


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
