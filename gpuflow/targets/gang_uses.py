"""Gangs on any engine: what it has no part in, since the launcher or the ranks keep it, and what none of them takes."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from gpuflow.plan import Plan
from gpuflow.pod.gang_kinds import Refusal, refusals_of
from gpuflow.spec.step import Step
from gpuflow.targets.constructs import Use

LATER = ("retry.more_memory", "retry.other_node", "spot.fallback_after")
"""What makes a later attempt different from the first: the launcher makes each attempt of a gang anew."""


def shape_refusals(step: Step, kind: str) -> Iterator[Refusal]:
    """What no engine can make of a gang of this kind."""
    own = list(refusals_of(step, kind))
    yield from own
    if step.gang is not None and step.gang.rendezvous.framework == "mpi" and not own:
        hint = "use torchrun or env, or create an MPIJob by gpuflow-run create"
        yield ("gang", "rendezvous"), "nobody makes keys and a host file for MPI yet", hint


def asked_of_engine(plan: Plan, used: tuple[Use, ...], carried: Collection[str]) -> tuple[Use, ...]:
    """The uses that an engine's table answers for. `carried`: what steps with a gang have whatever the engine can."""
    gangs = {each.name for each in plan.containers if each.step.gang is not None}
    return tuple(use for use in used if use.construct not in carried or use.step not in gangs) if gangs else used
