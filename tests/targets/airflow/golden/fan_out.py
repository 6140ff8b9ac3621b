# Made by gpuflow 0.1.0 from fan-out.yaml sha256:8b620deabb8acbaf for site nvidia.
# Do not edit: change the source and compile again.

from datetime import timedelta

# gpuflow's operators build on this module. Imported here, a DAG processor loads it once, before it forks.
import airflow.providers.cncf.kubernetes.operators.pod  # noqa: F401
from airflow.sdk import DAG, Param

from gpuflow.airflow import (
    LOST_WORKERS,
    GpuPodOperator,
    ListItems,
    Pod,
    combinations,
    item,
    join,
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

with DAG(
    dag_id="fan-out",
    schedule=None,
    catchup=False,
    params={"suites": Param(["mmlu", "gsm8k"], type="array")},
    doc_md="Made by gpuflow from `fan-out.yaml`. Change that file, not this DAG.",
    tags=["gpuflow"],
) as dag:
    fixed = GpuPodOperator.partial(
        task_id="fixed",
        namespace="ml",
        template=Pod(
            {"labels": {"gpuflow.dev/pipeline": "fan-out", "gpuflow.dev/step": "fixed"}},
            spec={
                "restartPolicy": "Never",
                "securityContext": SECURITY,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/train:1",
                        "command": [
                            "gpuflow-run",
                            "--pipeline=fan-out",
                            "--step=fixed",
                            join("--run-id=", run_id()),
                            join("--item=language=", item("language")),
                            "--output=score:float",
                            "--engine=airflow",
                            "--outputs-dir=/gpuflow/outputs",
                            "--",
                            "fixed",
                            item("language"),
                        ],
                        "volumeMounts": [{"name": "scratch-gpuflow-outputs", "mountPath": "/gpuflow/outputs"}],
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
                "volumes": [{"name": "scratch-gpuflow-outputs", "emptyDir": {}}],
            },
        ),
        outputs={"score": "float"},
        supervised=True,
        source="fan-out.yaml",
        max_active_tis_per_dagrun=2,
        failures=0,
        retries=LOST_WORKERS,  # only for workers that die: a failure of the step is not retried
        map_index_template="{{ task.label }}",
    ).expand(item=[{"language": "de"}, {"language": "en"}])
    gather = GpuPodOperator(
        task_id="gather",
        namespace="ml",
        template=Pod(
            {"labels": {"gpuflow.dev/pipeline": "fan-out", "gpuflow.dev/step": "gather"}},
            spec={
                "restartPolicy": "Never",
                "securityContext": SECURITY,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/train:1",
                        "command": ["gather", output("fixed", "score", "float", each=True)],
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
            },
        ),
        source="fan-out.yaml",
    )
    given_items = ListItems(task_id="given-items", for_each={"suite": param("suites")}, when=item("suite") != "gsm8k")
    given = GpuPodOperator.partial(
        task_id="given",
        namespace="ml",
        template=Pod(
            {"labels": {"gpuflow.dev/pipeline": "fan-out", "gpuflow.dev/step": "given"}},
            spec={
                "restartPolicy": "Never",
                "securityContext": SECURITY,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/train:1",
                        "command": ["given", item("suite")],
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
            },
        ),
        source="fan-out.yaml",
        failures=0,
        retries=LOST_WORKERS,  # only for workers that die: a failure of the step is not retried
        map_index_template="{{ task.label }}",
    ).expand(item=given_items.output)
    grid = GpuPodOperator.partial(
        task_id="grid",
        namespace="ml",
        template=Pod(
            {"labels": {"gpuflow.dev/pipeline": "fan-out", "gpuflow.dev/step": "grid"}},
            spec={
                "restartPolicy": "Never",
                "securityContext": SECURITY,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/train:1",
                        "command": ["grid", item("lr"), item("seed")],
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
            },
        ),
        source="fan-out.yaml",
        failures=0,
        retries=LOST_WORKERS,  # only for workers that die: a failure of the step is not retried
        map_index_template="{{ task.label }}",
    ).expand(
        item=combinations({"lr": [1e-05, 2e-05], "seed": range(1, 9)}),  # 16 tasks
    )
    plan = GpuPodOperator(
        task_id="plan",
        namespace="ml",
        template=Pod(
            {"labels": {"gpuflow.dev/pipeline": "fan-out", "gpuflow.dev/step": "plan"}},
            spec={
                "restartPolicy": "Never",
                "securityContext": SECURITY,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/train:1",
                        "command": [
                            "gpuflow-run",
                            "--pipeline=fan-out",
                            "--step=plan",
                            join("--run-id=", run_id()),
                            "--output=shards:json",
                            "--engine=airflow",
                            "--outputs-dir=/gpuflow/outputs",
                            "--",
                            "plan",
                        ],
                        "volumeMounts": [{"name": "scratch-gpuflow-outputs", "mountPath": "/gpuflow/outputs"}],
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
                "volumes": [{"name": "scratch-gpuflow-outputs", "emptyDir": {}}],
            },
        ),
        outputs={"shards": "json"},
        supervised=True,
        source="fan-out.yaml",
    )
    found_items = ListItems(task_id="found-items", for_each={"shard": output("plan", "shards", "json")})
    found = GpuPodOperator.partial(
        task_id="found",
        namespace="ml",
        template=Pod(
            {"labels": {"gpuflow.dev/pipeline": "fan-out", "gpuflow.dev/step": "found"}},
            spec={
                "restartPolicy": "Never",
                "securityContext": SECURITY,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/train:1",
                        "command": ["found", item("shard")],
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
            },
        ),
        failures=2,
        retry_delay=timedelta(seconds=10),
        retry_exponential_backoff=2,
        source="fan-out.yaml",
        # the failures, and tries for workers that die; of a mapped task Airflow reads them here
        retries=2 + LOST_WORKERS,
        map_index_template="{{ task.label }}",
    ).expand(item=found_items.output)

    fixed >> gather
    plan >> found_items
