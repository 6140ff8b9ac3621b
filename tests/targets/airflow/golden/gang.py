# Made by gpuflow 0.1.0 from gang.yaml sha256:bef23e91c69f9d0f for site nvidia.
# Do not edit: change the source and compile again.

from datetime import timedelta

# gpuflow's operators build on this module. Imported here, a DAG processor loads it once, before it forks.
import airflow.providers.cncf.kubernetes.operators.pod  # noqa: F401
from airflow.sdk import DAG, Param

from gpuflow.airflow import LOST_WORKERS, GpuGangOperator, Pod, item, join, output, param, run_id

SECURITY = {
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "runAsGroup": 1000,
    "fsGroup": 1000,
    "seccompProfile": {"type": "RuntimeDefault"},
}
AFFINITY_H100_80GB = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {
                    "matchExpressions": [
                        {
                            "key": "nvidia.com/gpu.product",
                            "operator": "In",
                            "values": ["NVIDIA-H100-80GB-HBM3", "NVIDIA-H100-PCIe", "NVIDIA-H800"],
                        },
                    ],
                },
            ],
        },
    },
}
TOLERATIONS_GPU = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
CONTAINER_SECURITY = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}

with DAG(
    dag_id="gang",
    schedule=None,
    catchup=False,
    params={"lr": Param(0.1, type="number")},
    doc_md="Made by gpuflow from `gang.yaml`. Change that file, not this DAG.",
    tags=["gpuflow"],
) as dag:
    pretrain = GpuGangOperator(
        task_id="pretrain",
        namespace="ml",
        template=Pod(
            {
                "labels": {
                    "gpuflow.dev/pipeline": "gang",
                    "gpuflow.dev/step": "pretrain",
                    "kueue.x-k8s.io/queue-name": "research",
                },
            },
            spec={
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 130,  # longer than --grace below, for the last checkpoint
                # the step's timeout, which gpuflow-run keeps itself, and an hour for the image, init containers and the
                # end
                "activeDeadlineSeconds": 46930,
                "securityContext": SECURITY,
                "affinity": AFFINITY_H100_80GB,
                "tolerations": TOLERATIONS_GPU,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/train:1",
                        "command": [
                            "gpuflow-run",
                            "--pipeline=gang",
                            "--step=pretrain",
                            join("--run-id=", run_id()),
                            "--checkpoint-dir=/checkpoints",
                            "--store=s3://ml-checkpoints/pretrain",
                            "--every=30m",
                            "--keep=2",
                            "--grace=2m",
                            "--output=loss:float",
                            "--engine=none",
                            "--outputs-dir=/gpuflow/outputs",
                            "--timeout=12h",
                            "--gang=4",
                            "--gang-port=29501",
                            "--",
                            "torchrun",
                            "train.py",
                            "--lr",
                            param("lr", "float"),
                        ],
                        "env": [
                            {
                                "name": "GPUFLOW_RANK",
                                "valueFrom": {
                                    "fieldRef": {
                                        "fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']",
                                    },
                                },
                            },
                            {
                                "name": "GPUFLOW_LEADER",
                                "valueFrom": {
                                    "fieldRef": {"fieldPath": "metadata.annotations['jobset.sigs.k8s.io/coordinator']"},
                                },
                            },
                            {"name": "GPUFLOW_WORLD_SIZE", "value": "4"},
                            {
                                "name": "GPUFLOW_GANG",
                                "valueFrom": {
                                    "fieldRef": {"fieldPath": "metadata.labels['jobset.sigs.k8s.io/jobset-name']"},
                                },
                            },
                            {
                                "name": "GPUFLOW_GANG_ATTEMPT",
                                "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['gpuflow.dev/attempt']"}},
                            },
                            {
                                "name": "GPUFLOW_GANG_INTERRUPTIONS",
                                "valueFrom": {
                                    "fieldRef": {"fieldPath": "metadata.annotations['gpuflow.dev/interruptions']"},
                                },
                            },
                            {
                                "name": "PET_NODE_RANK",
                                "valueFrom": {
                                    "fieldRef": {
                                        "fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']",
                                    },
                                },
                            },
                            {
                                "name": "PET_MASTER_ADDR",
                                "valueFrom": {
                                    "fieldRef": {"fieldPath": "metadata.annotations['jobset.sigs.k8s.io/coordinator']"},
                                },
                            },
                            {"name": "PET_NNODES", "value": "4"},
                            {"name": "PET_NPROC_PER_NODE", "value": "8"},
                            {"name": "PET_MASTER_PORT", "value": "29500"},
                            {"name": "PET_MAX_RESTARTS", "value": "0"},
                        ],
                        "resources": {
                            "requests": {"cpu": "4", "memory": "32Gi", "nvidia.com/gpu": "8"},
                            "limits": {"cpu": "4", "memory": "32Gi", "nvidia.com/gpu": "8"},
                        },
                        "volumeMounts": [
                            {"name": "scratch-checkpoints", "mountPath": "/checkpoints"},
                            {"name": "scratch-gpuflow-outputs", "mountPath": "/gpuflow/outputs"},
                        ],
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
                "volumes": [
                    {"name": "scratch-checkpoints", "emptyDir": {}},
                    {"name": "scratch-gpuflow-outputs", "emptyDir": {}},
                ],
            },
        ),
        workers=4,
        outputs={"loss": "float"},
        failures=1,
        interruptions=20,
        retry_delay=timedelta(minutes=1),
        interruption_delay=timedelta(minutes=1),
        retry_exponential_backoff=2,
        queue_timeout=timedelta(hours=6),
        source="gang.yaml",
    )
    tune = GpuGangOperator.partial(
        task_id="tune",
        namespace="ml",
        template=Pod(
            {"labels": {"gpuflow.dev/pipeline": "gang", "gpuflow.dev/step": "tune"}},
            spec={
                "restartPolicy": "Never",
                "securityContext": SECURITY,
                "affinity": AFFINITY_H100_80GB,
                "tolerations": TOLERATIONS_GPU,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/train:1",
                        "command": [
                            "gpuflow-run",
                            "--pipeline=gang",
                            "--step=tune",
                            join("--run-id=", run_id()),
                            join("--item=seed=", item("seed")),
                            "--gang=2",
                            "--gang-port=29501",
                            "--",
                            "torchrun",
                            "tune.py",
                            "--seed",
                            item("seed"),
                            "--loss",
                            output("pretrain", "loss", "float"),
                        ],
                        "env": [
                            {
                                "name": "GPUFLOW_RANK",
                                "valueFrom": {
                                    "fieldRef": {
                                        "fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']",
                                    },
                                },
                            },
                            {
                                "name": "GPUFLOW_LEADER",
                                "valueFrom": {
                                    "fieldRef": {"fieldPath": "metadata.annotations['jobset.sigs.k8s.io/coordinator']"},
                                },
                            },
                            {"name": "GPUFLOW_WORLD_SIZE", "value": "2"},
                            {
                                "name": "GPUFLOW_GANG",
                                "valueFrom": {
                                    "fieldRef": {"fieldPath": "metadata.labels['jobset.sigs.k8s.io/jobset-name']"},
                                },
                            },
                            {
                                "name": "GPUFLOW_GANG_ATTEMPT",
                                "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['gpuflow.dev/attempt']"}},
                            },
                            {
                                "name": "GPUFLOW_GANG_INTERRUPTIONS",
                                "valueFrom": {
                                    "fieldRef": {"fieldPath": "metadata.annotations['gpuflow.dev/interruptions']"},
                                },
                            },
                        ],
                        "resources": {
                            "requests": {"cpu": "4", "memory": "32Gi", "nvidia.com/gpu": "1"},
                            "limits": {"cpu": "4", "memory": "32Gi", "nvidia.com/gpu": "1"},
                        },
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
            },
        ),
        workers=2,
        source="gang.yaml",
        max_active_tis_per_dagrun=2,
        failures=0,
        retries=LOST_WORKERS,  # only for workers that die: a failure of the step is not retried
        map_index_template="{{ task.label }}",
    ).expand(item=[{"seed": 1}, {"seed": 2}, {"seed": 3}])

    pretrain >> tune
