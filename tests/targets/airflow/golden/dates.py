# Made by gpuflow 0.1.0 from dates.yaml sha256:124e78ac25c5c8f7 for site nvidia.
# Do not edit: change the source and compile again.

from datetime import datetime
from zoneinfo import ZoneInfo

# gpuflow's operators build on this module. Imported here, a DAG processor loads it once, before it forks.
import airflow.providers.cncf.kubernetes.operators.pod  # noqa: F401
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Asset, AssetAny, AssetOrTimeSchedule, CronTriggerTimetable, TaskGroup

from gpuflow.airflow import (
    LOST_WORKERS,
    GpuPodOperator,
    Pod,
    attempt,
    dag_run_id,
    interval_start,
    item,
    join,
    logical_date,
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

with DAG(
    dag_id="dates",
    description="Started by the clock and by new data; every fact of the run, in every place",
    schedule=AssetOrTimeSchedule(
        timetable=CronTriggerTimetable("15 4 * * *", timezone="Europe/Berlin"),
        assets=AssetAny(Asset("s3://corpus/daily"), Asset("s3://corpus/weekly")),
    ),
    start_date=datetime(2026, 1, 31, tzinfo=ZoneInfo("Europe/Berlin")),
    catchup=True,
    max_active_runs=1,
    doc_md=(
        "Started by the clock and by new data; every fact of the run, in every place\n"
        "\n"
        "Made by gpuflow from `dates.yaml`. Change that file, not this DAG."
    ),
    tags=["gpuflow"],
) as dag:
    load = GpuPodOperator(
        task_id="load",
        namespace="ml",
        template=Pod(
            {"labels": {"gpuflow.dev/pipeline": "dates", "gpuflow.dev/step": "load"}},
            spec={
                "restartPolicy": "Never",
                "securityContext": SECURITY,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/train:1",
                        "command": [
                            "gpuflow-run",
                            "--pipeline=dates",
                            "--step=load",
                            join("--run-id=", run_id()),
                            "--output=table:file=/out/table",
                            join(
                                "--artifact=table=s3://tables/",
                                logical_date("%Y-%m-%d", timezone="Europe/Berlin"),
                                ".parquet",
                            ),
                            "--engine=airflow",
                            "--outputs-dir=/gpuflow/outputs",
                            "--",
                            "load",
                            "--from",
                            interval_start("15 4 * * *", "Europe/Berlin"),
                            "--to",
                            logical_date(),
                            join("--out=s3://lake/", logical_date("%Y/%m/%d", timezone="Europe/Berlin"), "/", run_id()),
                        ],
                        "env": [{"name": "ATTEMPT", "value": attempt()}, {"name": "RUN", "value": dag_run_id()}],
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
        retries=2,  # Airflow's own retry_delay lies between them: 5 minutes, or [core] default_task_retry_delay
        source="dates.yaml",
    )
    with TaskGroup("report"):
        report_draw = GpuPodOperator(
            task_id="draw",
            namespace="ml",
            template=Pod(
                {"labels": {"gpuflow.dev/pipeline": "report", "gpuflow.dev/step": "draw"}},
                spec={
                    "restartPolicy": "Never",
                    "securityContext": SECURITY,
                    "containers": [
                        {
                            "name": "main",
                            "image": "registry.example.com/report:1",
                            "command": ["draw", interval_start("15 4 * * *", "Europe/Berlin", format="%d %b")],
                            "securityContext": CONTAINER_SECURITY,
                        },
                    ],
                },
            ),
        )
    train = GpuPodOperator.partial(
        task_id="train",
        namespace="ml",
        template=Pod(
            {"labels": {"gpuflow.dev/pipeline": "dates", "gpuflow.dev/step": "train"}},
            spec={
                "restartPolicy": "Never",
                "securityContext": SECURITY,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/train:1",
                        "command": [
                            "gpuflow-run",
                            "--pipeline=dates",
                            "--step=train",
                            join("--run-id=", run_id()),
                            join("--item=seed=", item("seed")),
                            "--checkpoint-dir=/kept",
                            join("--store=s3://models/", logical_date("%Y-%m-%d", timezone="Asia/Tokyo")),
                            "--every=auto",
                            "--keep=2",
                            "--",
                            "train",
                            item("seed"),
                            logical_date("%H:%M %z", timezone="Europe/Berlin"),
                        ],
                        "volumeMounts": [{"name": "scratch-kept", "mountPath": "/kept"}],
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
                "volumes": [{"name": "scratch-kept", "emptyDir": {}}],
            },
        ),
        supervised=True,
        source="dates.yaml",
        failures=0,
        retries=LOST_WORKERS,  # only for workers that die: a failure of the step is not retried
        map_index_template="{{ task.label }}",
    ).expand(item=[{"seed": 1}, {"seed": 2}])
    all_done = EmptyOperator(
        task_id="all-done",
        doc_md="Waits until every task has ended: Airflow gives up on a task while others before it still run.",
        trigger_rule="all_done",
    )
    bye = GpuPodOperator(
        task_id="bye",
        namespace="ml",
        template=Pod(
            {"labels": {"gpuflow.dev/pipeline": "dates", "gpuflow.dev/step": "bye"}},
            spec={
                "restartPolicy": "Never",
                "securityContext": SECURITY,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/train:1",
                        "command": ["bye", logical_date("%Y-%m-%d", timezone="Europe/Berlin")],
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
            },
        ),
        source="dates.yaml",
        trigger_rule="all_done",
    )
    outcome = EmptyOperator(
        task_id="outcome",
        doc_md="Fails when a task of the run failed: Airflow decides by the last tasks alone.",
        trigger_rule="none_failed",
    )

    load >> train
    [load, report_draw, train] >> all_done
    all_done >> bye
    [report_draw, train, bye] >> outcome
