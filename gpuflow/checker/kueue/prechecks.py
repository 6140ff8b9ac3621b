"""What stops a workload before its quota is looked at.

Mirrors sigs.k8s.io/kueue/pkg/workload.ValidateAdmissibility and pkg/cache/scheduler.clusterQueue.inactiveReason,
Kueue v0.19.2.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from gpuflow.checker.kueue.flavors import Flavor
from gpuflow.checker.kueue.queues import ClusterQueue, LocalQueue
from gpuflow.checker.kueue.reasons import InadmissibleReason, Refusal
from gpuflow.checker.kueue.requests import LimitSummary, limit_range_faults, request_faults
from gpuflow.checker.kueue.workloads import Workload
from gpuflow.kubernetes.objects import PodTemplate

GATE = "kueue.x-k8s.io/admission-gated-by"
CLAIMS_REFUSED = "KueueDRAIntegration feature does not support use of resource claims"
NAMESPACE_MISMATCH = "workload namespace doesn't match ClusterQueue selector"


class ClusterFacts(NamedTuple):
    """What is known of the cluster around the queues; `None` where nothing is."""

    flavors: Mapping[str, Flavor]
    cyclic: Collection[str]
    admission_checks: Mapping[str, bool] | None
    """The AdmissionChecks, and whether each is active."""
    topologies: Collection[str] | None


def workload_refusal(workload: Workload) -> Refusal | None:
    """Why the workload is not queued at all, by what it says itself."""
    if any("resourceClaimName" in pod_set.claims for pod_set in workload.pod_sets):
        return Refusal(InadmissibleReason.CLAIMS, CLAIMS_REFUSED)
    if not workload.is_active:
        return Refusal(InadmissibleReason.DEACTIVATED, "The workload is deactivated")
    gate = workload.annotations.get(GATE)
    return Refusal(InadmissibleReason.GATED, f"Admission is gated by: {gate}") if gate else None


def queue_refusal(name: str, queue: LocalQueue | None, cluster_queue: ClusterQueue | None) -> Refusal | None:
    """Why its LocalQueue has no usable ClusterQueue."""
    if queue is None:
        return Refusal(InadmissibleReason.NO_LOCAL_QUEUE, f"LocalQueue {name} doesn't exist")
    if queue.is_stopped:
        return Refusal(InadmissibleReason.LOCAL_QUEUE_STOPPED, f"LocalQueue {name} is inactive")
    if cluster_queue is None:
        return Refusal(InadmissibleReason.NO_CLUSTER_QUEUE, f"ClusterQueue {queue.cluster_queue} doesn't exist")
    return None


def inactive_reason(queue: ClusterQueue, known: ClusterFacts) -> str | None:
    """Why a ClusterQueue admits nothing, in the words of its Active condition, and `None` when it does."""
    if queue.is_terminating:
        return "Can't admit new workloads; clusterQueue is terminating"
    reasons = ["is stopped"] if queue.is_stopped else []
    missing = [name for name in queue.flavors if name not in known.flavors]
    if missing:
        reasons.append(f"references missing ResourceFlavor(s): {','.join(missing)}")
    if known.admission_checks is not None:
        names = sorted({check.name for check in queue.checks})
        unknown = [name for name in names if name not in known.admission_checks]
        resting = [name for name in names if not known.admission_checks.get(name, True)]
        if unknown:
            reasons.append(f"references missing AdmissionCheck(s): {','.join(unknown)}")
        if resting:
            reasons.append(f"references inactive AdmissionCheck(s): {','.join(resting)}")
    if known.topologies is not None:
        for name in queue.flavors:
            topology = known.flavors[name].topology if name in known.flavors else None
            if topology is not None and topology not in known.topologies:
                reasons.append(f'there is no Topology "{topology}" for TAS flavor "{name}"')
    if reasons:
        return f"Can't admit new workloads: {', '.join(reasons)}."
    if queue.cohort in known.cyclic:
        return f"Cohort {queue.cohort} is, or lies below, a cycle of cohorts."
    return None


def admissibility_refusal(
    workload: Workload,
    queue: ClusterQueue,
    labels: Mapping[str, str],
    templates: tuple[PodTemplate, ...],
    limits: LimitSummary,
) -> Refusal | None:
    """Why the scheduler refuses it before it looks for flavors."""
    if workload.check_states & {"Retry", "Rejected"}:
        return Refusal(InadmissibleReason.FAILED_CHECKS, "The workload has failed admission checks")
    if queue.selector is None or not queue.selector.matches(labels):
        return Refusal(InadmissibleReason.NAMESPACE, NAMESPACE_MISMATCH)
    places = [(template, f"spec.podSets[{index}].template.spec") for index, template in enumerate(templates)]
    faults = [fault for template, where in places for fault in request_faults(template, where)]
    if faults:
        return Refusal(InadmissibleReason.RESOURCES, f"resources validation failed: {_aggregate(faults)}")
    faults = [fault for template, where in places for fault in limit_range_faults(template, limits, where)]
    if faults:
        text = f"resources didn't satisfy LimitRange constraints: {_aggregate(faults)}"
        return Refusal(InadmissibleReason.LIMIT_RANGE, text)
    return None


def _aggregate(faults: list[str]) -> str:
    return faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]"
