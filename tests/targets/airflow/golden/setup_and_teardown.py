# Made by gpuflow 0.1.0 from setup-and-teardown.yaml sha256:5b9fc187797ec698 for site nvidia.
# Do not edit: change the source and compile again.

# gpuflow's operators build on this module. Imported here, a DAG processor loads it once, before it forks.
import airflow.providers.cncf.kubernetes.operators.pod  # noqa: F401
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG

from gpuflow.airflow import GpuPodOperator, Pod, output

SECURITY = {
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "runAsGroup": 1000,
    "fsGroup": 1000,
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER_SECURITY = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}

with DAG(
    dag_id="setup-and-teardown",
    schedule=None,
    catchup=False,
    doc_md="Made by gpuflow from `setup-and-teardown.yaml`. Change that file, not this DAG.",
    tags=["gpuflow"],
) as dag:
    create = GpuPodOperator(
        task_id="create",
        namespace="ml",
        template=Pod(
            {"labels": {"gpuflow.dev/pipeline": "setup-and-teardown", "gpuflow.dev/step": "create"}},
            spec={
                "restartPolicy": "Never",
                "securityContext": SECURITY,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/index:1",
                        "command": ["create"],
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
            },
        ),
        outputs={"name": "string", "size": "int"},
        retries=0,
        source="setup-and-teardown.yaml",
    )
    warm = GpuPodOperator(
        task_id="warm",
        namespace="ml",
        template=Pod(
            {"labels": {"gpuflow.dev/pipeline": "setup-and-teardown", "gpuflow.dev/step": "warm"}},
            spec={
                "restartPolicy": "Never",
                "securityContext": SECURITY,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/index:1",
                        "command": ["warm"],
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
            },
        ),
        retries=0,
        source="setup-and-teardown.yaml",
    )
    train = GpuPodOperator(
        task_id="train",
        namespace="ml",
        template=Pod(
            {"labels": {"gpuflow.dev/pipeline": "setup-and-teardown", "gpuflow.dev/step": "train"}},
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
                        "image": "registry.example.com/index:1",
                        "command": ["train", output("create", "name")],
                        "resources": {"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}},
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
            },
        ),
        retries=0,
        source="setup-and-teardown.yaml",
    )
    audit = GpuPodOperator(
        task_id="audit",
        namespace="ml",
        template=Pod(
            {"labels": {"gpuflow.dev/pipeline": "setup-and-teardown", "gpuflow.dev/step": "audit"}},
            spec={
                "restartPolicy": "Never",
                "securityContext": SECURITY,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/index:1",
                        "command": ["audit"],
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
            },
        ),
        retries=0,
        source="setup-and-teardown.yaml",
    )
    drop = GpuPodOperator(
        task_id="drop",
        namespace="ml",
        template=Pod(
            {"labels": {"gpuflow.dev/pipeline": "setup-and-teardown", "gpuflow.dev/step": "drop"}},
            spec={
                "restartPolicy": "Never",
                "securityContext": SECURITY,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/index:1",
                        "command": ["drop", output("create", "name")],
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
            },
        ),
        retries=0,
        source="setup-and-teardown.yaml",
    )
    all_done = EmptyOperator(
        task_id="all-done",
        doc_md="Waits until every task has ended: Airflow gives up on a task while others before it still run.",
        trigger_rule="all_done",
    )
    bye = GpuPodOperator(
        task_id="bye",
        namespace="ml",
        template=Pod(
            {"labels": {"gpuflow.dev/pipeline": "setup-and-teardown", "gpuflow.dev/step": "bye"}},
            spec={
                "restartPolicy": "Never",
                "securityContext": SECURITY,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/index:1",
                        "command": ["bye"],
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
            },
        ),
        retries=0,
        source="setup-and-teardown.yaml",
        trigger_rule="all_done",
    )
    outcome = EmptyOperator(
        task_id="outcome",
        doc_md="Fails when a task of the run failed: Airflow decides by the last tasks alone.",
        trigger_rule="none_failed",
    )

    [create, warm] >> train
    train >> audit
    [train, create] >> drop
    [train, audit, drop] >> all_done
    all_done >> bye
    [train, audit, bye] >> outcome

    audit.as_teardown(setups=[create, warm], on_failure_fail_dagrun=True)
    drop.as_teardown(setups=create)
