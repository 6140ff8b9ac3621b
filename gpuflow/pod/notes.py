"""What a reader should know about the pods of a pipeline, although nothing is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator

from gpuflow.errors import Finding, GpuflowError, shortened
from gpuflow.plan import Plan, PlannedStep
from gpuflow.pod.build import pod_for
from gpuflow.pod.merging import overridden
from gpuflow.pod.supervision import is_supervised
from gpuflow.site import Site
from gpuflow.spec.pipeline import Pipeline


def pod_notes(plan: Plan) -> Iterator[Finding]:
    """Notes on patches that override fields of ours, and on hooks that take the supervisor's time."""
    yield from _overrides(plan)
    for each in plan.containers:
        yield from _hooks(each, plan.site)


def without_merge(pipeline: Pipeline, name: str) -> Pipeline:
    """The same pipeline with the pod of one step as gpuflow makes it."""
    hatch = pipeline.effective(name).kubernetes
    if hatch is None or hatch.merge is None:
        return pipeline
    section = pipeline.section_of(name)
    steps = dict(getattr(pipeline, section))
    steps[name] = steps[name].model_copy(update={"kubernetes": hatch.model_copy(update={"merge": None})})
    return pipeline.model_copy(update={section: steps})


def _overrides(plan: Plan) -> Iterator[Finding]:
    """One note for all steps whose patches override the same: an imported pipeline says the same in every step."""
    alike: dict[tuple[str, ...], list[PlannedStep]] = {}
    for each in plan.containers:
        if paths := _overridden(each, plan.site):
            alike.setdefault(paths, []).append(each)
    for paths, steps in alike.items():
        shown = ", ".join(paths[:6]) + (f" and {len(paths) - 6} more" if len(paths) > 6 else "")
        names = shortened([f'"{each.name}"' for each in steps])
        message = f"{'step' if len(steps) == 1 else 'steps'} {names}: kubernetes.merge overrides {shown}"
        hint = "take out of the patch what is not meant"
        yield Finding("GF373", message, steps[0].where("kubernetes", "merge"), hint, "note")


def _overridden(each: PlannedStep, site: Site) -> tuple[str, ...]:
    hatch, name = each.step.kubernetes, each.own_name
    if hatch is None or hatch.merge is None:
        return ()
    try:
        own = pod_for(without_merge(each.pipeline, name), name, site)
        return tuple(overridden(own, pod_for(each.pipeline, name, site)))
    except GpuflowError:
        return ()  # said by whoever makes the pod


def _hooks(each: PlannedStep, site: Site) -> Iterator[Finding]:
    """A hook of unknown length comes before SIGTERM, and the supervisor gets what is left."""
    hook = each.step.lifecycle.pre_stop if each.step.lifecycle is not None else None
    if hook is None or hook.sleep is not None or not is_supervised(each.step, site):
        return
    message = f'step "{each.name}": pre_stop takes its time from termination_grace, and the supervisor gets the rest'
    hint = "raise termination_grace by the longest time that the hook takes"
    yield Finding("GF377", message, each.where("lifecycle", "pre_stop"), hint, "note")
