"""Steps that their Kueue queue can never admit, or does not admit as it stands, in Kueue's own words.

Only that is decided here, one step at a time. How a whole pipeline shares its queue is not answered yet, so a snapshot
with queues never makes a verdict *always*.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuflow.check.kueue import Kueue
from gpuflow.check.quotas import Judged
from gpuflow.cluster import Cluster, Manifest
from gpuflow.demand import Demand
from gpuflow.errors import Finding, GpuflowError
from gpuflow.pod.build import QUEUE_LABEL

QUEUE_KINDS = ("ClusterQueue", "LocalQueue", "ResourceFlavor", "Cohort")


def stuck(demand: Demand, cluster: Cluster, namespace: str, judged: Sequence[Judged]) -> Iterator[Finding]:
    """A finding for each queued step that its queue refuses for good."""
    manifests = [item for kind in QUEUE_KINDS for item in cluster.of(kind)]
    queued = [one for one in judged if QUEUE_LABEL in one.step.pod["metadata"].get("labels", {})]
    if not manifests or not queued:
        return
    kueue = _queues(cluster, manifests)
    for one in queued:
        found = kueue.assign(_workload(one, namespace))
        if found.verdict in ("never", "blocked"):
            top = one.step.name.split(".")[0]
            where = demand.pipeline.where("steps" if top in demand.pipeline.steps else "exit", top, key=True)
            queue = one.step.pod["metadata"]["labels"][QUEUE_LABEL]
            because = found.because if found.because != found.message else None
            hint = f"on an empty cluster: {because}" if because else "ask for less, or ask the owner of the queue"
            yield Finding(
                "GF507",
                f'step "{one.step.name}" waits in queue {queue} for ever',
                where,
                hint,
                kubernetes=found.message,
            )


def _queues(cluster: Cluster, manifests: Sequence[Manifest]) -> Kueue:
    try:
        return Kueue(
            flavors=cluster.bodies("ResourceFlavor") or (),
            cluster_queues=cluster.bodies("ClusterQueue") or (),
            local_queues=cluster.bodies("LocalQueue") or (),
            cohorts=cluster.bodies("Cohort") or (),
            admitted=cluster.bodies("Workload") or (),
            namespaces=cluster.bodies("Namespace") or (),
            limit_ranges=cluster.bodies("LimitRange") or (),
            runtime_classes=cluster.bodies("RuntimeClass"),
            admission_checks=cluster.bodies("AdmissionCheck"),
            topologies=cluster.bodies("Topology"),
        )
    except ValueError as refusal:
        raise GpuflowError(Finding("GF403", str(refusal), manifests[0].where, "fix the manifest")) from None


def _workload(one: Judged, namespace: str) -> Mapping[str, Any]:
    """The Workload that Kueue makes of a pod: one pod set, named main."""
    labels = one.step.pod["metadata"]["labels"]
    pod_set = {"name": "main", "count": one.step.pods, "template": {"spec": one.ever.pod["spec"]}}
    return {
        "metadata": {"name": one.step.name.replace(".", "-"), "namespace": namespace},
        "spec": {"queueName": labels[QUEUE_LABEL], "podSets": [pod_set]},
    }
