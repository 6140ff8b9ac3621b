"""The rules over documents of other tools."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gpuflow.errors import Finding
from gpuflow.readers.findings.checkpoints import checkpoints_lost, restarted_members, restarts_with_checkpoint
from gpuflow.readers.findings.gangs import gangs_without_scheduling, queue_on_pods
from gpuflow.readers.findings.gpu_limits import gpus_without_limit
from gpuflow.readers.findings.interruptions import retries_on_spot
from gpuflow.readers.findings.schedules import overlapping_schedule
from gpuflow.readers.findings.shared_memory import small_shared_memory
from gpuflow.readers.findings.subject import Subject
from gpuflow.readers.findings.updates import surges

RULES: tuple[Callable[[Subject], Iterator[Finding]], ...] = (
    gpus_without_limit,
    retries_on_spot,
    restarts_with_checkpoint,
    checkpoints_lost,
    restarted_members,
    small_shared_memory,
    gangs_without_scheduling,
    queue_on_pods,
    overlapping_schedule,
    surges,
)
