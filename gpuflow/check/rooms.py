"""Steps that no node of the cluster can ever hold, in the scheduler's own words.

Only *never* is decided here. Whether steps that run side by side fit together is a packing question that is not
answered yet, so a snapshot with nodes never makes a verdict *always*.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuflow.check.nodes.fit import fit, read_pending
from gpuflow.check.nodes.whole import read_stock, room, way_out
from gpuflow.check.quotas import Judged
from gpuflow.cluster import Cluster
from gpuflow.demand import Demand
from gpuflow.errors import Finding, GpuflowError


def homeless(demand: Demand, cluster: Cluster, judged: Sequence[Judged]) -> Iterator[Finding]:
    """A finding for each step whose pod, or gang, fits on no node even when nothing else runs."""
    nodes = cluster.of("Node")
    if not nodes:
        return
    try:
        stock = read_stock([node.body for node in nodes], [pod.body for pod in cluster.of("Pod")])
    except ValueError as refusal:
        raise GpuflowError(Finding("GF403", str(refusal), nodes[0].where, "fix the manifest")) from None
    for one in judged:
        pod = read_pending(one.ever.pod)
        if room(stock, pod, one.step.pods).verdict != "never":
            continue
        out = way_out(stock, pod)
        short = ", ".join(
            f"{name}: asked {offer.asked}, the largest eligible node has {offer.largest}"
            for name, offer in out.shortfalls.items()
        )
        hint = short or "no node has the labels and taints the step asks for"
        top = one.step.name.split(".")[0]
        where = demand.pipeline.where("steps" if top in demand.pipeline.steps else "exit", top, key=True)
        sentence = fit(pod, stock.fleet).message
        yield Finding("GF506", f'step "{one.step.name}" fits on no node', where, hint, kubernetes=sentence)
