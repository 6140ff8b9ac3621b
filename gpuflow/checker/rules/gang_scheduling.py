"""Gangs of a pipeline that nothing starts as a whole: what a reader says of documents of other tools, said of ours."""

from __future__ import annotations

from dataclasses import replace

from gpuflow.checker.outcome import Outcome
from gpuflow.cluster import Cluster
from gpuflow.demands import Demand
from gpuflow.demands.gang_scheduling import gangs_of, placed_one_by_one, starts_whole

DEFAULT_QUEUE = "default"
"""The LocalQueue that takes what names none."""
SAID_BETTER = ("GF522", "GF555")
"""The same with the nodes or the quota that the gangs would share."""
HINT = (
    "give it a queue where Kueue runs, which admits a gang whole, or a scheduler that starts it whole "
    "(kubernetes.scheduler); or see that no other gang runs beside it"
)


def with_gang_warnings(outcome: Outcome, demand: Demand, cluster: Cluster, namespace: str) -> Outcome:
    """The outcome, with a warning for each gang that may have to wait and that nothing starts all or none of.

    Where every pod always finds its place, no gang is ever half started.
    """
    if demand.pipeline is None or outcome.verdict in ("always", "never"):
        return outcome
    if any(finding.code in SAID_BETTER for finding in outcome.findings):
        return outcome
    if any(item.name == DEFAULT_QUEUE for item in cluster.of("LocalQueue", namespace)):
        return outcome  # Kueue takes in what names no queue, as a whole
    found = [
        placed_one_by_one(step, demand.where(step.name), HINT, overlaps=demand.overlap is not None)
        for step in gangs_of(demand)
        if not starts_whole(step)
    ]
    return replace(outcome, findings=(*outcome.findings, *found))
