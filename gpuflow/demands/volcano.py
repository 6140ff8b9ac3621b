"""Volcano's queues: what waits there is admitted by Volcano, whose queues and preemptions are not judged."""

from __future__ import annotations

from gpuflow.demands.model import Unseen
from gpuflow.errors import Where

DEFAULT_QUEUE = "default"


def in_volcanos_queue(step: str, queue: str | None, where: Where) -> Unseen:
    """What is not known of a Job of Volcano; it is in a queue always."""
    name = queue or DEFAULT_QUEUE
    return Unseen(
        step,
        f"whether Volcano's queue {name} has room, and what it preempts, only Volcano knows",
        where,
        hint=f"look at it: kubectl describe queues.scheduling.volcano.sh {name}",
        is_placement=True,
    )
