"""Parts of constructs that Argo cannot express. None can be left out: the run would do something else or not start.

What a gang cannot have on Argo is here too: what belongs to one pod, or to Argo's own.

The notes say what Argo does only in part with a given pipeline, and what its users should know about the pods it makes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final

from gpuflow.core.errors import Finding, GpuflowError, Problem, Rule, Where, rule
from gpuflow.engines import too_small_containers
from gpuflow.plan import PlannedStep
from gpuflow.pod import pod_of
from gpuflow.pod.build import made_pod
from gpuflow.pod.gang_kinds import SPELLINGS, Refusal, claims_of_the_run, refusals_of
from gpuflow.pod.later_attempts import falls_back
from gpuflow.pod.supervision import saves_to_scratch, scratch_size
from gpuflow.quantity import Quantity
from gpuflow.spec.engine_options.base import EngineOptions
from gpuflow.spec.params import text_of
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.references import may_be_skipped
from gpuflow.spec.step import Step
from gpuflow.spec.text import OutputRef, RunRef
from gpuflow.targets.argo.alerts import alert_notes, alert_refusals
from gpuflow.targets.argo.engine_options import given_by_argo, template_options, workflow_options
from gpuflow.targets.argo.facts import FACTS, OLDEST, ArgoOptions
from gpuflow.targets.argo.graph import item_findings, skipped_outputs
from gpuflow.targets.argo.references import Inputs, sparse_schedules, without_schedule
from gpuflow.targets.argo.templates import ENGINE, TOKEN, later_fields
from gpuflow.targets.capabilities import LATER_ATTEMPTS, RefusalRule, named_steps, refusal
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


def shares_one_count(each: PlannedStep) -> bool:
    """Whether the step has both budgets and only Argo counts them."""
    retry = each.step.retry
    if each.step.gang is not None:
        return False  # its launcher counts
    return bool(retry and retry.failures and retry.interruptions) and not each.supervision.counts_budgets


def leaves_spot_early(each: PlannedStep) -> bool:
    """Failures count towards falling back as well."""
    if each.step.gang is not None:
        return False  # its launcher tells them apart
    return falls_back(each.step) and bool(each.step.retry and each.step.retry.after_failures)


def ranks_may_launch(each: PlannedStep) -> bool:
    """Programs with a token of the account that creates their gang."""
    own = given_by_argo(each.step, each.site)
    account = each.step.service_account or own.get("serviceAccountName")
    holds = each.step.gang is not None and own.get("automountServiceAccountToken") is not False
    return holds and account is not None and account == each.site.gangs.service_account


MANY = 100
"""From how many pods of a fan-out in one queue on Kueue is told of each."""
Applies = Callable[[PlannedStep], bool]
NOTES: tuple[tuple[str, str, Applies, str, str], ...] = (
    (
        "GF379",
        "gang",
        lambda each: each.step.gang is not None and each.site.gangs.service_account is None,
        "the pod that looks after the gang must be allowed to create JobSets, and the site names no account for it",
        "set gangs.service_account in the site, and apply what gpuflow site gang prints",
    ),
    (
        "GF380",
        "gang",
        ranks_may_launch,
        "the programs of the ranks hold the token of the account that may create JobSets",
        "name an account for Argo's own containers (engines.argo.executor in the site): programs then get no token",
    ),
    (
        "GF324",
        "retry",
        lambda each: bool(each.step.retry and each.step.retry.failures and not each.step.retry.interruptions),
        "retry has a budget for failures alone, so a drained, preempted or lost node ends the step",
        "write retry: N to start again whatever ended the step, or add interruptions: N",
    ),
    (
        "GF322",
        "checkpoint",
        lambda each: saves_to_scratch(each.step) and scratch_size(each.step) is None,
        "checkpoints are written to the node's disk, and nothing limits how much they take",
        "give checkpoint.scratch, a bit more than two checkpoints: 50Gi",
    ),
    (
        "GF305",
        "retry",
        shares_one_count,
        "Argo counts one number of retries, so interruptions use up retries meant for failures (never the reverse)",
        "give the step a checkpoint, or set runtime.state in the site: gpuflow-run then counts both budgets",
    ),
    (
        "GF305",
        "spot",
        leaves_spot_early,
        "fallback_after counts every retry on Argo, including failures, but not pods that Argo recreates on its "
        "own after a node was lost",
        "write retry: {interruptions: N} alone, or set fallback_after high enough to include failures",
    ),
    (
        "GF305",
        "spot",
        lambda each: bool(each.step.spot and each.step.spot.fallback_after) and not falls_back(each.step),
        "fallback_after is never reached: retry allows fewer attempts",
        "let retry allow at least fallback_after attempts more",
    ),
    (
        "GF305",
        "retry",
        lambda each: bool(each.step.retry and each.step.retry.more_memory) and each.step.memory is None,
        "more_memory has no effect: the step does not say how much memory it starts with",
        "give the step memory",
    ),
)


@rule("GF305", "GF322", "GF324", "GF379", "GF380")
def step_notes(request: Request) -> Iterator[Finding]:
    """One note for each thing of `NOTES` that holds, with the steps it holds for."""
    plan, site = request.plan, request.site
    for _, steps in plan.pipelines:
        for code, field, applies, text, hint in NOTES:
            found = [each for each in steps if each.kind == "container" and applies(each)]
            if found:
                text = text.replace("JobSets", SPELLINGS[site.gangs.made_as].plural)
                names = tuple(each.own_name for each in found)
                yield Finding(code, f"{named_steps(names)}: {text}", found[0].where(field), hint, "note")


@rule("GF319", severity="note")
def many_workloads(request: Request) -> Iterator[Problem]:
    """Fan-outs in a queue, of which each pod is a Workload of Kueue's."""
    for each in request.plan.containers:
        queue, copies = each.step.queue or request.site.queue, each.copies_in_run
        if queue is not None and copies is not None and copies >= MANY and each.step.gang is None:
            text = f'step "{each.name}": {copies} pods in queue {queue} are {copies} Kueue Workloads'
            hint = "limit the fan-out with parallel, or give each pod several items"
            yield Problem(text, each.where("for_each"), hint)


@rule("GF321")
def small_containers(request: Request) -> Iterator[Problem]:
    """Containers that Argo cannot start in the memory that they may use."""
    assert FACTS.launcher_memory is not None
    least = Quantity(FACTS.launcher_memory)
    for each in request.plan.containers:
        step = each.step
        asked = [amount for amount in (step.memory, *(helper.memory for helper in step.sidecars)) if amount is not None]
        patched = step.kubernetes is not None and step.kubernetes.merge is not None
        # The ranks of a gang are no pods of Argo's. A pod is made for its wording, and for a patch that may change it.
        if step.gang is not None or not asked or not (patched or any((a.limit or least) < least for a in asked)):
            continue
        try:
            pod = pod_of(each)
        except GpuflowError:
            continue  # said by whoever makes the pod
        for name, limit in too_small_containers(pod, FACTS):
            yield Problem(
                f'step "{each.name}": container "{name}" may use {limit} of memory, and Argo starts it through '
                f"argoexec, which needs {FACTS.launcher_memory}",
                each.where(),
                f"give it a memory limit of {FACTS.launcher_memory} or more",
            )


@rule("GF317", severity="note")
def token(request: Request) -> Iterator[Problem]:
    """Programs that hold a token of Argo's own."""
    engine = request.site.engine(FACTS.name)
    if engine.executor is None:
        held = "the programs of steps hold a token that may write the results of other steps"
        if engine.service_account is None:
            # Unless somebody has bound a Role to it, the default account may not: each step then ends in an error.
            held = (
                "no account is named: with the namespace's default account, Argo fails every step, unless that account "
                "may create workflowtaskresults; the programs of steps then hold its token"
            )
        hint = "name an account for Argo's own containers: engines.argo.executor in the site (gpuflow site executor)"
        yield Problem(held, Where(request.pipeline.source.file), hint)


@rule("GF305", severity="note")
def no_schedule_in_kind(request: Request) -> Iterator[Problem]:
    """What the kind that is asked for leaves out."""
    kind = request.options_as(ArgoOptions).kind
    if request.pipeline.schedule and kind not in (None, "CronWorkflow"):
        text = f"schedule: a {kind} has none, so nothing starts it on a schedule"
        yield Problem(text, request.pipeline.where("schedule"), "compile without --as for a CronWorkflow")


RULES: Final[tuple[Rule[Request], ...]] = (
    step_notes, many_workloads, small_containers, token, without_schedule, alert_notes, no_schedule_in_kind,
)  # fmt: skip
