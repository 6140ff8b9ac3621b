"""Policies that cannot work as written: a last checkpoint that does not fit into the time there is."""

from __future__ import annotations

from collections.abc import Iterator

from gpuflow.errors import Finding
from gpuflow.site import Site
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.step import Step


def survival(pipeline: Pipeline, site: Site) -> Iterator[Finding]:
    """Warnings about grace, notice and budgets, over all steps that run a container."""
    for name, step in pipeline.steps.items():
        if step.pipeline is not None:
            yield from survival(step.pipeline, site)
        elif step.runs_container:
            yield from _step(pipeline, name, pipeline.effective(name), site)


def _step(pipeline: Pipeline, name: str, step: Step, site: Site) -> Iterator[Finding]:
    policy = step.checkpoint
    needed = policy.grace if policy is not None else None
    if policy is not None and needed is not None:
        where = pipeline.where("steps", name, "checkpoint")
        if step.termination_grace is not None and step.termination_grace < needed:
            yield Finding(
                "GF541",
                f'step "{name}" needs {needed} for a last save, and its pod is killed after {step.termination_grace}',
                where,
                f"raise termination_grace to {needed}",
                severity="warning",
            )
        notice, spot = site.spot.notice, step.spot is not None and step.spot.mode != "never"
        if spot and notice is not None and notice < needed:
            yield Finding(
                "GF541",
                f'step "{name}" needs {needed} for a last save, and a spot node of this site is gone after {notice}',
                where,
                "save more often (every), so that little is lost without a last checkpoint; or do not run on spot",
                severity="warning",
            )
    queued = step.queue or site.queue
    if queued and not (step.retry and step.retry.interruptions):
        yield Finding(
            "GF542",
            f'step "{name}" waits in queue {queued} and has no budget for interruptions: preempted pods are deleted, '
            "and nothing starts it again",
            pipeline.where("steps", name, key=True),
            "add retry: {interruptions: N}",
            severity="note",
        )
