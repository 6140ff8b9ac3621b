"""The deadline that Argo writes on pods: it decides which quotas a pod counts against.

Argo gives every pod of a run with a deadline what is left of it as `activeDeadlineSeconds`, except those of exit
steps. Such pods are Terminating to a quota with scopes. Kubeflow runs on Argo and does the same; Airflow does not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpuflow.demands import Demand, StepDemand
from gpuflow.demands.model import Pod
from gpuflow.engines import facts_of


def with_deadline(demand: Demand) -> Demand:
    """The demand with the pods as the engine will create them."""
    deadline = demand.deadline
    if deadline is None or not facts_of(demand.engine).writes_active_deadline:
        return demand

    def bounded(pod: Pod) -> dict[str, Any]:
        return {**pod, "spec": {"activeDeadlineSeconds": deadline.seconds, **pod["spec"]}}

    def with_bound(step: StepDemand) -> StepDemand:
        return replace(step, pod_sets=tuple(replace(each, pod=bounded(each.pod)) for each in step.pod_sets))

    steps = tuple(step if step.is_exit else with_bound(step) for step in demand.steps)
    driver = None if demand.driver is None else replace(demand.driver, pod=bounded(demand.driver.pod))
    return replace(demand, steps=steps, driver=driver)
