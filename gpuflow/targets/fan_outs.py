"""How large a fan-out may be where its items stand in the artifact, one by one."""

from __future__ import annotations

import math

from gpuflow.errors import Finding, Where
from gpuflow.spec.fan_out import product_of, written_sizes
from gpuflow.spec.step import Step

MOST_ITEMS = 100_000
"""More items than that fit into no object of Kubernetes, and each is a pod."""


def fan_out_finding(step: Step, name: str, engine: str, where: Where) -> Finding | None:
    """A refusal when the lists of the document multiply to more than the engine's artifact could hold."""
    sizes = written_sizes(step.for_each or {})
    if math.prod(sizes) <= MOST_ITEMS:
        return None
    text = f'step "{name}": the fan-out makes {product_of(sizes)}; {MOST_ITEMS:,} is the most for {engine}'
    return Finding("GF313", text, where, "let each copy work through several items, or split the pipeline")
