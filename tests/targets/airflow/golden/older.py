# Made by gpuflow 0.1.0 from older.yaml sha256:b29490ea71c6350c for site nvidia.
# Do not edit: change the source and compile again.

from datetime import timedelta

# gpuflow's operators build on this module. Imported here, a DAG processor loads it once, before it forks.
import airflow.providers.cncf.kubernetes.operators.pod  # noqa: F401
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, CronTriggerTimetable, Param

from gpuflow.airflow import GpuPodOperator, Pod, item, join, logical_date, param, run_id

SECURITY = {
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "runAsGroup": 1000,
    "fsGroup": 1000,
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER_SECURITY = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}

with DAG(
    dag_id="older",
    schedule=CronTriggerTimetable("15 4 * * *", timezone="Europe/Berlin"),
    catchup=False,
    max_active_runs=1,
    params={"lr": Param(0.1, type="number")},
    doc_md="Made by gpuflow from `older.yaml`. Change that file, not this DAG.",
    tags=["gpuflow"],
) as dag:
    load = GpuPodOperator(
        task_id="load",
        namespace="ml",
        template=Pod(
            {"labels": {"gpuflow.dev/pipeline": "older", "gpuflow.dev/step": "load"}},
            spec={
                "restartPolicy": "Never",
                "securityContext": SECURITY,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/train:1",
                        "command": [
                            "load",
                            "--day",
                            logical_date("%Y-%m-%d", timezone="Europe/Berlin"),
                            "--run",
                            run_id(),
                        ],
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
            },
        ),
        retries=1,  # Airflow's own retry_delay lies between them: 5 minutes, or [core] default_task_retry_delay
        source="older.yaml",
    )
    train = GpuPodOperator(
        task_id="train",
        namespace="ml",
        template=Pod(
            {"labels": {"gpuflow.dev/pipeline": "older", "gpuflow.dev/step": "train"}},
            spec={
                "restartPolicy": "Never",
                "securityContext": SECURITY,
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {
                                    "matchExpressions": [
                                        {
                                            "key": "nvidia.com/gpu.product",
                                            "operator": "In",
                                            "values": [
                                                "NVIDIA-A100-SXM4-80GB",
                                                "NVIDIA-A100-80GB-PCIe",
                                                "NVIDIA-A800-SXM4-80GB",
                                            ],
                                        },
                                    ],
                                },
                            ],
                        },
                    },
                },
                "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/train:1",
                        "command": ["train", join("--lr=", param("lr", "float")), "{{ kept }}"],
                        "resources": {"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}},
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
            },
        ),
        failures=1,
        retry_delay=timedelta(seconds=1),
        retry_exponential_backoff=2,
        source="older.yaml",
    )
    evaluate = GpuPodOperator.partial(
        task_id="evaluate",
        namespace="ml",
        template=Pod(
            {"labels": {"gpuflow.dev/pipeline": "older", "gpuflow.dev/step": "evaluate"}},
            spec={
                "restartPolicy": "Never",
                "securityContext": SECURITY,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/train:1",
                        "command": ["evaluate", item("suite")],
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
            },
        ),
        retries=1,  # Airflow's own retry_delay lies between them: 5 minutes, or [core] default_task_retry_delay
        source="older.yaml",
        max_active_tis_per_dagrun=1,
        map_index_template="{{ task.label }}",
    ).expand(item=[{"suite": "mmlu"}, {"suite": "gsm8k"}])
    all_done = EmptyOperator(
        task_id="all-done",
        doc_md="Waits until every task has ended: Airflow gives up on a task while others before it still run.",
        trigger_rule="all_done",
    )
    tidy = GpuPodOperator(
        task_id="tidy",
        namespace="ml",
        template=Pod(
            {"labels": {"gpuflow.dev/pipeline": "older", "gpuflow.dev/step": "tidy"}},
            spec={
                "restartPolicy": "Never",
                "securityContext": SECURITY,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/train:1",
                        "command": ["tidy"],
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
            },
        ),
        retries=1,  # Airflow's own retry_delay lies between them: 5 minutes, or [core] default_task_retry_delay
        source="older.yaml",
        trigger_rule="all_done",
    )
    outcome = EmptyOperator(
        task_id="outcome",
        doc_md="Fails when a task of the run failed: Airflow decides by the last tasks alone.",
        trigger_rule="none_failed",
    )

    load >> train
    train >> evaluate
    [load, train, evaluate] >> all_done
    all_done >> tidy
    [evaluate, tidy] >> outcome
