"""Deadlines that count waiting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuflow.checker.report import LimitLine
from gpuflow.checker.wording import listed
from gpuflow.demands import Demand
from gpuflow.errors import Finding
from gpuflow.kubernetes.labels import QUEUE_LABEL


def deadline_counts_waiting(demand: Demand, lines: Sequence[LimitLine]) -> Iterator[Finding]:
    """A deadline while something may wait: it runs on in the queue, on every engine.

    A step's own timeout is the pod's activeDeadlineSeconds, which the kubelet counts from the start of the pod.
    """
    deadline = demand.deadline
    queued = [step.name for step in demand.steps if QUEUE_LABEL in step.pod["metadata"].get("labels", {})]
    short = [scope for scope in lines if scope.verdict == "may-queue"]
    if deadline is None or not (queued or short):
        return
    held = list(dict.fromkeys(name for scope in short for name in scope.witness))
    who = f"{listed(held)} may have to wait" if held else f"{listed(queued)} may wait in a queue"
    yield Finding(
        "GF552",
        f"the deadline of {deadline.text} keeps running while {who}",
        deadline.where,
        "allow for waiting in the deadline, or limit the steps with timeout, which counts only while a pod runs",
        severity="warning" if short else "note",
    )
