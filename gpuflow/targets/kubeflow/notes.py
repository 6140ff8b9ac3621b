"""What a reader of the artifact should know, although nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator

from gpuflow.errors import Finding, Where
from gpuflow.plan import Plan
from gpuflow.pod.restarts import seen_by
from gpuflow.pod.supervision import has_records
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.step import Step
from gpuflow.spec.text import ItemRef, OutputRef, ParamRef, Ref
from gpuflow.spec.types import output_types
from gpuflow.targets.kubeflow.gangs import own_pods
from gpuflow.targets.kubeflow.retries import restarts_at
from gpuflow.targets.losses import named_steps

_TEXT = ("string", "json")
_CONTAINER = ("command", "args", "env", "outputs", "checkpoint")
"""Where a reference ends in what the container is started with: a URI and a store are options of the supervisor."""


def notes(plan: Plan) -> Iterator[Finding]:
    """One note about all text that is only known when the pipeline runs, with the steps that are handed it."""
    handed: dict[str, Where] = {}
    for each in plan.containers:
        for place, ref in each.step.references():
            if place[0] in _CONTAINER and _late(each.pipeline, each.step, ref):
                handed[each.name] = each.where(*place)
                break
    if handed:
        yield Finding(
            "GF305",
            f"{named_steps(tuple(handed))}: text that is only known in the run passes Argo and the kubelet, "
            "which replace {{…}} and $(NAME) in it and make $$ one $",
            next(iter(handed.values())),
            "pass such text in a file, or give the parameter an enum; whoever may start runs with any text can read "
            "variables of these steps, Secrets included",
            "note",
        )


def key_notes(plan: Plan) -> Iterator[Finding]:
    """KFP can mount a Secret, but neither a single key of it nor with permissions of its own."""
    key = plan.site.runtime.key
    restarts = restarts_at(plan.site)
    signed = tuple(
        each.name for each in own_pods(plan) if has_records(each.step, seen_by(each, plan.site, restarts), restarts)
    )
    if key is not None and signed:
        yield Finding(
            "GF305",
            f'{named_steps(signed)}: KFP mounts the whole Secret "{key.secret}", and every user in the container '
            "may read it",
            plan.by_name[signed[0]].where(),
            f'keep nothing but "{key.key}" in that Secret',
            "note",
        )


def _late(pipeline: Pipeline, step: Step, ref: Ref) -> bool:
    """Whether a reference stands for text that somebody else writes: a parameter, an output, an item of either."""
    source = (step.for_each or {}).get(ref.name) if isinstance(ref, ItemRef) else ref
    if isinstance(source, ParamRef):
        param = pipeline.params[source.name]
        return param.type in _TEXT and not param.enum
    if not isinstance(source, OutputRef):
        return False
    before = pipeline.steps[source.step]
    one = before.model_copy(update={"for_each": None})  # a list of numbers is no text
    return output_types(one).get(source.name) in _TEXT
