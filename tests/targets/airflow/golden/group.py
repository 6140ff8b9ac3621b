# Made by gpuflow 0.1.0 from group.yaml sha256:47fa122fa5b7c6cd for site nvidia.
# Do not edit: change the source and compile again.

from datetime import timedelta

# gpuflow's operators build on this module. Imported here, a DAG processor loads it once, before it forks.
import airflow.providers.cncf.kubernetes.operators.pod  # noqa: F401
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Param, TaskGroup

from gpuflow.airflow import Approve, GpuPodOperator, Mark, Pod, join, output, param, run_id

SECURITY = {
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "runAsGroup": 1000,
    "fsGroup": 1000,
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER_SECURITY = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}

with DAG(
    dag_id="group",
    schedule=None,
    catchup=False,
    params={"deploy": Param(True, type="boolean"), "region": Param("eu", type="string")},
    doc_md="Made by gpuflow from `group.yaml`. Change that file, not this DAG.",
    tags=["gpuflow"],
) as dag:
    build = GpuPodOperator(
        task_id="build",
        namespace="ml",
        template=Pod(
            {"labels": {"gpuflow.dev/pipeline": "group", "gpuflow.dev/step": "build"}},
            spec={
                "restartPolicy": "Never",
                "securityContext": SECURITY,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/train:1",
                        "command": [
                            "gpuflow-run",
                            "--pipeline=group",
                            "--step=build",
                            join("--run-id=", run_id()),
                            "--output=version:string",
                            "--engine=airflow",
                            "--outputs-dir=/gpuflow/outputs",
                            "--",
                            "build",
                        ],
                        "volumeMounts": [{"name": "scratch-gpuflow-outputs", "mountPath": "/gpuflow/outputs"}],
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
                "volumes": [{"name": "scratch-gpuflow-outputs", "emptyDir": {}}],
            },
        ),
        outputs={"version": "string"},
        supervised=True,
        source="group.yaml",
    )
    with TaskGroup("release"):
        release_begin = Mark(task_id="begin", when=param("deploy") & param("region").is_in(["eu", "us"]))
        release_push = GpuPodOperator(
            task_id="push",
            namespace="ml",
            template=Pod(
                {"labels": {"gpuflow.dev/pipeline": "release", "gpuflow.dev/step": "push"}},
                spec={
                    "restartPolicy": "Never",
                    "securityContext": SECURITY,
                    "containers": [
                        {
                            "name": "main",
                            "image": "registry.example.com/deploy:1",
                            "command": [
                                "gpuflow-run",
                                "--pipeline=release",
                                "--step=push",
                                join("--run-id=", run_id()),
                                "--output=digest:string",
                                "--engine=airflow",
                                "--outputs-dir=/gpuflow/outputs",
                                "--",
                                "push",
                                output("build", "version"),
                            ],
                            "volumeMounts": [{"name": "scratch-gpuflow-outputs", "mountPath": "/gpuflow/outputs"}],
                            "securityContext": CONTAINER_SECURITY,
                        },
                    ],
                    "volumes": [{"name": "scratch-gpuflow-outputs", "emptyDir": {}}],
                },
            ),
            outputs={"digest": "string"},
            supervised=True,
        )
        release_probe = GpuPodOperator(
            task_id="probe",
            namespace="ml",
            template=Pod(
                {"labels": {"gpuflow.dev/pipeline": "release", "gpuflow.dev/step": "probe"}},
                spec={
                    "restartPolicy": "Never",
                    "securityContext": SECURITY,
                    "containers": [
                        {
                            "name": "main",
                            "image": "registry.example.com/deploy:1",
                            "command": ["probe"],
                            "securityContext": CONTAINER_SECURITY,
                        },
                    ],
                },
            ),
        )
        release_ask = Approve(task_id="ask", message="Release {{ version }}?", response_timeout=timedelta(hours=2))
        release_all = GpuPodOperator(
            task_id="all",
            namespace="ml",
            template=Pod(
                {"labels": {"gpuflow.dev/pipeline": "release", "gpuflow.dev/step": "all"}},
                spec={
                    "restartPolicy": "Never",
                    "securityContext": SECURITY,
                    "containers": [
                        {
                            "name": "main",
                            "image": "registry.example.com/deploy:1",
                            "command": ["roll-out", output("release.push", "digest")],
                            "securityContext": CONTAINER_SECURITY,
                        },
                    ],
                },
            ),
        )
    announce = GpuPodOperator(
        task_id="announce",
        namespace="ml",
        template=Pod(
            {"labels": {"gpuflow.dev/pipeline": "group", "gpuflow.dev/step": "announce"}},
            spec={
                "restartPolicy": "Never",
                "securityContext": SECURITY,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/train:1",
                        "command": ["announce", output("release.push", "digest")],
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
            },
        ),
        source="group.yaml",
    )
    outcome = EmptyOperator(
        task_id="outcome",
        doc_md="Fails when a task of the run failed: Airflow decides by the last tasks alone.",
        trigger_rule="none_failed",
    )

    build >> release_begin
    release_begin >> release_push
    release_push >> release_probe
    release_probe >> release_ask
    [release_ask, release_push] >> release_all
    release_all >> announce
    [release_ask, announce] >> outcome
