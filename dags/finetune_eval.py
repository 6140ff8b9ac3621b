# Made by gpuflow 0.1.0 from docs/examples/finetune-eval.yaml sha256:74afd5e9aff6fb60 for site nvidia.
# Do not edit: change the source and compile again.

# gpuflow's operators build on this module. Imported here, a DAG processor loads it once, before it forks.
import airflow.providers.cncf.kubernetes.operators.pod  # noqa: F401
from airflow.sdk import DAG, Param

from gpuflow.airflow import (
    LOST_WORKERS,
    GpuPodOperator,
    Pod,
    at_most,
    combinations,
    item,
    join,
    output,
    param,
    run_id,
)

# Pods that may exist at once: max_active_tasks does not count tasks that wait in the triggerer.
LIMITS = [at_most(4)]
LABELS = {"team": "nlp", "gpuflow.dev/pipeline": "finetune-eval", "gpuflow.dev/team": "nlp"}
SECURITY = {
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "runAsGroup": 1000,
    "fsGroup": 1000,
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER_SECURITY = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}

with DAG(
    dag_id="finetune-eval",
    schedule=None,
    catchup=False,
    max_active_tasks=4,  # running tasks only; pods are counted by limits=
    params={
        "model": Param(type="string"),
        "seeds": Param(3, type="integer", minimum=1),
        "suite": Param("mmlu", type="string"),
    },
    doc_md="Made by gpuflow from `docs/examples/finetune-eval.yaml`. Change that file, not this DAG.",
    default_args={"owner": "nlp"},
    tags=["gpuflow", "team=nlp"],
) as dag:
    generate = GpuPodOperator.partial(
        task_id="generate",
        namespace="nlp",
        template=Pod(
            {"labels": {**LABELS, "gpuflow.dev/step": "generate"}},
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
                        "image": "registry.example.com/nlp/evaluate:2.1",
                        "command": [
                            "gpuflow-run",
                            "--pipeline=finetune-eval",
                            "--step=generate",
                            join("--run-id=", run_id()),
                            join("--item=shard=", item("shard")),
                            "--output=answers:string",
                            "--engine=airflow",
                            "--outputs-dir=/gpuflow/outputs",
                            "--",
                            "python",
                            "generate.py",
                            "--suite",
                            param("suite"),
                            "--model",
                            param("model"),
                            "--shard",
                            item("shard"),
                        ],
                        "resources": {
                            "requests": {"cpu": "2", "memory": "12Gi", "nvidia.com/mig-1g.10gb": "1"},
                            "limits": {"cpu": "2", "memory": "12Gi", "nvidia.com/mig-1g.10gb": "1"},
                        },
                        "volumeMounts": [{"name": "scratch-gpuflow-outputs", "mountPath": "/gpuflow/outputs"}],
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
                "volumes": [{"name": "scratch-gpuflow-outputs", "emptyDir": {}}],
            },
        ),
        outputs={"answers": "string"},
        supervised=True,
        limits=LIMITS,
        source="docs/examples/finetune-eval.yaml",
        failures=0,
        retries=LOST_WORKERS,  # only for workers that die: a failure of the step is not retried
        map_index_template="{{ task.label }}",
    ).expand(
        item=combinations({"shard": range(4)}),  # 4 tasks
    )
    score = GpuPodOperator(
        task_id="score",
        namespace="nlp",
        template=Pod(
            {"labels": {**LABELS, "gpuflow.dev/step": "score"}},
            spec={
                "restartPolicy": "Never",
                "securityContext": SECURITY,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/nlp/evaluate:2.1",
                        "command": [
                            "gpuflow-run",
                            "--pipeline=finetune-eval",
                            "--step=score",
                            join("--run-id=", run_id()),
                            "--output=accuracy:float",
                            "--engine=airflow",
                            "--outputs-dir=/gpuflow/outputs",
                            "--",
                            "python",
                            "score.py",
                            "--answers",
                            output("generate", "answers", each=True),
                            "--seeds",
                            param("seeds"),
                        ],
                        "resources": {
                            "requests": {"cpu": "2", "memory": "12Gi"},
                            "limits": {"cpu": "2", "memory": "12Gi"},
                        },
                        "volumeMounts": [{"name": "scratch-gpuflow-outputs", "mountPath": "/gpuflow/outputs"}],
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
                "volumes": [{"name": "scratch-gpuflow-outputs", "emptyDir": {}}],
            },
        ),
        outputs={"accuracy": "float"},
        supervised=True,
        limits=LIMITS,
        source="docs/examples/finetune-eval.yaml",
    )

    generate >> score
