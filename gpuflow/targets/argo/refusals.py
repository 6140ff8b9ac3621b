"""Parts of constructs that Argo cannot express. None can be left out: the run would do something else or not start.

What a gang cannot have on Argo is here too: what belongs to one pod, or to Argo's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from gpuflow.core.errors import Finding, GpuflowError, Problem, Where
from gpuflow.plan import PlannedStep
from gpuflow.pod.build import made_pod
from gpuflow.pod.gang_kinds import Refusal, claims_of_the_run, refusals_of
from gpuflow.spec.engine_options.base import EngineOptions
from gpuflow.spec.params import text_of
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.references import may_be_skipped
from gpuflow.spec.step import Step
from gpuflow.spec.text import OutputRef, RunRef
from gpuflow.targets.argo.alerts import alert_refusals
from gpuflow.targets.argo.engine_options import template_options, workflow_options
from gpuflow.targets.argo.facts import FACTS, OLDEST, ArgoOptions
from gpuflow.targets.argo.graph import skipped_outputs
from gpuflow.targets.argo.loops import item_findings
from gpuflow.targets.argo.references import Inputs, sparse_schedules
from gpuflow.targets.argo.templates import ENGINE, TOKEN, later_fields
from gpuflow.targets.capabilities import LATER_ATTEMPTS, RefusalRule, refusal
from gpuflow.targets.refusals import Path, dates_of, holds_tags, strings, unresolved_tags, version_problem
from gpuflow.targets.target import Request

BY_LAUNCHER = ("queue_timeout", *LATER_ATTEMPTS)
"""What the launcher of a gang keeps, and Argo cannot, or only in part."""


def gang_findings(each: PlannedStep) -> Iterator[Finding]:
    """One finding for each thing that the launcher of a step could not keep."""
    for field, problem, hint in _refusals(each.step, each.site.gangs.made_as) if each.step.gang is not None else ():
        yield Finding("GF378", f'step "{each.own_name}": {problem}', _where(each, *field), hint)


def _where(each: PlannedStep, *path: str | int) -> Where:
    return each.pipeline.where_step(each.own_name, *path)


def _refusals(step: Step, kind: str) -> Iterator[Refusal]:
    yield from refusals_of(step, kind)
    if step.cache:
        yield ("cache",), "the result of a gang is not kept for other runs", "remove cache"
    for place, ref in step.references():
        if isinstance(ref, RunRef) and ref.field == "attempt":
            # Argo would fill in how often it started the launcher.
            hint = "let the program read $GPUFLOW_ATTEMPT"
            yield tuple(map(str, place[:1])), "the attempts of a gang are not Argo's: {run: attempt} is not known", hint
    yield from claims_of_the_run(step, "Argo")


FIELDS_ARGO_NEVER_SEES = {"command", "args", "script", "for_each", "when", "pipeline", "params", "description"}
"""Fields of a step whose text Argo never sees as it is written."""


@refusal("GF308")
def old_version(request: Request) -> Iterable[Finding]:
    """A site whose Argo would drop or misread what is written."""
    return version_problem(request.site, "argo", "Argo", OLDEST, "GF308", "4.0")


@refusal("GF306")
def open_tags(request: Request) -> Iterator[Problem]:
    """Argo reads an expression from `{{=` to the next `}}`, also into the next field, and then starts no run."""
    for name, param in request.pipeline.params.items():
        values = [] if param.required else [param.default]
        for text in map(text_of, (*values, *(param.enum or ()), param.description or "")):
            if "{{=" in text and "}}" not in text[text.rindex("{{=") :]:
                yield Problem(
                    f'parameter "{name}": Argo would read an expression from {{{{= to the next }}}}: {text[:60]!r}',
                    request.pipeline.where("params", name),
                    "close it with }}, or write a space between {{ and =",
                )


@refusal("GF306")
def open_words(request: Request) -> Iterator[Problem]:
    """In Argo's own words a tag is meant. One that is not closed goes on into the next field, and takes its tags."""
    plan = request.plan
    words: list[tuple[Pipeline, Path, EngineOptions]] = [(plan.pipeline, (), workflow_options(plan.pipeline))]
    said_by = (each for each in plan.steps if each.step.engines is not None)
    words += [(each.pipeline, (each.section, each.own_name), template_options(each.step)) for each in said_by]
    for pipeline, place, said in words:
        # In a title and in annotations no tag is meant: `annotation_tags`.
        for path, text in strings(said.model_dump(mode="json", exclude={"title", "annotations"})):
            if "{{" in text and "}}" not in text[text.rindex("{{") :]:
                who = f'step "{place[1]}": ' if place else ""
                yield Problem(
                    f"{who}engines.argo.{'.'.join(map(str, path))}: Argo would read a tag from {{{{ to the next }}}}, "
                    f"in another field: {text[:60]!r}",
                    pipeline.where(*place, "engines", "argo", *path),
                    "close it with }}",
                )


@refusal("GF306")
def claim_tags(request: Request) -> Iterator[Problem]:
    """Argo replaces tags in the claims that it makes for a run."""
    for name, claim in request.pipeline.claims.items():
        if "{{" in (claim.storage_class or ""):
            text = f'claim "{name}": Argo would replace the tag in the storage class: {claim.storage_class!r:.60}'
            yield Problem(text, request.pipeline.where("claims", name, "storage_class"), "name the class without {{")


@refusal("GF306")
def annotation_tags(request: Request) -> Iterator[Finding]:
    """Argo replaces tags in what a template says of its runs' metadata, and in no other kind's."""
    words = workflow_options(request.pipeline)
    titled = [(("title",), words.title)] if words.title else []
    for path, text in (*titled, *((("annotations", key), value) for key, value in words.annotations.items())):
        what = f"engines.argo.{path[0]}: Argo would replace the tag in the runs of a WorkflowTemplate"
        yield from _tag(what, text, request.pipeline.where("engines", "argo", *path), "write it without {{")


def _tag(what: str, text: str, where: Where, hint: str) -> Iterator[Finding]:
    if "{{" in text:
        yield Finding("GF306", f"{what}: {text[:60]!r}", where, hint)


@refusal("GF301")
def values_nobody_gives(request: Request) -> Iterator[Problem]:
    """Required parameters without a default in a pipeline with scheduled runs."""
    pipeline, kind = request.pipeline, request.options_as(ArgoOptions).kind
    if pipeline.schedule is None or kind not in (None, "CronWorkflow"):
        return
    for name, param in pipeline.params.items():
        if param.required:
            text = f'argo starts "{pipeline.name}" automatically, and the parameter "{name}" has no default'
            hint = "give it a default, or compile with --as WorkflowTemplate, to be started by hand only"
            yield Problem(text, pipeline.where("params", name), hint)


@refusal("GF301")
def no_interval(request: Request) -> Iterator[Problem]:
    """An interval begins at a scheduled time, so a pipeline without a schedule has none."""
    for each, ref, where in dates_of(request.plan, "interval_start") if request.pipeline.schedule is None else ():
        text = f'argo does not support {{run: {ref.field}}} (step "{each.name}"): '
        text += "without a schedule a run has no interval"
        yield Problem(text, where, "use {run: logical_date}, or give the pipeline a schedule")


@refusal("GF190", "GF301", "GF306", "GF313", "GF378")
def steps(request: Request) -> Iterator[Finding]:
    """What Argo cannot express of single steps, step by step."""
    plan = request.plan
    tags_in_site = holds_tags(plan.site)
    for each in plan.steps:
        step = each.step
        yield from item_findings(each.pipeline, each.own_name, step)
        if step.pipeline is not None:
            yield from _missing_outputs(step.pipeline)
        elif step.approval is not None:
            what = f'step "{each.own_name}": Argo would replace the tag in the approval message'
            yield from _tag(what, step.approval.message, _where(each, "approval"), "ask without {{")
        else:
            yield from step_findings(each, tags_in_site)


def step_findings(each: PlannedStep, tags_in_site: bool = True) -> Iterator[Finding]:
    """What Argo cannot express of one step that runs a container."""
    yield from _default_tags(each)
    yield from gang_findings(each)
    yield from _no_token(each)
    yield from _pod_findings(each, tags_in_site)


def _no_token(each: PlannedStep) -> Iterator[Finding]:
    """Argo's own containers need a token in the pod, unless the site names an account for them."""
    hatch = each.step.kubernetes
    if hatch is None or each.step.gang is not None:
        return  # those of a gang are in the launcher's pod
    spec = (hatch.merge or {}).get("spec") or {}
    if spec.get(TOKEN) is False and each.site.engine(FACTS.name).executor is None:
        text = f'argo: step "{each.own_name}": without a token in the pod Argo\'s own containers cannot report'
        hint = "name an account for them in the site: engines.argo.executor"
        yield Finding("GF301", text, _where(each, "kubernetes", "merge", "spec", TOKEN), hint)


def _pod_findings(each: PlannedStep, tags_in_site: bool) -> Iterator[Finding]:
    """What of a step's pod Argo would change. A pod is made only where some text of the step asks for it."""
    step, name, where = each.step, each.own_name, _where(each)
    if not tags_in_site and not holds_tags(
        [value for key, value in step.__dict__.items() if value and key not in FIELDS_ARGO_NEVER_SEES]
    ):
        return
    try:
        made = made_pod(each, Inputs(), ENGINE)
        found = list(unresolved_tags(name, made.manifest, where))
        yield from found
        if not found and step.gang is None:
            later_fields(made)
    except GpuflowError as refusal:
        for finding in refusal.findings:
            # A pod that cannot be made at all is said by whoever makes it.
            if finding.code == "GF306":
                yield replace(finding, message=f'step "{name}": {finding.message}', where=where)


def _default_tags(each: PlannedStep) -> Iterator[Finding]:
    for output_name, output in each.step.outputs.items():
        text = "" if output.default is None else text_of(output.default)
        what = f'step "{each.own_name}": Argo would replace the tag in the default of {output_name}'
        where = _where(each, "outputs", output_name, "default")
        yield from _tag(what, text, where, "write the default without {{, or let the step write it")


def _missing_outputs(pipeline: Pipeline) -> Iterator[Finding]:
    """Outputs of a sub-pipeline that a skipped step leaves without a value."""
    defaults, skipped = skipped_outputs(pipeline), may_be_skipped(pipeline)
    for name, ref in pipeline.outputs.items():
        if isinstance(ref, OutputRef) and ref.step in skipped and ref not in defaults:
            text = f'the output "{name}" would be missing when "{ref.step}" is skipped, which is an error in Argo'
            hint = f'give the output {ref.name} of "{ref.step}" a default'
            yield Finding("GF190", text, pipeline.where("outputs", name), hint)


REFUSALS: Final[tuple[RefusalRule[Request], ...]] = (
    old_version, open_tags, open_words, claim_tags, annotation_tags, values_nobody_gives, no_interval, sparse_schedules,
    steps, alert_refusals,
)  # fmt: skip
"""In the order in which they are said."""
