"""The one number of a report: with this `parallel` the whole pipeline is always admitted. It is tried, not added up."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from gpuflow.checker.contention.concurrency import Concurrency
from gpuflow.checker.hints.trials import Trials
from gpuflow.checker.outcome import Outcome
from gpuflow.checker.report import safe_parallelism
from gpuflow.demands import Demand
from gpuflow.engines import facts_of
from gpuflow.errors import Finding
from gpuflow.work import may_advise

UNBOUNDED: Final = "GF514"
"""A fan-out of unknown size: the one reason for *unknown* that a cap removes."""
WAITS: Final = (
    "GF512", UNBOUNDED, "GF515", "GF517", "GF520", "GF522", "GF524", "GF525", "GF527", "GF528", "GF553", "GF555",
)  # fmt: skip
"""Findings about pods that wait; the number stands under the first of them."""


def with_parallel(whole: Outcome, demand: Demand, trials: Trials) -> tuple[Finding, ...]:
    """The findings, the first about a wait with the number that ends all of them; unchanged where none does."""
    about = [finding for finding in whole.findings if finding.code in WAITS and finding.severity == "warning"]
    if not about or not _may_help(whole):
        return whole.findings
    cap = proved_parallel(whole, demand, trials)
    if cap is None:
        return whole.findings
    first = about[0]
    hint = "\n".join(filter(None, (first.hint, f"always admitted with parallel: {cap}")))
    return tuple(replace(each, hint=hint) if each is first else each for each in whole.findings)


def _may_help(whole: Outcome) -> bool:
    return whole.verdict == "may-queue" or (
        whole.verdict == "unknown" and any(finding.code == UNBOUNDED for finding in whole.findings)
    )


def proved_parallel(whole: Outcome, demand: Demand, trials: Trials) -> int | None:
    """The largest `parallel` that was found to make the verdict *always*; None where none was.

    What the lines of the report allow is tried first: with more, one of them runs out. No cap is proposed that is
    smaller than a gang, since the gang could not start.
    """
    if not facts_of(demand.engine).keeps_parallel or not may_advise():
        return None
    concurrency = Concurrency(demand)
    low, candidate = concurrency.largest_gang, safe_parallelism(whole.scopes)
    high = candidate if candidate is not None else concurrency.most_pods()
    if candidate is not None and candidate > low:
        verdict = trials.verdict(demand.capped(candidate))
        if verdict == "always":
            return candidate
        if verdict != "may-queue":
            return None  # for want of something that no smaller number gives
    if trials.verdict(demand.capped(low)) != "always":
        return None
    while high - low > 1 and trials.left:
        middle = (low + high) // 2
        if trials.verdict(demand.capped(middle)) == "always":
            low = middle
        else:
            high = middle
    return low
