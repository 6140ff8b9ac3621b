"""The two retry budgets in Argo's words.

Argo's expression sees the number of retries so far and the last attempt, never a count per class. A step whose budgets
the supervisor counts says when it is over by the final exit code, so Argo retries everything else. For any other step
one flat expression stands in: interruptions eat into what is left for failures, never the other way round.
"""

from __future__ import annotations

from typing import Any

from gpuflow.spec.policies import Backoff, Retry

FINAL = 79
CODE = "asInt(lastRetry.exitCode)"
INTERRUPTED = f"(lastRetry.status == 'Error' || {CODE} in [75, 143])"
"""A deleted pod is an Error without an exit code, or ends with 143; 75 is the supervisor's own word for it."""

OUT_OF_MEMORY = "lastRetry.message contains 'OOMKilled'"
"""Nobody's exit code: the kernel ended it, so a step's own lists of codes say nothing about it."""
KILLED = 137


def retry_strategy(retry: Retry | None, *, counted: bool) -> dict[str, Any] | None:
    """The template's retryStrategy; `counted` when the supervisor keeps the budgets."""
    if retry is None or not retry.attempts:
        return None
    strategy: dict[str, Any] = {
        "limit": str(retry.attempts),
        "retryPolicy": "Always",
        "expression": f"{CODE} != {FINAL}" if counted else _flat(retry),
    }
    if retry.backoff is not None:
        strategy["backoff"] = _backoff(retry.backoff)
    if retry.other_node:
        strategy["affinity"] = {"nodeAntiAffinity": {}}
    return strategy


def _flat(retry: Retry) -> str:
    may_fail = _may_retry(retry)
    if retry.any is not None:
        return f"{INTERRUPTED} || {may_fail}" if retry.retryable_exit_codes is not None else may_fail
    if not retry.interruptions:
        return f"!{INTERRUPTED} && {may_fail}"
    if not retry.failures:
        return INTERRUPTED
    return f"{INTERRUPTED} || ({may_fail} && asInt(retries) < {retry.failures})"


def _may_retry(retry: Retry) -> str:
    """Whether the exit code allows another try."""
    if retry.retryable_exit_codes is not None:
        return f"({CODE} in [{', '.join(map(str, retry.retryable_exit_codes))}] || {OUT_OF_MEMORY})"
    allowed = f"!({CODE} in [{', '.join(map(str, (*retry.final_exit_codes, FINAL)))}])"
    return f"({allowed} || {OUT_OF_MEMORY})" if KILLED in retry.final_exit_codes else allowed


def _backoff(backoff: Backoff) -> dict[str, Any]:
    """No maxDuration: it counts from the first attempt's start and would end long trainings."""
    result: dict[str, Any] = {"duration": f"{backoff.start.seconds}s", "factor": str(backoff.factor)}
    if backoff.max is not None:
        result["cap"] = f"{backoff.max.seconds}s"
    return result
