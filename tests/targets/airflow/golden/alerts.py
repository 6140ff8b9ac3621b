# Made by gpuflow 0.1.0 from alerts.yaml sha256:2b2fd4c33b8f1f35 for site nvidia.
# Do not edit: change the source and compile again.

from datetime import timedelta

# gpuflow's operators build on this module. Imported here, a DAG processor loads it once, before it forks.
import airflow.providers.cncf.kubernetes.operators.pod  # noqa: F401
from airflow.sdk import DAG

from gpuflow.airflow import (
    GpuPodOperator,
    Pod,
    deadline,
    mail_alert,
    pagerduty_alert,
    slack_alert,
    webhook_alert,
)

with DAG(
    dag_id="alerts",
    schedule=None,
    catchup=False,
    doc_md="Made by gpuflow from `alerts.yaml`. Change that file, not this DAG.",
    on_failure_callback=[
        slack_alert(connection="slack_api", channel="#ml-alerts"),
        slack_alert(connection="slack_incoming"),
        webhook_alert("https://alerts.example.com/gpuflow", headers={"X-Team": "nlp"}, connection="alerts_http"),
        pagerduty_alert(connection="pagerduty_events", severity="critical"),
        mail_alert(["team@example.com", "lead@example.com"], connection="smtp_default"),
    ],
    on_success_callback=[
        webhook_alert("https://alerts.example.com/gpuflow", headers={"X-Team": "nlp"}, connection="alerts_http"),
    ],
    tags=["gpuflow"],
) as dag:
    train = GpuPodOperator(
        task_id="train",
        namespace="ml",
        template=Pod(
            {"labels": {"gpuflow.dev/pipeline": "alerts", "gpuflow.dev/step": "train"}},
            spec={
                "restartPolicy": "Never",
                "securityContext": {
                    "runAsNonRoot": True,
                    "runAsUser": 1000,
                    "runAsGroup": 1000,
                    "fsGroup": 1000,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/train:1",
                        "command": ["python", "train.py"],
                        "resources": {
                            "requests": {"cpu": "1", "memory": "1Gi"},
                            "limits": {"cpu": "1", "memory": "1Gi"},
                        },
                        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                    },
                ],
            },
        ),
        # When it is over, steps fail and exit steps still run; with Airflow's dagrun_timeout they would not.
        deadlines=[deadline(run=timedelta(hours=6))],
        source="alerts.yaml",
    )
