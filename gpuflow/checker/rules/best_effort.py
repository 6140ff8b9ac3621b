"""GPU pods that the kubelet ranks last: Kubernetes looks at cpu and memory alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuflow.checker.quota.namespace import StepAdmission
from gpuflow.checker.wording import listed, where_of
from gpuflow.demands import Demand
from gpuflow.errors import Finding
from gpuflow.kubernetes.admission.pod import read_pod
from gpuflow.kubernetes.admission.stored import quality_of_service

_WAY_OUT = "set cpu and memory in the step or in defaults; GPUs do not count here"


def best_effort(demand: Demand, admissions: Sequence[StepAdmission]) -> Iterator[Finding]:
    """Steps with GPUs whose pods, after the LimitRange's defaults, ask for neither cpu nor memory."""
    names = [one.step.name for one in admissions if one.ever.allowed and _has_devices(one) and _is_last(one)]
    if names:
        asks, pods = ("asks", "its pod is") if len(names) == 1 else ("ask", "their pods are")
        yield Finding(
            "GF551",
            f"{listed(names)} {asks} for GPUs but not for cpu or memory: {pods} BestEffort and the first to be evicted",
            where_of(demand, names[0]),
            _WAY_OUT if demand.kind == "Pipeline" else "request cpu and memory too; GPUs do not count here",
            severity="warning",
        )


def _has_devices(one: StepAdmission) -> bool:
    return any("/" in key for key in one.step.requests)


def _is_last(one: StepAdmission) -> bool:
    if one.step.requests.keys() & {"cpu", "memory"}:
        return False  # set by the step itself: no need to read what admission made of the pod
    return quality_of_service(read_pod(one.ever.pod)) == "BestEffort"
