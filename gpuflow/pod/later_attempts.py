"""The pod of a later attempt: more memory after running out of it, off spot after losing nodes, on another node.

`gpuflow.runtime.gangs.later_attempts` says what such a pod is; the launcher of a gang uses it in the cluster. Airflow's
operator asks here when it starts the next pod; Argo's expressions are written from the same amounts and fields, because
Argo makes the pod itself; a demand holds the pods of the last attempts, which the checker counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gpuflow.quantity import Quantity
from gpuflow.runtime.gangs import later_attempts
from gpuflow.runtime.gangs.later_attempts import EarlierAttempts

if TYPE_CHECKING:
    from gpuflow.pod.build import MadePod
    from gpuflow.spec.policies import Retry
    from gpuflow.spec.step import Step

Pod = Mapping[str, Any]
SCHEDULING_FIELDS = ("nodeSelector", "affinity", "tolerations")
"""What decides between spot and on-demand."""


@dataclass(frozen=True, slots=True)
class MoreMemory:
    """How much more memory an attempt gets after running out of it."""

    factor: float
    max: Quantity

    def amount(self, first: Quantity, times: int) -> Quantity:
        """The memory after running out of it so many times: whole mebibytes, at most `max`, never less than before."""
        if not times or first >= self.max:
            return first
        return Quantity(later_attempts.grown_memory(str(first), str(self.factor), str(self.max), times))


@dataclass(frozen=True, slots=True)
class Changes:
    """What a step's policies change in later attempts, as plain data."""

    more_memory: MoreMemory | None = None
    fallback_after: int | None = None
    """After so many interruptions the pod leaves spot nodes."""
    on_demand: Mapping[str, Any] = field(default_factory=dict)
    """The fields of the pod's spec that are different then; None: not there."""
    other_node: bool = False

    def pod(self, first: Pod, before: EarlierAttempts) -> dict[str, Any]:
        """The pod of the attempt that comes after all that; `first` is the pod of the first attempt."""
        return {**first, "spec": self.at_run_time().spec(first["spec"], before)}

    def at_run_time(self) -> later_attempts.Changes:
        """The same as texts, as the launcher of a gang is told."""
        more = self.more_memory
        factor, most = (None, "0") if more is None else (str(more.factor), str(more.max))
        return later_attempts.Changes(factor, most, self.fallback_after, self.on_demand, self.other_node)


def more_memory_of(retry: Retry | None) -> MoreMemory | None:
    """What a step's retry policy says about memory."""
    policy = retry.more_memory if retry is not None else None
    return None if policy is None else MoreMemory(policy.factor, policy.max)


def memory_by_attempt(first: Quantity, policy: MoreMemory, failures: int) -> list[Quantity]:
    """The memory after running out of it 0, 1, 2 … times. Every OOM is a failure, so there are no more steps."""
    amounts = [first]
    while len(amounts) <= failures and amounts[-1] < policy.max:
        amounts.append(policy.amount(first, len(amounts)))
    return amounts


def on_demand_fields(made: MadePod) -> dict[str, Any]:
    """The scheduling fields of a pod's spec that are different off spot nodes; None: not there."""
    on_spot, plain = made.manifest["spec"], made.off_spot()["spec"]
    return {
        key: plain.get(key)
        for key in (*plain, *on_spot)
        if key in SCHEDULING_FIELDS and plain.get(key) != on_spot.get(key)
    }


def attempts(retry: Retry | None) -> int:
    """How often a step may be tried again."""
    return retry.attempts if retry is not None else 0


def falls_back(step: Step) -> bool:
    """Whether the step's budgets allow so many attempts that it leaves spot nodes."""
    return bool(step.spot and step.spot.fallback_after and attempts(step.retry) >= step.spot.fallback_after)


def changes_of(made: MadePod) -> Changes:
    """What the policies of a step change in its later attempts, in this pod of it."""
    step = made.planned.step
    after = step.spot.fallback_after if step.spot is not None and falls_back(step) else None
    fields = {} if after is None else on_demand_fields(made)
    return Changes(more_memory_of(step.retry), after, fields, step.retry is not None and step.retry.other_node)
