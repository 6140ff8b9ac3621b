# Made by gpuflow 0.1.0 from docs/examples/daily.yaml sha256:3ef31acf902f737f for site nvidia.
# Do not edit: change the source and compile again.

from datetime import datetime
from zoneinfo import ZoneInfo

# gpuflow's operators build on this module. Imported here, a DAG processor loads it once, before it forks.
import airflow.providers.cncf.kubernetes.operators.pod  # noqa: F401
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, CronTriggerTimetable, Param

from gpuflow.airflow import (
    GpuPodOperator,
    Pod,
    attempt,
    dag_run_id,
    interval_start,
    join,
    logical_date,
    output,
    param,
    run_id,
)

SECURITY = {
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "runAsGroup": 1000,
    "fsGroup": 1000,
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER_SECURITY = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
RESOURCES_4CPU_16GI = {"requests": {"cpu": "4", "memory": "16Gi"}, "limits": {"cpu": "4", "memory": "16Gi"}}

with DAG(
    dag_id="daily",
    schedule=CronTriggerTimetable("15 4 * * *", timezone="Europe/Berlin"),
    start_date=datetime(2026, 1, 31, tzinfo=ZoneInfo("Europe/Berlin")),
    catchup=False,
    max_active_runs=1,
    params={"rows": Param(1000000, type="integer", description="how many rows to train on")},
    doc_md="Made by gpuflow from `docs/examples/daily.yaml`. Change that file, not this DAG.",
    tags=["gpuflow"],
) as dag:
    features = GpuPodOperator(
        task_id="features",
        namespace="nlp",
        template=Pod(
            {"labels": {"gpuflow.dev/pipeline": "daily", "gpuflow.dev/step": "features"}},
            spec={
                "restartPolicy": "Never",
                "securityContext": SECURITY,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/nlp/train:1.4",
                        "command": [
                            "gpuflow-run",
                            "--pipeline=daily",
                            "--step=features",
                            join("--run-id=", run_id()),
                            "--output=table:directory=/out/table",
                            join("--artifact=table=s3://features/", logical_date("%Y-%m-%d", timezone="Europe/Berlin")),
                            "--engine=airflow",
                            "--outputs-dir=/gpuflow/outputs",
                            "--",
                            "python",
                            "features.py",
                            "--from",
                            interval_start("15 4 * * *", "Europe/Berlin"),
                            "--to",
                            logical_date(timezone="Europe/Berlin"),
                        ],
                        "env": [
                            {
                                "name": "INPUT",
                                "value": join("s3://lake/reviews/", logical_date("%Y/%m/%d", timezone="Europe/Berlin")),
                            },
                            {"name": "RUN_NAME", "value": dag_run_id()},
                        ],
                        "resources": RESOURCES_4CPU_16GI,
                        "volumeMounts": [{"name": "scratch-gpuflow-outputs", "mountPath": "/gpuflow/outputs"}],
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
                "volumes": [{"name": "scratch-gpuflow-outputs", "emptyDir": {}}],
            },
        ),
        outputs={"table": "string"},
        artifacts={"table": {}},
        supervised=True,
        source="docs/examples/daily.yaml",
    )
    train = GpuPodOperator(
        task_id="train",
        namespace="nlp",
        template=Pod(
            {"labels": {"gpuflow.dev/pipeline": "daily", "gpuflow.dev/step": "train"}},
            spec={
                "restartPolicy": "Never",
                "securityContext": SECURITY,
                "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-L4"},
                "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/nlp/train:1.4",
                        "command": [
                            "python",
                            "train.py",
                            "--data",
                            output("features", "table"),
                            "--rows",
                            param("rows"),
                            "--as-of",
                            logical_date(),
                        ],
                        "env": [{"name": "ATTEMPT", "value": attempt()}],
                        "resources": {
                            "requests": {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1"},
                            "limits": {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1"},
                        },
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
            },
        ),
        retries=2,  # Airflow's own retry_delay lies between them: 5 minutes, or [core] default_task_retry_delay
        source="docs/examples/daily.yaml",
    )
    all_done = EmptyOperator(
        task_id="all-done",
        doc_md="Waits until every task has ended: Airflow gives up on a task while others before it still run.",
        trigger_rule="all_done",
    )
    report = GpuPodOperator(
        task_id="report",
        namespace="nlp",
        template=Pod(
            {"labels": {"gpuflow.dev/pipeline": "daily", "gpuflow.dev/step": "report"}},
            spec={
                "restartPolicy": "Never",
                "securityContext": SECURITY,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/nlp/train:1.4",
                        "command": ["python", "report.py", "--day", logical_date("%d %b %Y", timezone="Europe/Berlin")],
                        "resources": RESOURCES_4CPU_16GI,
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
            },
        ),
        source="docs/examples/daily.yaml",
        trigger_rule="all_done",
        only_after_failure=True,
    )
    outcome = EmptyOperator(
        task_id="outcome",
        doc_md="Fails when a task of the run failed: Airflow decides by the last tasks alone.",
        trigger_rule="none_failed",
    )

    features >> train
    [features, train] >> all_done
    [train, all_done] >> report
    [train, report] >> outcome
