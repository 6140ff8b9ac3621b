"""What a step's policies change in the pods of its later attempts: more memory, off spot nodes, on another node.

`gpuflow.runtime.gangs.later_attempts` says what such a pod is. The launcher of a gang uses it in the cluster, and so
does Airflow's operator when it starts the next pod; Argo's expressions are written from the same amounts and fields,
because Argo makes the pod itself; a demand holds the pods of the last attempts, which the checker counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuflow.quantity import Quantity
from gpuflow.runtime.gangs.later_attempts import Changes, grown_memory

if TYPE_CHECKING:
    from gpuflow.pod.build import MadePod
    from gpuflow.spec.policies import MoreMemory, Retry
    from gpuflow.spec.step import Step

SCHEDULING_FIELDS = ("nodeSelector", "affinity", "tolerations")
"""What decides between spot and on-demand."""


def memory_by_attempt(first: Quantity, policy: MoreMemory, failures: int) -> list[Quantity]:
    """The memory after running out of it 0, 1, 2 … times. Every OOM is a failure, so there are no more steps."""
    amounts = [first]
    while len(amounts) <= failures and amounts[-1] < policy.max:
        amounts.append(Quantity(grown_memory(str(first), str(policy.factor), str(policy.max), len(amounts))))
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
    retry, after = step.retry, step.spot.fallback_after if step.spot is not None and falls_back(step) else None
    fields = {} if after is None else on_demand_fields(made)
    more = retry.more_memory if retry is not None else None
    factor, most = (None, "0") if more is None else (str(more.factor), str(more.max))
    return Changes(factor, most, after, fields, retry is not None and retry.other_node)
