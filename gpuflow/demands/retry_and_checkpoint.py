"""Policies that cannot work as written: a last save that does not fit, a checkpoint that comes too late, no budget.

Only what is certain from the documents is reported. The same finding about many steps is reported once.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpuflow.errors import Finding, listed
from gpuflow.plan import Plan, PlannedStep
from gpuflow.pod.supervision import GRACE_MARGIN, supervisor_grace
from gpuflow.site import Site
from gpuflow.spec.duration import Duration
from gpuflow.spec.step import Step


def retry_and_checkpoint(plan: Plan) -> Iterator[Finding]:
    """Warnings about grace, notice, intervals and budgets, over all steps that run a container."""
    steps = [each for each in plan.containers if each.section == "steps"]
    for each in steps:
        yield from _last_save(each, plan.site)
        yield from _interval(each, plan.site)
        yield from _lifetime(each, plan.site)
    yield from _budgets(steps, plan.site)


def _on_spot(step: Step) -> bool:
    return step.spot is not None and step.spot.mode != "never"


def _last_save(placed: PlannedStep, site: Site) -> Iterator[Finding]:
    step, name = placed.step, placed.name
    needed = step.checkpoint.grace if step.checkpoint is not None else None
    if needed is None:
        return
    left = supervisor_grace(step)
    if left is not None and left < needed:
        yield Finding(
            "GF541",
            f'step "{name}" needs {needed} for a last save, and its pod is killed after {step.termination_grace}: '
            f"with the supervisor's own end that leaves {left}",
            placed.where("checkpoint"),
            f"raise termination_grace to {Duration(needed.seconds + GRACE_MARGIN)}, or leave it out",
            severity="warning",
        )
    if _on_spot(step) and site.spot.notice is not None and site.spot.notice < needed:
        yield Finding(
            "GF541",
            f'step "{name}" needs {needed} for a last save, and a spot node of this site is gone after '
            f"{site.spot.notice}",
            placed.where("checkpoint"),
            "save more often (every), so that little is lost without a last checkpoint; or do not run on spot",
            severity="warning",
        )


def _interval(placed: PlannedStep, site: Site) -> Iterator[Finding]:
    """Checkpoints so far apart that most attempts end before the first."""
    step = placed.step
    if step.checkpoint is None or step.checkpoint.every == "auto":
        return
    every = Duration(step.checkpoint.every)
    ends = []
    if step.timeout is not None and step.timeout <= every:
        ends.append(f"an attempt is ended after {step.timeout} (timeout)")
    lifetime = site.spot.mean_time_between
    if _on_spot(step) and lifetime is not None and lifetime <= every:
        ends.append(f"a spot node of this site lives {lifetime} on average")
    if ends:
        yield Finding(
            "GF544",
            f'step "{placed.name}" keeps a checkpoint every {every}, and {" and ".join(ends)}',
            placed.where("checkpoint"),
            "save more often, or write every: auto",
            severity="warning",
        )


def _lifetime(placed: PlannedStep, site: Site) -> Iterator[Finding]:
    step, lifetime = placed.step, site.spot.mean_time_between
    if not _on_spot(step) or step.checkpoint is not None or lifetime is None or step.timeout is None:
        return
    if step.timeout > lifetime:
        yield Finding(
            "GF545",
            f'step "{placed.name}" may take {step.timeout} and has no checkpoint, and a spot node of this site lives '
            f"{lifetime} on average",
            placed.where("spot"),
            "add a checkpoint, or spot: never; without one it starts from nothing after each interruption",
            severity="warning",
        )


def _budgets(steps: list[PlannedStep], site: Site) -> Iterator[Finding]:
    """Steps that can be interrupted by no fault of their own, and that nothing starts again."""
    bare = [each for each in steps if not (each.step.retry and each.step.retry.after_interruptions)]
    spot = [each for each in bare if _on_spot(each.step)]
    if spot:
        yield Finding(
            "GF543",
            f"{listed([each.name for each in spot])}: on spot nodes without a budget for interruptions; when a node "
            "goes, nothing starts the step again",
            spot[0].where(),
            "add retry: {interruptions: N}",
            severity="warning",
        )
    queued = [each for each in bare if each.step.queue or site.queue]
    if queued:
        queues = ", ".join(sorted({str(each.step.queue or site.queue) for each in queued}))
        yield Finding(
            "GF542",
            f"{listed([each.name for each in queued])}: in queue {queues} without a budget for interruptions; Kueue "
            "preempts by deleting the pod, and nothing starts the step again",
            queued[0].where(),
            "add retry: {interruptions: N}",
            severity="note",
        )
