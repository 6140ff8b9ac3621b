"""GPU steps in Airflow 3.

    from gpuflow.airflow import to_dag
    dag = to_dag("pipeline.yaml", site="site.yaml")         # a whole pipeline

    from gpuflow.airflow import gpu_step, gpu_task
    train = gpu_step(step, namespace="nlp")                 # one GPU step in a DAG of your own
    extract >> train >> publish

    @gpu_task(image="registry.example.com/train:1", gpu=1)  # a function in a pod with a GPU
    def embed(path: str) -> int: …

`task` is `gpu_step` under its first name, which shadows Airflow's own `task`.

Compiled DAG files import from here too. Names load when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpuflow.airflow.alerts import mail_alert, pagerduty_alert, slack_alert, webhook_alert
    from gpuflow.airflow.approvals import Approve
    from gpuflow.airflow.attempts import LOST_WORKERS
    from gpuflow.airflow.dags import to_dag
    from gpuflow.airflow.functions import gpu_task
    from gpuflow.airflow.gang_operator import GpuGangOperator
    from gpuflow.airflow.limits import at_most, deadline
    from gpuflow.airflow.operator import GpuPodOperator
    from gpuflow.airflow.pods import Pod
    from gpuflow.airflow.references import (
        attempt,
        began,
        claim,
        combinations,
        dag_run_id,
        interval_start,
        item,
        join,
        logical_date,
        output,
        param,
        run_began,
        run_id,
    )
    from gpuflow.airflow.single_step import gpu_step, task
    from gpuflow.airflow.tasks import DeleteClaim, ListItems, MakeClaim, Mark

_HOMES = {
    "Approve": "approvals",
    "DeleteClaim": "tasks",
    "GpuGangOperator": "gang_operator",
    "GpuPodOperator": "operator",
    "LOST_WORKERS": "attempts",
    "ListItems": "tasks",
    "MakeClaim": "tasks",
    "Mark": "tasks",
    "Pod": "pods",
    "at_most": "limits",
    "attempt": "references",
    "began": "references",
    "claim": "references",
    "combinations": "references",
    "dag_run_id": "references",
    "deadline": "limits",
    "gpu_step": "single_step",
    "gpu_task": "functions",
    "interval_start": "references",
    "item": "references",
    "join": "references",
    "logical_date": "references",
    "mail_alert": "alerts",
    "output": "references",
    "pagerduty_alert": "alerts",
    "param": "references",
    "run_began": "references",
    "run_id": "references",
    "slack_alert": "alerts",
    "task": "single_step",
    "to_dag": "dags",
    "webhook_alert": "alerts",
}

__all__ = [
    "LOST_WORKERS",
    "Approve",
    "DeleteClaim",
    "GpuGangOperator",
    "GpuPodOperator",
    "ListItems",
    "MakeClaim",
    "Mark",
    "Pod",
    "at_most",
    "attempt",
    "began",
    "claim",
    "combinations",
    "dag_run_id",
    "deadline",
    "gpu_step",
    "gpu_task",
    "interval_start",
    "item",
    "join",
    "logical_date",
    "mail_alert",
    "output",
    "pagerduty_alert",
    "param",
    "run_began",
    "run_id",
    "slack_alert",
    "task",
    "to_dag",
    "webhook_alert",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'gpuflow.airflow' has no attribute {name!r}")
    try:
        value = getattr(importlib.import_module(f"gpuflow.airflow.{_HOMES[name]}"), name)
    except ModuleNotFoundError as missing:
        if missing.name is not None and missing.name.startswith("gpuflow"):
            raise
        from gpuflow.core.errors import EnvironmentFailure, Finding, install_line

        message = f"gpuflow.airflow.{name} needs the package {missing.name}, which is not installed"
        raise EnvironmentFailure(Finding("GF901", message, hint=install_line("airflow"))) from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """What a Python shell completes, before anything is loaded."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
