# Made by gpuflow 0.1.0 from led-gang.yaml sha256:cf5c90b6e077198c for site gke.
# Do not edit: change the source and compile again.

from datetime import timedelta

# gpuflow's operators build on this module. Imported here, a DAG processor loads it once, before it forks.
import airflow.providers.cncf.kubernetes.operators.pod  # noqa: F401
from airflow.sdk import DAG, Param

from gpuflow.airflow import GpuGangOperator, Pod, join, param, run_id

SECURITY = {
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "runAsGroup": 1000,
    "fsGroup": 1000,
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER_SECURITY = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}

with DAG(
    dag_id="led-gang",
    schedule=None,
    catchup=False,
    params={"episodes": Param(1000, type="integer")},
    doc_md="Made by gpuflow from `led-gang.yaml`. Change that file, not this DAG.",
    tags=["gpuflow"],
) as dag:
    train = GpuGangOperator(
        task_id="train",
        namespace="ml",
        template=Pod(
            {"labels": {"gpuflow.dev/pipeline": "led-gang", "gpuflow.dev/step": "train"}},
            spec={
                "restartPolicy": "Never",
                # the step's timeout, which gpuflow-run keeps itself, and an hour for the image, init containers and the
                # end
                "activeDeadlineSeconds": 10830,
                "securityContext": SECURITY,
                "nodeSelector": {"cloud.google.com/gke-accelerator": "nvidia-l4"},
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {
                                    "matchExpressions": [
                                        {"key": "cloud.google.com/gke-gpu-partition-size", "operator": "DoesNotExist"},
                                        {
                                            "key": "cloud.google.com/gke-gpu-sharing-strategy",
                                            "operator": "DoesNotExist",
                                        },
                                    ],
                                },
                            ],
                        },
                        "preferredDuringSchedulingIgnoredDuringExecution": [
                            {
                                "weight": 100,
                                "preference": {
                                    "matchExpressions": [
                                        {"key": "cloud.google.com/gke-spot", "operator": "In", "values": ["true"]},
                                    ],
                                },
                            },
                        ],
                    },
                },
                "tolerations": [
                    {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
                    {"key": "cloud.google.com/gke-spot", "operator": "Equal", "value": "true", "effect": "NoSchedule"},
                ],
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/rl/train:2.0",
                        "command": [
                            "gpuflow-run",
                            "--pipeline=led-gang",
                            "--step=train",
                            join("--run-id=", run_id()),
                            "--timeout=2h",
                            "--gang=5",
                            "--gang-port=29501",
                            "--rank-offset=1",
                            "--",
                            "python",
                            "worker.py",
                        ],
                        "env": [
                            {"name": "ROLE", "value": "worker"},
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
                            {"name": "GPUFLOW_WORLD_SIZE", "value": "5"},
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
                            "requests": {"memory": "32Gi", "nvidia.com/gpu": "1"},
                            "limits": {"memory": "32Gi", "nvidia.com/gpu": "1"},
                        },
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
            },
        ),
        workers=4,
        leader=Pod(
            {"labels": {"gpuflow.dev/pipeline": "led-gang", "gpuflow.dev/step": "train"}},
            spec={
                "restartPolicy": "Never",
                # the step's timeout, which gpuflow-run keeps itself, and an hour for the image, init containers and the
                # end
                "activeDeadlineSeconds": 10830,
                "securityContext": SECURITY,
                "affinity": {
                    "nodeAffinity": {
                        "preferredDuringSchedulingIgnoredDuringExecution": [
                            {
                                "weight": 100,
                                "preference": {
                                    "matchExpressions": [
                                        {"key": "cloud.google.com/gke-spot", "operator": "In", "values": ["true"]},
                                    ],
                                },
                            },
                        ],
                    },
                },
                "tolerations": [
                    {"key": "cloud.google.com/gke-spot", "operator": "Equal", "value": "true", "effect": "NoSchedule"},
                ],
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/rl/train:2.0",
                        "command": [
                            "gpuflow-run",
                            "--pipeline=led-gang",
                            "--step=train",
                            join("--run-id=", run_id()),
                            "--timeout=2h",
                            "--gang=5",
                            "--gang-port=29501",
                            "--",
                            "python",
                            "coordinator.py",
                            param("episodes"),
                        ],
                        "env": [
                            {"name": "ROLE", "value": "leader"},
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
                            {"name": "GPUFLOW_WORLD_SIZE", "value": "5"},
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
                        "resources": {"requests": {"memory": "8Gi"}, "limits": {"memory": "8Gi"}},
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
            },
        ),
        interruptions=20,
        retry_delay=timedelta(minutes=1),
        interruption_delay=timedelta(minutes=1),
        retry_exponential_backoff=2,
        fallback_after=3,
        on_demand={
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {
                                "matchExpressions": [
                                    {"key": "cloud.google.com/gke-gpu-partition-size", "operator": "DoesNotExist"},
                                    {"key": "cloud.google.com/gke-gpu-sharing-strategy", "operator": "DoesNotExist"},
                                    {"key": "cloud.google.com/gke-spot", "operator": "NotIn", "values": ["true"]},
                                ],
                            },
                        ],
                    },
                },
            },
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        },
        leader_on_demand={
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {
                                "matchExpressions": [
                                    {"key": "cloud.google.com/gke-spot", "operator": "NotIn", "values": ["true"]},
                                ],
                            },
                        ],
                    },
                },
            },
            "tolerations": None,
        },
        source="led-gang.yaml",
    )
