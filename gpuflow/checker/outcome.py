"""What one part of a check comes to: a verdict, the lines it rests on, and the findings that explain it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpuflow.checker.report import LimitLine, Verdict, worst
from gpuflow.errors import Finding


@dataclass(frozen=True, slots=True)
class Outcome:
    verdict: Verdict = "always"
    scopes: tuple[LimitLine, ...] = ()
    findings: tuple[Finding, ...] = ()


def outcome_of(findings: Iterable[Finding], verdict: Verdict = "always") -> Outcome:
    """Findings, each of which alone makes this the verdict."""
    found = tuple(findings)
    return Outcome(verdict if found else "always", findings=found)


def merge(outcomes: Iterable[Outcome]) -> Outcome:
    """Several parts as one."""
    parts = list(outcomes)
    return Outcome(
        worst(part.verdict for part in parts),
        tuple(scope for part in parts for scope in part.scopes),
        tuple(finding for part in parts for finding in part.findings),
    )


def foremost(resources: Iterable[str]) -> str | None:
    """The resource to speak of when several are short: devices first, then as they are named."""
    return min(resources, key=lambda name: ("/" not in name, name), default=None)
