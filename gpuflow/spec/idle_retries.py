"""Retry policies without a number: they retry nothing, and those of a step replace the number of the defaults."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpuflow.errors import Finding
from gpuflow.spec.policies import Retry

if TYPE_CHECKING:
    from gpuflow.spec.pipeline import Pipeline

HINT = "add the number, for example any: 3; or write retry: 0 if no retry is meant"


def idle_retries(pipeline: Pipeline) -> Iterator[Finding]:
    """A warning for every `retry` that says how to retry and not how often, the sub-pipelines included."""
    default = pipeline.defaults.retry
    for section in ("steps", "exit"):
        for name, step in getattr(pipeline, section).items():
            if step.pipeline is not None:
                yield from idle_retries(step.pipeline)
            elif step.retry is not None and _is_idle(step.retry):
                lost = f", and the retry of defaults ({_number(default)}) is replaced" if _retries(default) else ""
                message = f'step "{name}": retry has no number, so the step is not retried{lost}'
                yield Finding("GF210", message, pipeline.where(section, name, "retry"), HINT, "warning")
    if default is not None and _is_idle(default):
        message = "the retry of defaults has no number, so steps without their own are not retried"
        yield Finding("GF210", message, pipeline.where("defaults", "retry"), HINT, "warning")


def _is_idle(retry: Retry) -> bool:
    """Whether nothing is retried and nobody wrote that down."""
    return retry.any is None and not retry.model_fields_set & {"failures", "interruptions"}


def _retries(retry: Retry | None) -> bool:
    return retry is not None and retry.attempts > 0


def _number(retry: Retry | None) -> str:
    assert retry is not None
    if retry.any is not None:
        return str(retry.any)
    given = {"failures": retry.failures, "interruptions": retry.interruptions}
    return ", ".join(f"{name}: {number}" for name, number in given.items() if number)
