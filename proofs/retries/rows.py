"""The rows of the table of evidence that a cluster can cause, each as a case that causes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from gpuflow.runtime.base.outcomes import FINAL, INTERRUPTED, NEVER_STARTED, OUT_OF_MEMORY, RETRYABLE, SUCCEEDED
from tests.cluster.nodes import FENCE

from .contract import Case, Engine
from .ground import QUEUE
from .pipelines import EVERYTHING, LATE_IMAGE, PLACE
from .striking import MIG

TIMED_OUT, DISK_LIMIT = "timed out", "disk limit"
BOTH: tuple[Engine, ...] = ("argo", "airflow")
GPU: dict[str, Any] = {"kubernetes": {"resources": {"nvidia.com/gpu": 1}}}
MIGS: dict[str, Any] = {"kubernetes": {"resources": {MIG: 1}}}


@dataclass(frozen=True)
class Cause:
    """What is done to a step, and what the table calls it."""

    name: str
    acts: tuple[str, ...]
    outcome: str
    failures: int = 1
    interruptions: int = 1
    care: str = "supervised"
    engines: tuple[Engine, ...] = BOTH
    final: tuple[int, ...] = ()
    step: dict[str, Any] = field(default_factory=dict)
    smoke: bool = False


def _place(name: str) -> dict[str, Any]:
    """The step goes where the label is, simulated node or real one."""
    tolerations = [{"key": FENCE["key"], "operator": "Exists"}, EVERYTHING]
    return {"kubernetes": {"node_selector": {f"{PLACE}-{name}": "here"}, "tolerations": tolerations}}


CAUSES: tuple[Cause, ...] = (
    Cause("succeeds", ("exit:0",), SUCCEEDED, smoke=True),
    Cause("succeeds-alone", ("exit:0",), SUCCEEDED, care="alone"),
    Cause("fails", ("exit:1",), RETRYABLE),
    Cause("fails-alone", ("exit:1",), RETRYABLE, 1, 0, care="alone"),
    Cause("fails-too-often", ("exit:1", "exit:1"), FINAL),
    Cause("final-code", ("exit:2",), FINAL, 2, 2, final=(2,)),
    Cause("final-code-alone", ("exit:2",), FINAL, 2, 0, care="alone", final=(2,)),
    Cause("own-kill", ("kill",), RETRYABLE, 1, 1),
    Cause("own-kill-alone", ("kill",), RETRYABLE, 1, 0, care="alone"),
    Cause("own-143-alone", ("exit:143",), INTERRUPTED, 0, 1, care="alone"),
    Cause("no-store", ("closed", "closed"), RETRYABLE, step={"description": "closed"}),
    Cause("out-of-memory", ("oom",), OUT_OF_MEMORY, 1, 1, smoke=True),
    Cause("out-of-memory-alone", ("oom",), OUT_OF_MEMORY, 1, 0, care="alone"),
    Cause("out-of-memory-group", ("oomgroup",), OUT_OF_MEMORY, 1, 1, smoke=True),
    Cause("out-of-memory-group-alone", ("oomgroup",), OUT_OF_MEMORY, 1, 0, care="alone"),
    Cause("timeout", ("timeout:143",), TIMED_OUT, smoke=True),
    Cause("timeout-trapped", ("timeout:never",), TIMED_OUT),
    Cause("timeout-alone", ("timeout:143",), TIMED_OUT, 1, 0, care="alone"),
    Cause("timeout-trapped-alone", ("timeout:never",), TIMED_OUT, 1, 0, care="alone"),
    Cause("disk-volume", ("disk:volume",), DISK_LIMIT),
    Cause("disk-layer", ("disk:layer",), DISK_LIMIT),
    Cause("disk-pod", ("disk:pod",), DISK_LIMIT),
    Cause("disk-volume-alone", ("disk:volume",), DISK_LIMIT, 1, 0, care="alone"),
    Cause("deleted", ("delete:143",), INTERRUPTED, smoke=True),
    Cause("deleted-alone", ("delete:143",), INTERRUPTED, 0, 1, care="alone"),
    Cause("deleted-trapped", ("delete:never",), INTERRUPTED),
    Cause("deleted-zero", ("delete:0",), INTERRUPTED),
    Cause("deleted-trapped-alone", ("delete:never",), INTERRUPTED, 0, 1, care="alone", engines=("airflow",)),
    Cause("deleted-zero-alone", ("delete:0",), INTERRUPTED, 0, 1, care="alone", engines=("airflow",)),
    Cause("force-deleted", ("force:143",), INTERRUPTED),
    Cause("force-deleted-alone", ("force:143",), INTERRUPTED, 0, 1, care="alone", engines=("airflow",)),
    Cause("evicted", ("evict:143",), INTERRUPTED),
    Cause("evicted-alone", ("evict:143",), INTERRUPTED, 0, 1, care="alone"),
    Cause("tainted", ("taint:143",), INTERRUPTED),
    Cause("preempted", ("preempt:143",), INTERRUPTED, step=GPU),
    Cause("quota-taken-back", ("kueue:143",), INTERRUPTED, step={"queue": QUEUE}),
    Cause("everything-killed", ("crash",), ""),
    Cause("supervisor-killed", ("supervisor",), ""),
    Cause("wait-killed", ("wait",), SUCCEEDED, engines=("argo",)),
    Cause("image", ("image",), NEVER_STARTED),
    Cause("secret", ("secret",), NEVER_STARTED),
    Cause("quota", ("quota",), NEVER_STARTED, step=MIGS),
    Cause("no-node", ("full",), NEVER_STARTED),
    Cause("queued", ("gated",), NEVER_STARTED),
    Cause("init-fails", ("init-exit:3",), RETRYABLE),
    Cause("init-evicted", ("init-evict",), NEVER_STARTED),
    Cause("forbidden", ("forbidden",), NEVER_STARTED, 0, 0, care="alone"),
    Cause("limits-missing", ("limits",), NEVER_STARTED, 0, 0, care="alone"),
    Cause("not-found", ("not-found",), FINAL, 2, 0, care="alone"),
    Cause("shutdown", ("shutdown",), INTERRUPTED, 0, 1, care="alone"),
    Cause("rejected", ("rejected",), NEVER_STARTED, 0, 1, care="alone"),
    Cause("pressure", ("pressure",), INTERRUPTED, 0, 1, care="alone"),
    Cause("critical", ("critical",), INTERRUPTED, 0, 1, care="alone"),
    Cause("vanished", ("vanished",), INTERRUPTED, 0, 1, care="alone"),
)
PLACED = ("shutdown", "rejected", "pressure", "critical", "unknown", "vanished", "no-node")


def rows(engines: tuple[Engine, ...] = BOTH, *, smoke: bool = False) -> Iterator[Case]:
    """One case for each cause and engine."""
    for cause in CAUSES:
        for engine in engines:
            if engine in cause.engines and (cause.smoke or not smoke):
                yield _case(cause, engine)


def _case(cause: Cause, engine: Engine) -> Case:
    name = f"row-{engine}-{cause.name}"
    step = dict(cause.step)
    if cause.name in PLACED:
        step |= _place(name)
    if cause.acts == ("image",):
        step["image"] = LATE_IMAGE.format(name=name)
    if cause.acts == ("secret",):
        step["env"] = {"KEY": {"secret": name, "key": "key"}}
    if cause.acts == ("gated",):
        step["queue"] = f"closed-{name}"
    if cause.acts == ("not-found",):
        step["command"] = ["no-such-program"]
    if cause.acts == ("forbidden",):
        step["kubernetes"] = {"host_network": True}
    if cause.acts == ("limits",):
        step["priority"] = name
    care: Any = cause.care
    return Case(
        name, engine, care, cause.failures, cause.interruptions, cause.acts,
        final=cause.final, outcome=cause.outcome, step=step,
    )  # fmt: skip
