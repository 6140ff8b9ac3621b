# Made by gpuflow 0.1.0 from params.yaml sha256:9a5df2f0af673171 for site nvidia.
# Do not edit: change the source and compile again.

from datetime import timedelta

# gpuflow's operators build on this module. Imported here, a DAG processor loads it once, before it forks.
import airflow.providers.cncf.kubernetes.operators.pod  # noqa: F401
from airflow.sdk import DAG, CronTriggerTimetable, Param

from gpuflow.airflow import GpuPodOperator, Pod, deadline, join, param, run_id

with DAG(
    dag_id="params",
    description="Every type of parameter, and a schedule with a time zone",
    schedule=CronTriggerTimetable("30 2 * * 6", timezone="Europe/Berlin"),
    catchup=False,
    max_active_runs=1,
    params={
        "base": Param("small", type="string", enum=["small", "large"]),
        "dry_run": Param(False, type="boolean"),
        "epochs": Param(3, type="integer", minimum=1, description="How often"),
        "extra": Param({"a": 1}, type="object"),
        "lr": Param(2e-05, type="number", minimum=0, maximum=1),
        "rows": Param([1, 2], type="array", items={}),
        "suites": Param(["mmlu", "gsm8k"], type="array"),
    },
    doc_md=(
        "Every type of parameter, and a schedule with a time zone\n"
        "\n"
        "Made by gpuflow from `params.yaml`. Change that file, not this DAG."
    ),
    default_args={"owner": "nlp"},
    tags=["gpuflow", "team=nlp"],
) as dag:
    train = GpuPodOperator(
        task_id="train",
        namespace="ml",
        template=Pod(
            {
                "labels": {
                    "team": "nlp",
                    "gpuflow.dev/pipeline": "params",
                    "gpuflow.dev/step": "train",
                    "gpuflow.dev/team": "nlp",
                },
            },
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
                        "command": [
                            "train",
                            param("lr", "float"),
                            param("epochs"),
                            param("base"),
                            param("dry_run"),
                            param("suites"),
                            join("--x=", param("extra"), "/", run_id()),
                        ],
                        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                    },
                ],
            },
        ),
        # When it is over, steps fail and exit steps still run; with Airflow's dagrun_timeout they would not.
        deadlines=[deadline(run=timedelta(days=2))],
        source="params.yaml",
    )
