"""What a step with budgets promises, written down from the outside: nothing here asks the code under test.

A case is one step, its budgets, and its acts: what happens to each of its pods, one after another. When the acts are
over, the program succeeds. An act is `kind` or `kind:word`:

- by the program: `exit:N`; `kill` (it kills itself); `oom` (it runs into its memory limit); `timeout:A` (it hangs until
  its time is over); `disk:volume`, `disk:layer`, `disk:pod` (it fills an emptyDir over its size, its container over its
  ephemeral-storage limit, or both together over the pod's);
- by the cluster: `delete:A`, `force:A`, `evict:A`, `taint:A`, `preempt:A`, `kueue:A`, while the program runs;
- by the node: `oomgroup` (out of memory, and the kernel ends everything in the container at once, as
  `memory.oom.group` does), `crash` (everything in the container is killed), `supervisor` (the first process of the step
  is killed), `wait` (Argo's own container is killed, then the program succeeds);
- before the program runs: `init-evict`, `init-delete` (while an init container runs), `init-exit:N` (it fails), and
  what stands in `HELD` and `WRITTEN`.

The program answers SIGTERM with exit code A, or not at all: `never`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Engine = Literal["argo", "airflow"]
Care = Literal["supervised", "alone"]
SUCCEEDED, FAILED = "succeeded", "failed"
FAILURE, INTERRUPTION = "failure", "interruption"
KILLED = 137
TOLD_TO_STOP = "exit:143"
"""Without a supervisor nobody can tell this from a program that was told to stop and stopped."""

BY_CLUSTER = ("delete", "force", "evict", "taint", "preempt", "kueue")
BY_NODE = ("oomgroup", "crash", "supervisor", "wait")
BY_PROGRAM = ("exit", "kill", "oom", "timeout", "disk")
INIT = ("init-evict", "init-delete", "init-exit")
HELD = ("image", "secret", "quota", "full", "gated")
"""It cannot start yet, and starts when the obstacle is gone: that costs nothing."""
WRITTEN = ("shutdown", "rejected", "pressure", "critical", "unknown", "vanished")
"""The pod is on a simulated node. All but `vanished` are written into its status as a kubelet writes them."""
REFUSED = ("forbidden", "limits")
"""The API server refuses the pod, and always will."""
HOPELESS = ("not-found", "closed")
"""The program is not there; the supervisor cannot work. It is tried, and fails."""

COSTS: Mapping[str, str | None] = {
    **dict.fromkeys(("exit", "kill", "oom", "oomgroup", "timeout", "disk", *HOPELESS), FAILURE),
    **dict.fromkeys((*BY_CLUSTER, "crash", "supervisor", *WRITTEN), INTERRUPTION),
    **dict.fromkeys((*HELD, "wait"), None),
}
NO_CODE = ("oom", "oomgroup", "timeout", "disk")
"""Whoever ends the program here is not the program: a step's own lists of exit codes say nothing about it."""


@dataclass(frozen=True)
class Case:
    """One step, its budgets, and what happens to it. `plain`: written as `retry: N`."""

    name: str
    engine: Engine
    care: Care
    failures: int
    interruptions: int
    acts: tuple[str, ...]
    plain: bool = False
    final: tuple[int, ...] = ()
    outcome: str = ""
    """Of a row: what the table of evidence says of the first act."""
    step: Mapping[str, Any] = field(default_factory=dict)
    """More of the step, as it stands in a pipeline."""

    @property
    def supervised(self) -> bool:
        return self.care == "supervised"

    def has(self, *kinds: str) -> bool:
        return any(kind_of(act) in kinds for act in self.acts)


@dataclass(frozen=True)
class End:
    """How a case ends: its state, how often the program was started, and what was counted."""

    state: str
    starts: int
    failures: int
    interruptions: int


def kind_of(act: str) -> str:
    return act.partition(":")[0]


def starts_program(act: str) -> bool:
    """Whether the program runs in the pod that this happens to."""
    return kind_of(act) in (*BY_PROGRAM, *BY_CLUSTER, *BY_NODE)


def cost(case: Case, act: str) -> str | None:
    """Which budget an act costs."""
    kind = kind_of(act)
    if kind in INIT:
        return init_cost(case, kind)
    if act == TOLD_TO_STOP and not case.supervised:
        return INTERRUPTION
    return COSTS[kind]


def init_cost(case: Case, kind: str) -> str | None:
    """Before the program runs: Argo makes a pod again that was taken away while it was pending, and counts nothing.

    The operator on Airflow sees every pod, and counts each that was taken away. An init container that fails costs a
    failure there; on Argo a retry, of which the supervisor that never ran has nothing in its book.
    """
    if case.engine == "argo":
        return None
    return FAILURE if kind == "init-exit" else INTERRUPTION


def costs(case: Case) -> list[str | None]:
    """Which budget each act costs, in order."""
    found = [cost(case, act) if kind_of(act) not in REFUSED else None for act in case.acts]
    for number, act in enumerate(case.acts[:-1]):
        if is_untold(case, act, case.acts[number + 1]):
            found[number] = INTERRUPTION
    return found


def is_untold(case: Case, act: str, following: str) -> bool:
    """Whether what only Argo knew is lost: the pod that was to be told is taken away before its supervisor runs.

    Argo makes that pod again, and then speaks of the pod itself as the last one (executeTemplate in operator.go, 4.0.2,
    line 2368 to 2406). The supervisor has no end of the attempt before, or only that it was told to stop: an
    interruption, since nobody knows better.
    """
    by_engine = kind_of(act) in ("oomgroup", "disk")
    return (
        case.engine == "argo" and case.supervised and by_engine and kind_of(following) in ("init-evict", "init-delete")
    )


def is_final(case: Case, act: str) -> bool:
    """Whether the step calls this end final."""
    kind, _, word = act.partition(":")
    if kind == "not-found":
        return True
    if kind in NO_CODE or not case.final:
        return False
    return (KILLED if kind == "kill" else int(word) if kind == "exit" else None) in case.final


def promised(case: Case) -> End:
    """What the budgets promise."""
    failures = interruptions = starts = 0
    for act, budget in zip((*case.acts, "exit:0"), (*costs(case), None), strict=True):
        starts += starts_program(act)
        if act == "exit:0" or kind_of(act) == "wait":
            return End(SUCCEEDED, starts, failures, interruptions)
        if kind_of(act) in REFUSED:
            return End(FAILED, starts, failures, interruptions)
        failures += budget == FAILURE
        interruptions += budget == INTERRUPTION
        if case.plain:
            # A plain number is what users of the engines know: so many tries more, whatever ended the last one.
            over = failures + interruptions > case.failures
        else:
            over = failures > case.failures or interruptions > case.interruptions
        if over or (budget == FAILURE and is_final(case, act)):
            return End(FAILED, starts, failures, interruptions)
    raise AssertionError("the last act is a success")


def cut_short(case: Case, starts: int) -> End:
    """What was counted when the engine gave up after so many starts of the program."""
    pairs = zip(case.acts, costs(case), strict=True)
    spent = [budget for act, budget in pairs if starts_program(act)][:starts]
    return End(FAILED, starts, spent.count(FAILURE), spent.count(INTERRUPTION))


def faults(case: Case) -> int:
    """How many of its acts are faults that happen before it ends."""
    reached, failures, interruptions = 0, 0, 0
    for act, budget in zip(case.acts, costs(case), strict=True):
        if act == "exit:0":
            break
        reached += 1
        failures += budget == FAILURE
        interruptions += budget == INTERRUPTION
        over = failures > case.failures or interruptions > case.interruptions
        if case.plain:
            over = failures + interruptions > case.failures
        if over or (budget == FAILURE and is_final(case, act)):
            break
    return reached
