"""What a reader should know about the pods of a pipeline, although nothing is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpuflow.core.errors import Finding, GpuflowError, Problem, Rule, join_names, rule
from gpuflow.plan import Plan, PlannedStep
from gpuflow.pod.build import leader_pod, made_pod
from gpuflow.pod.gang_kinds import DEFAULT, SPELLINGS
from gpuflow.pod.patch import overridden
from gpuflow.pod.placement import REQUIRED_TOPOLOGY, asks_kueue
from gpuflow.site import Site

TORCHRUN = ("torchrun", "torch.distributed")
"""How a program that starts torchrun names it."""


@rule("GF373", severity="note")
def overrides(plan: Plan) -> Iterator[Problem]:
    """One note for all steps whose patches override the same: an imported pipeline says the same in every step."""
    alike: dict[tuple[str, ...], list[PlannedStep]] = {}
    for each in plan.containers:
        if paths := _overridden(each):
            alike.setdefault(paths, []).append(each)
    for paths, steps in alike.items():
        shown = ", ".join(paths[:6]) + (f" and {len(paths) - 6} more" if len(paths) > 6 else "")
        names = join_names([f'"{each.name}"' for each in steps])
        message = f"{'step' if len(steps) == 1 else 'steps'} {names}: kubernetes.merge overrides {shown}"
        hint = "take out of the patch what is not meant"
        yield Problem(message, steps[0].where("kubernetes", "merge"), hint)
    for each in plan.containers:
        if paths := _overridden(each, leads=True):
            message = f'step "{each.name}", the leader: kubernetes.merge overrides {join_names(paths)}'
            place = each.where("gang", "leader", "kubernetes", "merge")
            yield Problem(message, place, "take out of the patch what is not meant")


def _overridden(each: PlannedStep, *, leads: bool = False) -> tuple[str, ...]:
    gang = each.step.gang
    part = each.step if not leads else None if gang is None else gang.leader
    if part is None or part.kubernetes is None or part.kubernetes.merge is None:
        return ()
    try:
        made = leader_pod(each) if leads else made_pod(each)
        return () if made is None else tuple(overridden(made.plain, made.manifest))
    except GpuflowError:
        return ()  # said by whoever makes the pod


@rule("GF377", "GF399", "GF410", "GF414", "GF415")
def step_notes(plan: Plan) -> Iterator[Finding]:
    """On hooks that take the supervisor's time, and on the pods of gangs; step by step."""
    for each in plan.containers:
        yield from _hooks(each)
        yield from _topology(each, plan.site)
        yield from _torchrun(each)
        yield from _mpi(each)


def _hooks(each: PlannedStep) -> Iterator[Finding]:
    """A hook of unknown length comes before SIGTERM, and the supervisor gets what is left."""
    hook = each.step.lifecycle.pre_stop if each.step.lifecycle is not None else None
    if hook is None or hook.sleep is not None or not each.supervision.is_supervised:
        return
    message = f'step "{each.name}": pre_stop takes its time from termination_grace, and the supervisor gets the rest'
    hint = "raise termination_grace by the longest time that the hook takes"
    yield Finding("GF377", message, each.where("lifecycle", "pre_stop"), hint, "note")


@rule("GF409", severity="note")
def gang_kind(plan: Plan) -> Iterator[Problem]:
    """One note for all gangs that are no JobSets, or that the cluster's scheduler does not place."""
    gangs, kind = [each for each in plan.containers if each.step.gang is not None], plan.site.gangs.made_as
    if not gangs or kind == DEFAULT:
        return
    spelled = SPELLINGS[kind]
    names = join_names([f'"{each.name}"' for each in gangs])
    queued = spelled.kind.in_kueue and any(each.step.queue or plan.site.queue for each in gangs)
    steps = "step" if len(gangs) == 1 else "steps"
    message = f"{steps} {names}: each attempt is a {spelled.kind.name}, {spelled.notes}"
    hint = f"the cluster needs {spelled.needs}"
    hint += f", and Kueue's configuration the integration {spelled.kind.integration}" if queued else ""
    yield Problem(message, gangs[0].where("gang"), hint)


def _torchrun(each: PlannedStep) -> Iterator[Finding]:
    """All pods of a gang are nodes of torchrun's world: a leader that does not start it lets the others wait."""
    gang = each.step.gang
    leader = None if gang is None else gang.leader
    if gang is None or leader is None or gang.rendezvous.framework != "torchrun":
        return
    words = [leader.script.run] if leader.script is not None else [*leader.command, *leader.args]
    has_own = bool(leader.command) or leader.script is not None
    if not has_own or any(name in str(word) for word in words for name in TORCHRUN):
        return
    message = (
        f'step "{each.name}": for torchrun the leader is node 0, and its own program does not start torchrun: the '
        "workers would wait for it"
    )
    hint = "start torchrun in the leader too, or use framework: env and give the workers' torchrun a world of their own"
    yield Finding("GF410", message, each.where("gang", "leader"), hint, "warning")


def _mpi(each: PlannedStep) -> Iterator[Finding]:
    """Only rank 0 has a program under MPI, and only what is in its pod is kept."""
    gang = each.step.gang
    leader = None if gang is None else gang.leader
    if gang is None or leader is None or gang.rendezvous.framework != "mpi":
        return
    if leader.command or leader.script is not None:
        message = f'step "{each.name}": the workers run what mpirun starts, so that the step\'s own program never runs'
        hint = "let the step say what the leader runs, mpirun …, and leave the program out of gang.leader"
        yield Finding("GF414", message, each.where("gang", "leader"), hint, "warning")
    # Sharded ones as well: a part of every rank belongs to them, the leader's too.
    parts = {"outputs": bool(each.step.outputs), "checkpoints": each.step.checkpoint is not None}
    if ("gpu",) in leader.nulls and any(parts.values()):
        what = " and ".join(name for name, is_used in parts.items() if is_used)
        message = f'step "{each.name}": {what} are taken from the leader\'s pod, in which mpirun starts no process'
        hint = "leave the leader out: then process 0 is in the pod of rank 0; or write them in the leader, after mpirun"
        yield Finding("GF415", message, each.where("gang", "leader"), hint, "warning")


def _topology(each: PlannedStep, site: Site) -> Iterator[Finding]:
    """Who keeps the pods of a gang together: Kueue as a whole, or the scheduler, pod by pod."""
    step = each.step
    if step.gang is None or step.topology is None or step.topology.same is None:
        return
    level, queue = step.topology.same, step.queue or site.queue
    label = getattr(site.topology, level)
    if label is None:
        return  # said by whoever makes the pod
    where = each.where("topology", "same")
    if asks_kueue(step, site):
        text = f'step "{each.name}": Kueue places the gang in one {level} as a whole, by {label} ({REQUIRED_TOPOLOGY})'
        hint = f"the flavors of queue {queue} need a Topology with this level: gpuflow check says whether they have it"
    else:
        text = f'step "{each.name}": the scheduler keeps the gang in one {level}, by affinity on {label}, pod by pod'
        hint = "the first pod decides, and the others may find no room there"
        if queue is not None and SPELLINGS[site.gangs.made_as].kind.in_kueue:
            hint += f"; if the flavors of queue {queue} have a Kueue Topology, name it in topology.queues of the site"
    yield Finding("GF399", text, where, hint, "note")


NOTES: Final[tuple[Rule[Plan], ...]] = (overrides, step_notes, gang_kind)


def pod_notes(plan: Plan) -> Iterator[Finding]:
    return (finding for each in NOTES for finding in each(plan))
