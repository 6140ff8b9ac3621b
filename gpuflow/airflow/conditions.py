"""When a task runs at all: its condition, and for exit steps whether anything failed."""

from __future__ import annotations

from typing import Any

from airflow.providers.common.compat.sdk import AirflowSkipException

from gpuflow.airflow.references import Context, Value


def skip_unless_due(task: Any, context: Context) -> None:
    """Skip a task whose condition is false, or that waits for a failure which did not happen."""
    if task.when is not None:
        due = task.when.value(context) if isinstance(task.when, Value) else bool(task.when)
        if not due:
            raise AirflowSkipException(f"not due: {task.when!r} is false")
    if getattr(task, "only_after_failure", False) and not _anything_failed(task, context):
        raise AirflowSkipException("nothing failed before it")


def _anything_failed(task: Any, context: Context) -> bool:
    ti = context["ti"]
    states = ti.get_task_states(dag_id=ti.dag_id, task_ids=sorted(task.upstream_task_ids), run_ids=[ti.run_id])
    return any(state in ("failed", "upstream_failed") for found in states.values() for state in found.values())
