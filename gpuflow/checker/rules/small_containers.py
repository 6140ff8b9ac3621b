"""Containers that are too small for the program through which their engine starts them: Argo's executor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuflow.checker.quota.namespace import StepAdmission
from gpuflow.checker.wording import listed, where_of
from gpuflow.demands import Demand
from gpuflow.engines import facts_of, starved_containers
from gpuflow.errors import Finding


def small_containers(demand: Demand, admissions: Sequence[StepAdmission]) -> Iterator[Finding]:
    """Containers that are killed before their own command runs, with the limits that a LimitRange gives them too."""
    facts = facts_of(demand.engine)
    found: dict[str, list[str]] = {}
    for one in admissions if facts.launcher_memory is not None else ():
        for name, limit in starved_containers(one.ever.pod, facts):
            if name not in demand.engine_settings:
                found.setdefault(f'container "{name}" may use {limit} of memory', []).append(one.step.name)
    for what, steps in found.items():
        yield Finding(
            "GF526",
            f"{listed(steps)}: {what}, and {facts.title} starts it through a program of its own that needs "
            f"{facts.launcher_memory}: it is killed, or hangs, before its command runs",
            where_of(demand, steps[0]),
            f"give it a memory limit of {facts.launcher_memory} or more",
            severity="warning",
        )
