"""Existing claims that hold less than what a step puts into them."""

from __future__ import annotations

from collections.abc import Iterator

from gpuflow.checker.nodes.storage import Claim, Storage
from gpuflow.demands.model import Demand
from gpuflow.errors import Finding
from gpuflow.quantity import Quantity


def small_claims(demand: Demand, storage: Storage, namespace: str) -> Iterator[Finding]:
    """A warning for each step and claim. What else lies there is not known, so it is not counted."""
    # The pods of a gang are steps of their own here, and each has the sizes of the whole step.
    put = {
        (step.part_of or step.name, name): size for step in demand.steps for name, size in step.put_into_claims.items()
    }
    for (step, name), taken in put.items():
        claim = storage.claims.get((namespace, name))
        holds = Quantity.zero if claim is None else _holds(claim, storage)
        if holds and taken > holds:
            yield Finding(
                "GF360",
                f'step "{step}": the claim "{name}" holds {holds}, and the inputs and outputs there take {taken}',
                demand.where(step),
                f"raise the claim to {taken} or more, or put files elsewhere",
                severity="warning",
            )


def _holds(claim: Claim, storage: Storage) -> Quantity:
    """What it asked for, or more where it got a larger volume; zero: nothing says it."""
    volume = (storage.volumes or {}).get(claim.volume)
    return max(claim.size, claim.capacity, Quantity.zero if volume is None else volume.size)
