"""What Argo does only in part with a given pipeline, and what its users should know about the pods it makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from gpuflow.core.errors import Finding, Problem, Rule, Where, rule
from gpuflow.engines import too_small_containers
from gpuflow.pod import pod_for
from gpuflow.pod.gang_kinds import SPELLINGS
from gpuflow.pod.later_attempts import falls_back
from gpuflow.pod.supervision import counts_budgets, saves_to_scratch, scratch_size
from gpuflow.site import Site
from gpuflow.spec.step import Step
from gpuflow.targets.argo.alerts import alert_notes
from gpuflow.targets.argo.engine_options import given_by_argo
from gpuflow.targets.argo.facts import FACTS, ArgoOptions
from gpuflow.targets.argo.references import without_schedule
from gpuflow.targets.capabilities import named_steps
from gpuflow.targets.target import Request


def shares_one_count(step: Step, site: Site) -> bool:
    """Whether the step has both budgets and only Argo counts them."""
    retry = step.retry
    if step.gang is not None:
        return False  # its launcher counts
    return bool(retry and retry.failures and retry.interruptions) and not counts_budgets(step, site)


def has_no_account(step: Step, site: Site) -> bool:
    """Whether the step is a gang and no service account may create it."""
    return step.gang is not None and site.gangs.service_account is None


def leaves_spot_early(step: Step, site: Site) -> bool:
    """Failures count towards falling back as well."""
    if step.gang is not None:
        return False  # its launcher tells them apart
    return falls_back(step) and bool(step.retry and step.retry.after_failures)


def never_leaves_spot(step: Step, site: Site) -> bool:
    """More interruptions are asked for than the budgets allow."""
    return bool(step.spot and step.spot.fallback_after) and not falls_back(step)


def ends_when_drained(step: Step, site: Site) -> bool:
    """A budget for failures alone."""
    return bool(step.retry and step.retry.failures and not step.retry.interruptions)


def fills_the_node(step: Step, site: Site) -> bool:
    """Checkpoints on the node's disk, of any size."""
    return saves_to_scratch(step) and scratch_size(step) is None


def has_no_memory_to_grow(step: Step, site: Site) -> bool:
    return bool(step.retry and step.retry.more_memory) and step.memory is None


def ranks_may_launch(step: Step, site: Site) -> bool:
    """Programs with a token of the account that creates their gang."""
    own = given_by_argo(step, site)
    account = step.service_account or own.get("serviceAccountName")
    holds = step.gang is not None and own.get("automountServiceAccountToken") is not False
    return holds and account is not None and account == site.gangs.service_account


MANY = 100
"""From how many pods of a fan-out in one queue on Kueue is told of each."""
Applies = Callable[[Step, Site], bool]
NOTES: tuple[tuple[str, str, Applies, str, str], ...] = (
    (
        "GF379",
        "gang",
        has_no_account,
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
        ends_when_drained,
        "retry has a budget for failures alone, so a drained, preempted or lost node ends the step",
        "write retry: N to start again whatever ended the step, or add interruptions: N",
    ),
    (
        "GF322",
        "checkpoint",
        fills_the_node,
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
        never_leaves_spot,
        "fallback_after is never reached: retry allows fewer attempts",
        "let retry allow at least fallback_after attempts more",
    ),
    (
        "GF305",
        "retry",
        has_no_memory_to_grow,
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
            found = [each for each in steps if each.kind == "container" and applies(each.step, site)]
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
            yield Problem(
                f'step "{each.name}": {copies} pods in queue {queue} are {copies} Kueue Workloads',
                each.where("for_each"),
                "limit the fan-out with parallel, or give each pod several items",
            )


@rule("GF321")
def small_containers(request: Request) -> Iterator[Problem]:
    """Containers that Argo cannot start in the memory that they may use."""
    for each in request.plan.containers:
        if each.step.memory is None and not any(helper.memory for helper in each.step.sidecars):
            continue
        if each.step.gang is not None:
            continue  # its ranks are no pods of Argo's
        for name, limit in too_small_containers(pod_for(each.pipeline, each.own_name, request.site), FACTS):
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
