"""Gangs on any engine: what it has no part in, since the launcher or the ranks keep it, and what none of them takes."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from gpuflow.plan import Plan
from gpuflow.pod.gang_kinds import SPELLINGS
from gpuflow.pod.gang_pytorchjob import NO_LEADER, WITHOUT_LEADER
from gpuflow.runtime.gang_kinds import PYTORCHJOB
from gpuflow.spec.gang import Gang
from gpuflow.targets.constructs import Use

LATER = ("retry.more_memory", "retry.other_node", "spot.fallback_after")
"""What makes a later attempt different from the first: the launcher makes each attempt of a gang anew."""

Refusal = tuple[tuple[str, ...], str, str]
"""The field, what is wrong with it, and the way out."""


def shape_refusals(gang: Gang, kind: str) -> Iterator[Refusal]:
    """What no engine can make of a gang of this kind."""
    if gang.leader is not None and SPELLINGS[kind].kind is PYTORCHJOB:
        yield ("gang", "leader"), f"a PyTorchJob has no leader: {NO_LEADER}", WITHOUT_LEADER


def asked_of_engine(plan: Plan, used: tuple[Use, ...], carried: Collection[str]) -> tuple[Use, ...]:
    """The uses that an engine's table answers for. `carried`: what steps with a gang have whatever the engine can."""
    gangs = {each.name for each in plan.containers if each.step.gang is not None}
    return tuple(use for use in used if use.construct not in carried or use.step not in gangs) if gangs else used
