"""Findings that no verdict needs: what will hurt, and what can never work as it is set up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuflow.checker.quota.namespace import NamespacePolicy, StepAdmission
from gpuflow.checker.report import LimitLine
from gpuflow.checker.rules.deadlocks import deadlocks, gangs_above_quota, waiting_counts_in_quota
from gpuflow.checker.rules.pods import best_effort, created_objects, refused_driver, small_containers
from gpuflow.checker.rules.runs import deadline_counts_waiting
from gpuflow.core.errors import Finding
from gpuflow.demands import Demand


def rule_findings(
    demand: Demand, policy: NamespacePolicy, admissions: Sequence[StepAdmission], lines: Sequence[LimitLine], runs: int
) -> Iterator[Finding]:
    """The findings. Those that are errors mean *never*."""
    yield from refused_driver(demand, policy)
    yield from gangs_above_quota(demand, policy, admissions)
    yield from deadlocks(demand, policy, admissions, runs)
    yield from waiting_counts_in_quota(demand, admissions, lines)
    yield from best_effort(demand, admissions)
    yield from small_containers(demand, admissions)
    yield from created_objects(demand)
    yield from deadline_counts_waiting(demand, lines)
