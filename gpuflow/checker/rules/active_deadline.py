"""The deadline that Argo writes on pods: it decides which quotas a pod counts against.

Argo gives every pod of a run with a deadline what is left of it as `activeDeadlineSeconds`, except those of exit
steps. Such pods are Terminating to a quota with scopes. Kubeflow runs on Argo and does the same; Airflow does not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpuflow.demands import Demand, StepDemand

WRITERS = ("argo", "kubeflow")


def with_deadline(demand: Demand) -> Demand:
    """The demand with the pods as the engine will create them."""
    deadline = demand.pipeline.deadline
    if deadline is None or demand.engine not in WRITERS:
        return demand

    def bounded(step: StepDemand) -> StepDemand:
        if step.name.split(".")[0] in demand.pipeline.exit:
            return step
        spec: dict[str, Any] = {"activeDeadlineSeconds": deadline.seconds, **step.pod["spec"]}
        return replace(step, pod={**step.pod, "spec": spec})

    return replace(demand, steps=tuple(map(bounded, demand.steps)))
