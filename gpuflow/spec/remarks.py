"""What a reader of a pipeline should know although nothing is wrong with its shape, and what its file silences."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gpuflow.errors import Finding, Where
from gpuflow.spec.engine_words.rules import vain_words
from gpuflow.spec.exposed_secrets import exposed_secrets
from gpuflow.spec.idle_retries import idle_retries
from gpuflow.spec.questioned_texts import questioned_texts
from gpuflow.spec.volume_room import tight_claims

if TYPE_CHECKING:
    from gpuflow.spec.pipeline import Pipeline

SILENCED = "GF343"
"""The code of the line that counts what is silenced."""


def remarks_on(pipeline: Pipeline) -> list[Finding]:
    """Warnings about what a pipeline says, its sub-pipelines included: secrets in plain text, text like a template,
    retries without a number, words of an engine without effect, claims smaller than what is put into them."""
    return [
        *exposed_secrets(pipeline),
        *questioned_texts(pipeline),
        *idle_retries(pipeline),
        *vain_words(pipeline),
        *tight_claims(pipeline),
    ]


def log_findings(findings: Iterable[Finding], logger: str) -> None:
    """Findings where an engine's own code uses gpuflow: the log is all there is, and it is shown by default."""
    for finding in findings:
        logging.getLogger(logger).warning("%s", finding.render())


def heard(pipeline: Pipeline, findings: Iterable[Finding]) -> list[Finding]:
    """The findings without those that the pipeline's file silences, and one line that counts them."""
    return without(pipeline.silence, findings, pipeline.where("silence"))


def without(codes: Iterable[str], findings: Iterable[Finding], where: Where) -> list[Finding]:
    """The same for any codes. Errors are never silenced."""
    everything, quiet = list(findings), frozenset(codes)
    if not quiet:
        return everything
    silenced = Counter(each.code for each in everything if each.severity != "error" and each.code in quiet)
    left = [each for each in everything if each.severity == "error" or each.code not in quiet]
    if silenced and SILENCED not in quiet:
        counts = ", ".join(f"{code} x {count}" if count > 1 else code for code, count in sorted(silenced.items()))
        total = sum(silenced.values())
        text = f"{total} {'finding is' if total == 1 else 'findings are'} silenced here: {counts}"
        left.append(Finding(SILENCED, text, where, severity="note"))
    return left
