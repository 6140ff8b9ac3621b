"""What the retry contract promises, written down once more and from the outside.

A sequence is a step with two budgets and a script: what happens to each of its attempts. `promised` says how it must
end. Nothing here asks the code under test: the rules are those of the guides.

An act is one of

- `exit:N`: the program ends by itself with code N (0 is success);
- `kill`: the program is killed by a signal of its own making; `oom`: it runs into its memory limit;
- `crash`: everything in the container is killed without a word, the supervisor included;
- `delete:A`, `force:A`, `evict:A`: the pod is deleted, deleted by force, evicted, once Argo has seen it run; `early:A`:
  it is deleted before Argo may have. The program answers SIGTERM with exit code A, or `never`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Care = Literal["checkpoint", "state", "none"]
"""Who counts: the supervisor in the checkpoint's store, the supervisor in the site's state, or Argo's expression."""
SUCCEEDED, FAILED = "Succeeded", "Failed"
TAKEN_AWAY = ("delete", "force", "evict", "early")
KILLED = 137
"""What Kubernetes reports for a process that a SIGKILL ended."""


@dataclass(frozen=True)
class Sequence:
    """A step's policy and what happens to its attempts; when the script is over, an attempt succeeds."""

    name: str
    care: Care
    failures: int
    interruptions: int
    acts: tuple[str, ...]
    final: tuple[int, ...] = ()
    retryable: tuple[int, ...] | None = None
    spot: Mapping[str, Any] = field(default_factory=dict)
    more_memory: Mapping[str, Any] = field(default_factory=dict)

    def act(self, number: int) -> str:
        """What happens to the attempt with this number, counted from 1."""
        return self.acts[number - 1] if number <= len(self.acts) else "exit:0"


@dataclass(frozen=True)
class End:
    """How a sequence ends: the workflow's phase, how often the program was started, and what was spent."""

    phase: str
    starts: int
    failures: int
    interruptions: int


def code_of(act: str) -> int | None:
    """The exit code of a program that ended by itself or answered SIGTERM; None when nobody hears of one."""
    kind, _, word = act.partition(":")
    return KILLED if kind in ("kill", "oom") or word == "never" else int(word) if word else None


def is_final(sequence: Sequence, code: int | None) -> bool:
    """Whether the step calls this exit code the end."""
    if sequence.retryable is not None:
        return code not in sequence.retryable
    return code in sequence.final


def promised(sequence: Sequence) -> End:
    """What the two budgets promise when somebody in the container counts them."""
    failures = interruptions = starts = 0
    while True:
        starts += 1
        act = sequence.act(starts)
        kind = act.partition(":")[0]
        if act == "exit:0":
            return End(SUCCEEDED, starts, failures, interruptions)
        if kind in TAKEN_AWAY or kind == "crash":
            interruptions += 1
            over = interruptions > sequence.interruptions
        else:
            failures += 1
            over = failures > sequence.failures or (kind != "oom" and is_final(sequence, code_of(act)))
        if over:
            return End(FAILED, starts, failures, interruptions)


def possible(sequence: Sequence, *, attentive: bool) -> set[tuple[str, int]]:
    """Phase and starts of a step that Argo's expression alone looks after: the approximation that the guide names.

    Argo knows one number, the retries so far. What looks like an interruption (143, or a pod that is gone) is tried
    again while any of both budgets is left; what looks like a failure only while no more retries were used than there
    are failures allowed. An inattentive controller may miss how a deleted pod ended: then the attempt costs a
    retry as an interruption, or it is made again and costs nothing.
    """
    ends: set[tuple[str, int]] = set()
    open_: set[tuple[int, int]] = {(1, 0)}
    while open_:
        start, retries = open_.pop()
        for look in _looks(sequence, start, attentive=attentive):
            allowed = {
                "interrupted": sequence.failures + sequence.interruptions if sequence.interruptions else 0,
                "failed": sequence.failures,
                "final": 0,
            }
            if look == "succeeded":
                ends.add((SUCCEEDED, start))
            elif look == "made again":
                open_.add((start + 1, retries))
            elif retries < allowed[look]:
                open_.add((start + 1, retries + 1))
            else:
                ends.add((FAILED, start))
    return ends


def _looks(sequence: Sequence, start: int, *, attentive: bool) -> set[str]:
    """What an attempt may look like to Argo."""
    act = sequence.act(start)
    kind, code = act.partition(":")[0], code_of(act)
    if act == "exit:0":
        return {"succeeded"}
    read = "interrupted" if code == 143 else "final" if is_final(sequence, code) else "failed"
    if kind not in TAKEN_AWAY or attentive:
        return {read}
    return {"interrupted", "made again"} if kind == "force" else {read, "interrupted", "made again"}
