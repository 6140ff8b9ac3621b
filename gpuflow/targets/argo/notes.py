"""What Argo does only in part with a given pipeline, and what its users should know about the pods it makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from gpuflow.core.errors import Finding, GpuflowError, Problem, Rule, Where, rule
from gpuflow.engines import too_small_containers
from gpuflow.plan import PlannedStep
from gpuflow.pod import pod_of
from gpuflow.pod.gang_kinds import SPELLINGS
from gpuflow.pod.later_attempts import falls_back
from gpuflow.pod.supervision import saves_to_scratch, scratch_size
from gpuflow.quantity import Quantity
from gpuflow.targets.argo.alerts import alert_notes
from gpuflow.targets.argo.engine_options import given_by_argo
from gpuflow.targets.argo.facts import FACTS, ArgoOptions
from gpuflow.targets.argo.references import without_schedule
from gpuflow.targets.capabilities import named_steps
from gpuflow.targets.target import Request


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
