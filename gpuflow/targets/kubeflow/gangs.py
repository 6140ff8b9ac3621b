"""Gangs on Kubeflow: the task's own pod looks after a JobSet, whose pods KFP knows nothing of.

So what KFP cannot say of a pod, the ranks of a gang can have all the same. What it does not do is start a launcher
again that was lost: its installation decides that. The launcher's pod owns the gang, so that no rank works on that
nobody looks after.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpuflow.core.errors import Finding, rule
from gpuflow.plan import Plan, PlannedStep
from gpuflow.pod import Engine, pod_of
from gpuflow.pod.gang_kinds import SPELLINGS, Refusal, claims_of_the_run, refusals_of
from gpuflow.pod.launcher import launcher_for
from gpuflow.spec.step import Step
from gpuflow.targets.capabilities import LATER_ATTEMPTS, named_steps, refusal
from gpuflow.targets.constructs import POD
from gpuflow.targets.kubeflow.containers import PLACEHOLDER
from gpuflow.targets.kubeflow.facts import FACTS
from gpuflow.targets.kubeflow.references import BRACE, KubeflowSpelling

OWNER = "pod"
ACCOUNT = "pipeline-runner"
"""The account of a run that names none, in a KFP without users of its own."""
BY_RANKS = frozenset(
    (
        *POD,
        *LATER_ATTEMPTS,
        "checkpoint.scratch",
        "inputs.size",
        "outputs.size",
        "queue_timeout",
        "retry.any",
        "retry.backoff",
        "retry.failures",
        "retry.final_exit_codes",
        "retry.interruptions",
        "retry.retryable_exit_codes",
    )
)
"""Constructs that the ranks and their launcher keep: KFP has no part in them."""


def is_filled_in(text: str) -> bool:
    """Whether KFP, or the kubelet after it, has something to put into the text."""
    return PLACEHOLDER in text or f"$({BRACE})" in text


def task_pod(each: PlannedStep, spelling: KubeflowSpelling, engine: Engine) -> dict[str, Any]:
    """The pod that KFP starts for a step: its own, or the one that looks after its gang."""
    if each.step.gang is None:
        return pod_of(each, spelling, engine)
    account = each.site.engine(FACTS.name).service_account
    ranks = {} if account is None else {"serviceAccountName": account}
    return launcher_for(each, spelling, engine, is_filled_in, ranks, owner=OWNER)


def own_pods(plan: Plan) -> list[PlannedStep]:
    """The steps whose pods KFP itself makes."""
    return [each for each in plan.containers if each.step.gang is None]


@refusal("GF378")
def gang_findings(plan: Plan) -> Iterator[Finding]:
    """One finding for each thing that the launcher of a step could not keep."""
    for each in plan.containers:
        if each.step.gang is not None:
            for field, problem, hint in (*_refusals(each.step, plan.site.gangs.made_as), *_in_loop(each)):
                yield Finding("GF378", f'step "{each.name}": {problem}', each.where(*field), hint)


def _refusals(step: Step, kind: str) -> Iterator[Refusal]:
    yield from refusals_of(step, kind)
    if step.cache:
        hint = "remove cache, or let a step after it, with cache: true, do what can be kept"
        yield ("cache",), "KFP would find the result of the pod that looks after the gang, not of its ranks", hint
    for name, output in step.outputs.items():
        if output.kind is not None:
            hint = "remove kind: steps that read the output get its address as before"
            yield ("outputs", name), f"the files of {name} are with rank 0, and KFP looks in the launcher's pod", hint
    yield from claims_of_the_run(step, "KFP")


def _in_loop(each: PlannedStep) -> Iterator[Refusal]:
    above = each.parent
    while above is not None:
        if above.step.for_each:
            hint = "write for_each on the gang's own step, or pass the item to pipelines of their own"
            yield ("gang",), f'the copies of "{above.name}" do not know their item, and would share one gang', hint
            return
        above = above.parent


@rule("GF389", severity="note")
def account_notes(plan: Plan) -> Iterator[Finding]:
    """One note about all gangs: who may create them, and who else holds that right."""
    gangs = [each for each in plan.containers if each.step.gang is not None]
    if not gangs:
        return
    account, objects = plan.site.engine(FACTS.name).service_account, SPELLINGS[plan.site.gangs.made_as].plural
    whose = f'"{account}"' if account else f'"{ACCOUNT}" where nobody names another (engines.kubeflow.service_account)'
    ranks = "" if account else "; the ranks have the account that the step names, or the namespace's default one"
    unused = plan.site.gangs.service_account
    other = f'; gangs.service_account, "{unused}", is for other engines' if unused not in (None, account) else ""
    yield Finding(
        "GF389",
        f"{named_steps(tuple(each.name for each in gangs))}: KFP gives all pods of a run one account, {whose}: it must "
        f"be allowed to create {objects}, and every program that KFP starts in the run then holds that right"
        f"{ranks}{other}",
        gangs[0].where("gang"),
        "apply what gpuflow site gang --engine kubeflow prints, once in each namespace in which runs start",
        "note",
    )
