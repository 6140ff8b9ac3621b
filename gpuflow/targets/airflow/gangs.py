"""What a gang cannot have yet on Airflow, and what a reader should know of one that stock operators run."""

from __future__ import annotations

from collections.abc import Iterator

from gpuflow.errors import Finding
from gpuflow.plan import PlannedStep
from gpuflow.pod.gang_kinds import SPELLINGS, Refusal, refusals_of
from gpuflow.pod.restarts import writes_xcom
from gpuflow.spec.step import Step
from gpuflow.spec.text import RunRef
from gpuflow.targets.airflow.options import AirflowOptions
from gpuflow.targets.airflow.pools import slots
from gpuflow.targets.constructs import Use
from gpuflow.targets.frame import Request
from gpuflow.targets.gang_uses import LATER
from gpuflow.targets.losses import named_steps

BY_LAUNCHER = frozenset(("retry.final_exit_codes", "retry.interruptions", "retry.retryable_exit_codes", *LATER))
"""What the pod that looks after a gang keeps, where the stock operator could not."""


def gangs_of(request: Request) -> list[PlannedStep]:
    """The steps that are gangs."""
    return [each for each in request.plan.containers if each.step.gang is not None]


def kept_by_launcher(request: Request, use: Use) -> bool:
    """Whether the launcher of a gang keeps what the stock operator cannot."""
    return use.construct in BY_LAUNCHER and use.step in {each.name for each in gangs_of(request)}


def gang_findings(request: Request) -> Iterator[Finding]:
    """One finding for each thing that the operator of a gang, or its launcher, could not keep."""
    standalone = request.options_as(AirflowOptions).standalone
    for each in gangs_of(request):
        asked = [*gang_refusals(each.step, request.site.gangs.made_as), *_counted(each)]
        asked += _of_launcher(each.step) if standalone else ()
        asked += _in_pools(each.step, request) if request.options_as(AirflowOptions).pools else ()
        for field, problem, hint in asked:
            yield Finding("GF378", f'step "{each.name}": {problem}', each.where(*field), hint)


def gang_refusals(step: Step, kind: str) -> Iterator[Refusal]:
    """What no gang on Airflow can have. `kind`: as the site says it."""
    if step.gang is None:
        return
    yield from refusals_of(step, kind)
    if writes_xcom(step):
        hint = "write each output to $GPUFLOW_OUTPUTS/<name> on rank 0, and remove outputs_from"
        yield ("outputs_from",), "Airflow reads no /airflow/xcom/return.json of a rank", hint


def _of_launcher(step: Step) -> Iterator[Refusal]:
    """What only the operator can fill in for each attempt."""
    for place, ref in step.references():
        if isinstance(ref, RunRef) and ref.field == "attempt":
            hint = "let the program read $GPUFLOW_ATTEMPT, or compile without --standalone"
            problem = "the attempts of a gang are not Airflow's tries: {run: attempt} is not known"
            yield tuple(map(str, place[:1])), problem, hint


def _counted(each: PlannedStep) -> Iterator[Refusal]:
    """`parallel` counts pods, and the ranks of a gang are none that Airflow's operators could count."""
    around = [each.pipeline.parallel]
    above = each.parent
    while above is not None:
        around += [above.step.parallel, above.pipeline.parallel]
        above = above.parent
    if any(limit is not None for limit in around):
        hint = "remove parallel, and let steps wait for each other with needs, or give the gang a Kueue queue"
        yield ("gang",), "the pipeline's parallel counts pods, and Airflow cannot count the ranks of a gang", hint


def _in_pools(step: Step, request: Request) -> Iterator[Refusal]:
    taken = sorted(slots(step, request.site))
    if len(taken) > 1:
        hint = "give the leader the same kind of GPU as the workers, or none, or compile without pools"
        pools = " and ".join(taken)
        yield ("gang", "leader"), f"a task of Airflow is in one pool, and the gang takes from {pools}", hint


def gang_notes(request: Request) -> Iterator[Finding]:
    """Who looks after the gangs, what that needs, and what is weaker where it is a pod of the stock operator."""
    gangs = gangs_of(request)
    if not gangs:
        return
    names, where = named_steps(tuple(each.name for each in gangs)), gangs[0].where("gang")
    objects = SPELLINGS[request.site.gangs.made_as].plural
    if not request.options_as(AirflowOptions).standalone:
        text = f"{names}: the accounts of Airflow's workers and triggerer must be allowed to create {objects}"
        hint = "apply what gpuflow site gang --engine airflow prints, once in each namespace in which gangs run"
        yield Finding("GF388", text, where, hint, "note")
        return
    if request.site.gangs.service_account is None:
        text = f"{names}: the pod that looks after the gang must be allowed to create {objects}, and the site names no "
        hint = "set gangs.service_account in the site, and apply what gpuflow site gang prints"
        yield Finding("GF379", text + "account for it", where, hint, "note")
    text = (
        f"{names}: a pod of the stock operator looks after the gang. A task that is cleared after it failed finds the "
        "same counts, and fails again; a pod that is lost in the last of its 4 tries leaves the gang working until it "
        "ends by itself"
    )
    hint = f"compile without --standalone, or delete the gang's {objects} (label gpuflow.dev/step) by hand"
    yield Finding("GF388", text, where, hint, "note")
