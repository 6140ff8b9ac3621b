"""How often KFP starts a failed step again, and for how long it goes on doing so."""

from __future__ import annotations

from typing import Any

from gpuflow.spec.policies import Backoff, Retry
from gpuflow.spec.step import Step

DAY = 86400
LONGEST_ATTEMPT = 30 * DAY
"""How long an attempt without a timeout is given."""


def retry_policy(step: Step, deadline: int | None) -> Any | None:
    """The task's retry policy, or None when a failure is final. `deadline`: after how long the kubelet ends a pod.

    `backoffMaxDuration` counts from the start of the first attempt, not from the failure: whatever KFP's own hour has
    passed is never retried, and a retry is killed when it ends. So it is always written, long enough for every attempt
    to reach the kubelet's deadline.
    """
    retry = step.retry
    if retry is None or not retry.after_failures:
        return None
    from google.protobuf import duration_pb2

    from gpuflow.targets.kubeflow.messages import ir  # loads kfp, which whoever asks for the waits alone may not have

    start, factor = _first_wait(retry)
    longest = deadline or LONGEST_ATTEMPT
    total = (retry.after_failures + 1) * longest + sum(waits(retry))
    return ir.PipelineTaskSpec.RetryPolicy(
        max_retry_count=retry.after_failures,
        backoff_duration=duration_pb2.Duration(seconds=start),
        backoff_factor=factor,
        backoff_max_duration=duration_pb2.Duration(seconds=total),
    )


def _first_wait(retry: Retry) -> tuple[int, int]:
    backoff = retry.backoff
    return (backoff.start.seconds, backoff.factor) if backoff else (0, Backoff().factor)


def waits(retry: Retry) -> list[int]:
    """The seconds KFP waits before each retry; it knows no longest wait."""
    start, factor = _first_wait(retry)
    return [start * factor**attempt for attempt in range(retry.after_failures)]
