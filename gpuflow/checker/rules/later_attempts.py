"""Later attempts whose pods differ from the first: with more memory after running out of it, off spot nodes after
losing some. The worst moment is that of the first attempts; those that follow must find room as well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gpuflow.checker.outcome import Outcome
from gpuflow.checker.report import Verdict, worst
from gpuflow.checker.wording import listed, where_of
from gpuflow.demands import Demand
from gpuflow.demands.model import LaterAttempts
from gpuflow.errors import Finding

OUTCOMES: dict[Verdict, str] = {
    "may-queue": "may have to wait",
    "unknown": "is not known to find room",
    "never": "can never be admitted",
}

OTHERWISE: Final = "make room for that attempt too, or take the policy out of retry or spot"


def later_outcome(
    first: Outcome,
    demand: Demand,
    check: Callable[[Demand], Outcome],
    way_out: Callable[[LaterAttempts], str | None] = lambda _: None,
) -> Outcome:
    """What later attempts add to the outcome of the first. None of them is sure to come, so that none means *never*."""
    verdicts: list[Verdict] = []
    findings = []
    for later in demand.later:
        outcome = check(demand.at_later(later))
        if worst((first.verdict, outcome.verdict)) == first.verdict:
            continue
        verdicts.append("unknown" if outcome.verdict == "unknown" else "may-queue")
        known = {(each.code, each.message) for each in first.findings}
        new = [each for each in outcome.findings if (each.code, each.message) not in known and each.severity != "note"]
        reasons = [f"{each.code} {each.message}" for each in new]
        findings.append(
            Finding(
                "GF525",
                f"{listed(later.steps)}: {later.when}, a later attempt {OUTCOMES[outcome.verdict]}",
                where_of(demand, later.steps[0]),
                "\n".join((*reasons[:2], way_out(later) or OTHERWISE)),
                severity="warning",
                kubernetes=next((each.kubernetes for each in new if each.kubernetes), None),
            )
        )
    return Outcome(worst(verdicts), findings=tuple(findings))


def nodes_avoided(demand: Demand) -> dict[str, int]:
    """Of each step that tries again on another node, how many nodes its last attempt keeps away from."""
    return {step.name: step.nodes_avoided for step in demand.steps if step.nodes_avoided}
