"""Warnings about a pipeline that is valid, such as retries without a number, and which of them its file silences."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator

from gpuflow.core.errors import Finding, Where
from gpuflow.spec.engine_options.rules import ineffective_options
from gpuflow.spec.policies import Retry
from gpuflow.spec.rules.exposed_secrets import exposed_secrets
from gpuflow.spec.rules.template_text import template_warnings
from gpuflow.spec.rules.volume_room import tight_claims
from gpuflow.spec.step import Pipeline

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


SILENCED_CODE = "GF343"
"""The code of the line that counts what is silenced."""


def remarks_on(pipeline: Pipeline) -> list[Finding]:
    """Warnings about what a pipeline says, its sub-pipelines included: secrets in plain text, text like a template,
    retries without a number, words of an engine without effect, claims smaller than what is put into them."""
    return [
        *exposed_secrets(pipeline),
        *template_warnings(pipeline),
        *idle_retries(pipeline),
        *ineffective_options(pipeline),
        *tight_claims(pipeline),
    ]


def log_findings(findings: Iterable[Finding], logger: str) -> None:
    """Findings where an engine's own code uses gpuflow: the log is all there is, and it is shown by default."""
    for finding in findings:
        logging.getLogger(logger).warning("%s", finding.render())


def without_silenced(pipeline: Pipeline, findings: Iterable[Finding]) -> list[Finding]:
    """The findings without those that the pipeline's file silences, and one line that counts them."""
    return without_codes(pipeline.silence, findings, pipeline.where("silence"))


def without_codes(codes: Iterable[str], findings: Iterable[Finding], where: Where) -> list[Finding]:
    """The same for any codes. Errors are never silenced."""
    everything, quiet = list(findings), frozenset(codes)
    if not quiet:
        return everything
    silenced = Counter(each.code for each in everything if each.severity != "error" and each.code in quiet)
    left = [each for each in everything if each.severity == "error" or each.code not in quiet]
    if silenced and SILENCED_CODE not in quiet:
        counts = ", ".join(f"{code} x {count}" if count > 1 else code for code, count in sorted(silenced.items()))
        total = sum(silenced.values())
        text = f"{total} {'finding is' if total == 1 else 'findings are'} silenced here: {counts}"
        left.append(Finding(SILENCED_CODE, text, where, severity="note"))
    return left
