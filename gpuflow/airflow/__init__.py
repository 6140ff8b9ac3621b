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
    from gpuflow.airflow.alerts import mail_alert as mail_alert
    from gpuflow.airflow.alerts import pagerduty_alert as pagerduty_alert
    from gpuflow.airflow.alerts import slack_alert as slack_alert
    from gpuflow.airflow.alerts import webhook_alert as webhook_alert
    from gpuflow.airflow.approvals import Approve as Approve
    from gpuflow.airflow.attempts import LOST_WORKERS as LOST_WORKERS
    from gpuflow.airflow.dags import to_dag as to_dag
    from gpuflow.airflow.functions import gpu_task as gpu_task
    from gpuflow.airflow.gang_operator import GpuGangOperator as GpuGangOperator
    from gpuflow.airflow.limits import at_most as at_most
    from gpuflow.airflow.limits import deadline as deadline
    from gpuflow.airflow.operator import GpuPodOperator as GpuPodOperator
    from gpuflow.airflow.pods import Pod as Pod
    from gpuflow.airflow.references import attempt as attempt
    from gpuflow.airflow.references import began as began
    from gpuflow.airflow.references import claim as claim
    from gpuflow.airflow.references import combinations as combinations
    from gpuflow.airflow.references import dag_run_id as dag_run_id
    from gpuflow.airflow.references import interval_start as interval_start
    from gpuflow.airflow.references import item as item
    from gpuflow.airflow.references import join as join
    from gpuflow.airflow.references import logical_date as logical_date
    from gpuflow.airflow.references import output as output
    from gpuflow.airflow.references import param as param
    from gpuflow.airflow.references import run_began as run_began
    from gpuflow.airflow.references import run_id as run_id
    from gpuflow.airflow.single_step import gpu_step as gpu_step
    from gpuflow.airflow.single_step import task as task
    from gpuflow.airflow.tasks import DeleteClaim as DeleteClaim
    from gpuflow.airflow.tasks import ListItems as ListItems
    from gpuflow.airflow.tasks import MakeClaim as MakeClaim
    from gpuflow.airflow.tasks import Mark as Mark

_NAMES = {
    "alerts": ("mail_alert", "pagerduty_alert", "slack_alert", "webhook_alert"),
    "approvals": ("Approve",),
    "attempts": ("LOST_WORKERS",),
    "dags": ("to_dag",),
    "functions": ("gpu_task",),
    "gang_operator": ("GpuGangOperator",),
    "limits": ("at_most", "deadline"),
    "operator": ("GpuPodOperator",),
    "pods": ("Pod",),
    "references": (
        "attempt",
        "began",
        "claim",
        "combinations",
        "dag_run_id",
        "interval_start",
        "item",
        "join",
        "logical_date",
        "output",
        "param",
        "run_began",
        "run_id",
    ),
    "single_step": ("gpu_step", "task"),
    "tasks": ("DeleteClaim", "ListItems", "MakeClaim", "Mark"),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = sorted(_HOMES)


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
