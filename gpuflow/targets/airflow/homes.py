"""The names that a DAG file may use, and where each comes from."""

from __future__ import annotations

_BY_MODULE = {
    "datetime": ("datetime", "timedelta"),
    "zoneinfo": ("ZoneInfo",),
    "airflow.providers.cncf.kubernetes.operators.pod": ("KubernetesPodOperator",),
    "airflow.providers.pagerduty.notifications.pagerduty": ("PagerdutyNotifier",),
    "airflow.providers.slack.notifications.slack": ("SlackNotifier",),
    "airflow.providers.slack.notifications.slack_webhook": ("SlackWebhookNotifier",),
    "airflow.providers.smtp.notifications.smtp": ("SmtpNotifier",),
    "airflow.providers.standard.operators.empty": ("EmptyOperator",),
    "airflow.providers.standard.operators.hitl": ("ApprovalOperator",),
    "airflow.sdk": (
        "DAG", "Asset", "AssetAny", "AssetOrTimeSchedule", "CronTriggerTimetable", "Param", "TaskGroup", "literal",
    ),
    "gpuflow.airflow": (
        "Approve", "DeleteClaim", "GpuGangOperator", "GpuPodOperator", "LOST_WORKERS", "ListItems", "MakeClaim", "Mark",
        "Pod", "at_most", "attempt", "began", "claim", "combinations", "dag_run_id", "deadline", "interval_start",
        "item", "join", "logical_date", "mail_alert", "output", "pagerduty_alert", "param", "run_began", "run_id",
        "slack_alert", "webhook_alert",
    ),
}  # fmt: skip
HOMES = {name: module for module, names in _BY_MODULE.items() for name in names}
