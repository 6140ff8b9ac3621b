"""What Argo does only in part with a given pipeline: its retries have one count and see the last attempt alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gpuflow.errors import Finding
from gpuflow.plan import plan_of
from gpuflow.pod.later_attempts import falls_back
from gpuflow.pod.supervision import counts_budgets
from gpuflow.site import Site
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.step import Step
from gpuflow.targets.argo.options import ArgoOptions
from gpuflow.targets.frame import Request
from gpuflow.targets.losses import named_steps


def shares_one_count(step: Step, site: Site) -> bool:
    """Both budgets, and nobody but Argo to count them."""
    retry = step.retry
    return bool(retry and retry.failures and retry.interruptions) and not counts_budgets(step, site)


def leaves_spot_early(step: Step, site: Site) -> bool:
    """Failures count towards falling back as well."""
    return falls_back(step) and bool(step.retry and step.retry.failures)


def never_leaves_spot(step: Step, site: Site) -> bool:
    """More interruptions are asked for than the budgets allow."""
    return bool(step.spot and step.spot.fallback_after) and not falls_back(step)


def has_no_memory_to_grow(step: Step, site: Site) -> bool:
    return bool(step.retry and step.retry.more_memory) and step.memory is None


Applies = Callable[[Step, Site], bool]
NOTES: tuple[tuple[str, Applies, str, str], ...] = (
    (
        "retry",
        shares_one_count,
        "Argo counts one number of retries, so interruptions use up retries meant for failures (never the reverse)",
        "give the step a checkpoint, or set runtime.state in the site: gpuflow-run then counts both budgets",
    ),
    (
        "spot",
        leaves_spot_early,
        "fallback_after counts every retry on Argo, including failures, but not pods that Argo recreates on its "
        "own after a node was lost",
        "set retry.failures to 0, or set fallback_after high enough to include failures",
    ),
    (
        "spot",
        never_leaves_spot,
        "fallback_after is never reached: retry allows fewer attempts",
        "raise retry.interruptions to at least fallback_after",
    ),
    (
        "retry",
        has_no_memory_to_grow,
        "more_memory has no effect: the step does not say how much memory it starts with",
        "give the step memory",
    ),
)


def notes(pipeline: Pipeline, site: Site) -> Iterator[Finding]:
    """One note for each thing that holds, with the steps it holds for."""
    for _, steps in plan_of(pipeline, site).pipelines:
        for field, applies, text, hint in NOTES:
            found = [each for each in steps if each.kind == "container" and applies(each.step, site)]
            if found:
                names = tuple(each.own_name for each in found)
                yield Finding("GF305", f"{named_steps(names)}: {text}", found[0].where(field), hint, "note")


def request_notes(request: Request) -> Iterator[Finding]:
    """Those about the pipeline, and what the kind that is asked for leaves out."""
    yield from notes(request.pipeline, request.site)
    kind = request.options_as(ArgoOptions).kind
    if request.pipeline.schedule and kind not in (None, "CronWorkflow"):
        text = f"schedule: a {kind} has none, so nothing starts it on a schedule"
        where = request.pipeline.where("schedule")
        yield Finding("GF305", text, where, "compile without --as for a CronWorkflow", "note")
