"""Gangs on any engine: what it has no part in, since the launcher or the ranks keep it."""

from __future__ import annotations

from collections.abc import Collection

from gpuflow.plan import Plan
from gpuflow.targets.constructs import Use

LATER = ("retry.more_memory", "retry.other_node", "spot.fallback_after")
"""What makes a later attempt different from the first: the launcher makes each attempt of a gang anew."""


def asked_of_engine(plan: Plan, used: tuple[Use, ...], carried: Collection[str]) -> tuple[Use, ...]:
    """The uses that an engine's table answers for. `carried`: what steps with a gang have whatever the engine can."""
    gangs = {each.name for each in plan.containers if each.step.gang is not None}
    return tuple(use for use in used if use.construct not in carried or use.step not in gangs) if gangs else used
