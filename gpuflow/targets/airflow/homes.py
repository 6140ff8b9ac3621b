"""The names that a DAG file may use, and where each comes from."""

from __future__ import annotations

_BY_MODULE = {
    "datetime": ("datetime", "timedelta"),
    "zoneinfo": ("ZoneInfo",),
    "airflow.providers.cncf.kubernetes.operators.pod": ("KubernetesPodOperator",),
    "airflow.providers.standard.operators.empty": ("EmptyOperator",),
    "airflow.providers.standard.operators.hitl": ("ApprovalOperator",),
    "airflow.sdk": ("DAG", "Asset", "AssetAny", "CronTriggerTimetable", "Param", "TaskGroup", "literal"),
    "gpuflow.airflow": (
        "Approve", "DeleteClaim", "GpuPodOperator", "LOST_WORKERS", "ListItems", "MakeClaim", "Mark", "Pod", "at_most",
        "began", "claim", "combinations", "deadline", "item", "join", "output", "param", "run_began", "run_id",
    ),
}  # fmt: skip
HOMES = {name: module for module, names in _BY_MODULE.items() for name in names}
