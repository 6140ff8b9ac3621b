"""Schedules that start a run beside the one before."""

from __future__ import annotations

from collections.abc import Iterator

from gpuflow.errors import Finding
from gpuflow.readers.findings.subject import Subject


def overlapping_schedule(subject: Subject) -> Iterator[Finding]:
    """GF772: a check says the same with its verdict (GF553)."""
    overlap = subject.demand.overlap
    if overlap is not None:
        yield Finding(
            "GF772",
            f"{subject.title} may run several times at once ({overlap.because}): the peak is that of one run",
            overlap.where,
            "max_active_runs=1 waits for the run before"
            if subject.kind == "DAG"
            else "concurrencyPolicy: Forbid waits for the run before, Replace stops it",
            severity="warning",
        )
