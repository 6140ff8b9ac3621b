"""How often KFP starts the pod of a step again, and for how long it goes on doing so.

KFP's retry has a limit and a backoff, and no policy: which ends of a pod are repeated, Argo's settings decide. What the
supervisor does beside it stands in `gpuflow.pod.restarts`, what a user is told about it in `retry_notes`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from gpuflow.pod.restarts import MOST, Restarts, longest_wait, pods_again, unlimited_wait
from gpuflow.site import Site
from gpuflow.spec.policies import Backoff, Retry
from gpuflow.spec.step import Step

DAY = 86400
LONGEST_ATTEMPT = 30 * DAY
"""How long an attempt without a timeout is given."""
LEAST_DURATION = 3650 * DAY
"""How long a step is retried at least, counted from when its first pod was made: pods wait for quota and for nodes."""
LONGEST_WAIT = 365 * DAY
"""No wait that grows is longer than this."""


def restarts_at(site: Site) -> Restarts:
    """How the Kubeflow of a site starts a step again."""
    return "always" if site.engine("kubeflow").retry == "always" else "unknown"


def retry_policy(step: Step, site: Site, restarts: Restarts, deadline: int | None) -> Any | None:
    """The task's retry policy; None: KFP is not asked for another pod. `deadline`: when the kubelet ends a pod.

    `backoffMaxDuration` counts from the moment at which the first pod was made, not from its failure: whatever KFP's
    own hour has passed is never retried, and a retry is killed when it ends. So it is always written, long enough for
    every attempt to wait for its node and to reach the kubelet's deadline.
    """
    again = pods_again(step, site, restarts)
    if step.retry is None or not again or step.gang is not None:
        return None  # attempts of a gang are its launcher's
    start, factor = written_backoff(step.retry, again)
    longest = (deadline or LONGEST_ATTEMPT) + min(LONGEST_WAIT, longest_wait(step.retry, again))
    total = min(MOST, max(LEAST_DURATION, (again + 1) * longest))
    return _policy(again, start, factor, total)


@lru_cache(maxsize=1024)
def _policy(again: int, start: int, factor: int, total: int) -> Any:
    """The message, one for all steps that retry alike: whoever wants to change it copies it."""
    from google.protobuf import duration_pb2

    from gpuflow.targets.kubeflow.messages import ir  # loads kfp, which whoever asks for the waits alone may not have

    return ir.PipelineTaskSpec.RetryPolicy(
        max_retry_count=again,
        backoff_duration=duration_pb2.Duration(seconds=start),
        backoff_factor=factor,
        backoff_max_duration=duration_pb2.Duration(seconds=total),
    )


def written_backoff(retry: Retry, again: int) -> tuple[int, int]:
    """The first wait in seconds, and the factor by which waits grow. KFP knows no longest wait.

    Where the waits would grow beyond the longest that the step allows, all of them are as long as the first: that no
    wait is longer is what the step promises, and how fast they grow is not.
    """
    backoff = retry.backoff
    if backoff is None:
        return 0, Backoff().factor
    return backoff.start.seconds, 1 if is_flattened(retry, again) else backoff.factor


def is_flattened(retry: Retry, again: int) -> bool:
    """Whether the waits before so many pods would grow beyond the longest that is allowed."""
    backoff = retry.backoff
    if backoff is None or backoff.factor == 1:
        return False
    most = LONGEST_WAIT if backoff.max is None else min(LONGEST_WAIT, backoff.max.seconds)
    return unlimited_wait(backoff, again) > most
