"""Why does it wait now? The checker's model, asked about one pod, workload, workflow or job of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuflow.checker.snapshot.validation import PreparedCluster
from gpuflow.cluster.kinds import Source
from gpuflow.site.model import Site
from gpuflow.why.answer import JOB, POD, WORKLOAD, Answer, Cause, answer_of
from gpuflow.why.pods import why_job, why_pod, why_workflow
from gpuflow.why.queues import workload_causes

__all__ = ["Answer", "Cause", "why"]


def why(kind: Source, body: Mapping[str, Any], ready: PreparedCluster, site: Site) -> Answer:
    """Why this object does not run now, and what would let it."""
    if kind is POD:
        return why_pod(body, ready)
    if kind is WORKLOAD:
        return answer_of(f"workload/{body['metadata']['name']}", ready.namespace, workload_causes(body, ready))
    return (why_job if kind is JOB else why_workflow)(body, ready, site)
