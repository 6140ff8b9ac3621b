"""Whether a deadline ends each run of a schedule on Argo before the next one can start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from gpuflow.core.cron import least_gap
from gpuflow.demands.model import LAUNCHER, Demand

_ON_EXIT: Final = "workflows.argoproj.io/on-exit"


def without_overlap(demand: Demand, schedules: Sequence[str], zone: str | None, late: int) -> Demand:
    """The demand, without overlapping runs where its deadline leaves none.

    `late`: so many seconds after its time Argo may still start a run. Its `activeDeadlineSeconds` counts from the start
    of the Workflow, waiting included. When it has passed, Argo deletes pods that wait, in Kueue's queue too, ends those
    that run, and makes no others (applyExecutionControl of workflow/controller/exec_control.go, v4.0.7).
    """
    if demand.overlap is None or demand.deadline is None or _outlives_deadline(demand):
        return demand
    pods = [each.pod["spec"] for step in demand.steps for each in step.pod_sets]
    grace = max((pod.get("terminationGracePeriodSeconds", 30) for pod in pods), default=0)
    least = least_gap(schedules, zone)
    return demand if least is None or late + demand.deadline.seconds + grace >= least else replace(demand, overlap=None)


def _outlives_deadline(demand: Demand) -> bool:
    """Whether something of a run may be there when its deadline has passed.

    Exit steps run then. Daemons, the agent and what a step creates are ended with the Workflow, or never. Claims of a
    run that failed stay. A gang is an object of its own, which its launcher has to delete.
    """
    pod_sets = [each for step in demand.steps for each in step.pod_sets]
    on_exit = any(step.is_exit for step in demand.steps)
    on_exit = on_exit or any(_ON_EXIT in each.pod["metadata"].get("labels", {}) for each in pod_sets)
    gangs = any(each.name == LAUNCHER for each in pod_sets)
    return on_exit or gangs or not demand.keeps_cap or bool(demand.claims or demand.unseen)
