# Made by gpuflow 0.1.0 from spot.yaml sha256:4e157a5441779a4e for site gke.
# Do not edit: change the source and compile again.

from datetime import timedelta

# gpuflow's operators build on this module. Imported here, a DAG processor loads it once, before it forks.
import airflow.providers.cncf.kubernetes.operators.pod  # noqa: F401
from airflow.sdk import DAG, Asset, AssetAny

from gpuflow.airflow import GpuPodOperator, Pod, join, output, run_id

LABELS = {"gpuflow.dev/pipeline": "spot", "kueue.x-k8s.io/queue-name": "research"}
SECURITY = {
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "runAsGroup": 1000,
    "fsGroup": 1000,
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER_SECURITY = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}

with DAG(
    dag_id="spot",
    schedule=AssetAny(Asset("s3://corpus/daily"), Asset("s3://corpus/weekly")),
    catchup=False,
    doc_md="Made by gpuflow from `spot.yaml`. Change that file, not this DAG.",
    tags=["gpuflow"],
) as dag:
    train = GpuPodOperator(
        task_id="train",
        namespace="ml",
        template=Pod(
            {"labels": {**LABELS, "gpuflow.dev/step": "train"}},
            spec={
                "restartPolicy": "Never",
                # the step's timeout, which gpuflow-run keeps itself, and an hour for the image, init containers and the
                # end
                "activeDeadlineSeconds": 46830,
                "securityContext": SECURITY,
                "nodeSelector": {"cloud.google.com/gke-accelerator": "nvidia-a100-80gb"},
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
                        "image": "registry.example.com/train:1",
                        "command": [
                            "gpuflow-run",
                            "--pipeline=spot",
                            "--step=train",
                            join("--run-id=", run_id()),
                            "--checkpoint-dir=/checkpoints",
                            "--store=s3://models/spot",
                            "--every=10m",
                            "--keep=2",
                            "--failures=1",
                            "--interruptions=20",
                            "--final-exit-codes=2",
                            "--retryable-exit-codes=1",
                            "--output=loss:float",
                            "--output=model:directory=/out",
                            join("--artifact=model=s3://models/", run_id()),
                            "--engine=airflow",
                            "--outputs-dir=/gpuflow/outputs",
                            "--timeout=12h",
                            "--",
                            "train",
                        ],
                        "resources": {
                            "requests": {"memory": "100Gi", "nvidia.com/gpu": "2"},
                            "limits": {"memory": "100Gi", "nvidia.com/gpu": "2"},
                        },
                        "volumeMounts": [
                            {"name": "scratch-dev-shm", "mountPath": "/dev/shm"},
                            {"name": "scratch-checkpoints", "mountPath": "/checkpoints"},
                            {"name": "scratch-gpuflow-outputs", "mountPath": "/gpuflow/outputs"},
                        ],
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
                "volumes": [
                    {"name": "scratch-dev-shm", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}},
                    {"name": "scratch-checkpoints", "emptyDir": {}},
                    {"name": "scratch-gpuflow-outputs", "emptyDir": {}},
                ],
            },
        ),
        outputs={"loss": "float", "model": "string"},
        artifacts={"model": {}},
        supervised=True,
        failures=1,
        interruptions=20,
        retry_delay=timedelta(seconds=30),
        interruption_delay=timedelta(seconds=30),
        retry_exponential_backoff=2,
        max_retry_delay=timedelta(minutes=10),
        final_exit_codes=(2,),
        retryable_exit_codes=(1,),
        more_memory={"factor": 1.5, "max": "200Gi"},
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
        source="spot.yaml",
    )
    serve = GpuPodOperator(
        task_id="serve",
        namespace="ml",
        template=Pod(
            {"labels": {**LABELS, "gpuflow.dev/step": "serve"}},
            spec={
                "restartPolicy": "Never",
                "securityContext": SECURITY,
                "nodeSelector": {
                    "cloud.google.com/gke-accelerator": "nvidia-a100-80gb",
                    "cloud.google.com/gke-gpu-partition-size": "1g.10gb",
                },
                "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/train:1",
                        "command": ["serve", output("train", "model"), output("train", "loss", "float")],
                        "resources": {"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}},
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
            },
        ),
        source="spot.yaml",
    )

    train >> serve
