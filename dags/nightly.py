# Made by gpuflow 0.1.0 from docs/examples/nightly.yaml sha256:5794aba0f74b1373 for site nvidia.
# Do not edit: change the source and compile again.

from datetime import timedelta

# gpuflow's operators build on this module. Imported here, a DAG processor loads it once, before it forks.
import airflow.providers.cncf.kubernetes.operators.pod  # noqa: F401
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, CronTriggerTimetable, Param

from gpuflow.airflow import LOST_WORKERS, GpuPodOperator, ListItems, Pod, item, join, output, param, run_id

LABELS = {"team": "nlp", "gpuflow.dev/pipeline": "nightly", "gpuflow.dev/team": "nlp"}
SECURITY = {
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "runAsGroup": 1000,
    "fsGroup": 1000,
    "seccompProfile": {"type": "RuntimeDefault"},
}
AFFINITY_A100_80GB = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {
                    "matchExpressions": [
                        {
                            "key": "nvidia.com/gpu.product",
                            "operator": "In",
                            "values": ["NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-80GB-PCIe", "NVIDIA-A800-SXM4-80GB"],
                        },
                    ],
                },
            ],
        },
    },
}
TOLERATIONS_GPU = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
CONTAINER_SECURITY = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
RESOURCES_2CPU_8GI = {"requests": {"cpu": "2", "memory": "8Gi"}, "limits": {"cpu": "2", "memory": "8Gi"}}

with DAG(
    dag_id="nightly",
    description="Fetch, tokenize, train on two GPUs, evaluate on MIG slices, deploy when it is good enough",
    schedule=CronTriggerTimetable("0 0 * * *", timezone="Europe/Berlin"),
    catchup=False,
    max_active_runs=1,
    params={
        "lr": Param(2e-05, type="number", minimum=0),
        "suites": Param(["mmlu", "gsm8k", "humaneval"], type="array"),
    },
    doc_md=(
        "Fetch, tokenize, train on two GPUs, evaluate on MIG slices, deploy when it is good enough\n"
        "\n"
        "Made by gpuflow from `docs/examples/nightly.yaml`. Change that file, not this DAG."
    ),
    default_args={"owner": "nlp"},
    tags=["gpuflow", "team=nlp"],
) as dag:
    fetch = GpuPodOperator(
        task_id="fetch",
        namespace="nlp",
        template=Pod(
            {"labels": {**LABELS, "gpuflow.dev/step": "fetch"}},
            spec={
                "restartPolicy": "Never",
                "securityContext": SECURITY,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/nlp/train:1.4",
                        "command": ["python", "fetch.py", "--from", "s3://corpus/daily", "--to", "s3://staging/raw"],
                        "env": [
                            {
                                "name": "AWS_ACCESS_KEY_ID",
                                "valueFrom": {"secretKeyRef": {"name": "object-store", "key": "access"}},
                            },
                            {
                                "name": "AWS_SECRET_ACCESS_KEY",
                                "valueFrom": {"secretKeyRef": {"name": "object-store", "key": "secret"}},
                            },
                        ],
                        "resources": RESOURCES_2CPU_8GI,
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
            },
        ),
        retries=3,
        retry_delay=timedelta(minutes=1),
        retry_exponential_backoff=2,
        source="docs/examples/nightly.yaml",
    )
    tokenize = GpuPodOperator(
        task_id="tokenize",
        namespace="nlp",
        template=Pod(
            {"labels": {**LABELS, "gpuflow.dev/step": "tokenize"}},
            spec={
                "restartPolicy": "Never",
                "securityContext": SECURITY,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/nlp/train:1.4",
                        "command": [
                            "gpuflow-run",
                            "--pipeline=nightly",
                            "--step=tokenize",
                            join("--run-id=", run_id()),
                            "--output=shards:int",
                            "--engine=airflow",
                            "--outputs-dir=/gpuflow/outputs",
                            "--",
                            "python",
                            "tokenize.py",
                            "--from",
                            "s3://staging/raw",
                            "--to",
                            "s3://staging/tokens",
                        ],
                        "resources": {
                            "requests": {"cpu": "8", "memory": "32Gi"},
                            "limits": {"cpu": "8", "memory": "32Gi"},
                        },
                        "volumeMounts": [{"name": "scratch-gpuflow-outputs", "mountPath": "/gpuflow/outputs"}],
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
                "volumes": [{"name": "scratch-gpuflow-outputs", "emptyDir": {}}],
            },
        ),
        outputs={"shards": "int"},
        supervised=True,
        source="docs/examples/nightly.yaml",
    )
    train = GpuPodOperator(
        task_id="train",
        namespace="nlp",
        template=Pod(
            {"labels": {**LABELS, "gpuflow.dev/step": "train"}},
            spec={
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 100,  # longer than --grace below, for the last checkpoint
                "securityContext": SECURITY,
                "affinity": AFFINITY_A100_80GB,
                "tolerations": TOLERATIONS_GPU,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/nlp/train:1.4",
                        "command": [
                            "gpuflow-run",
                            "--pipeline=nightly",
                            "--step=train",
                            join("--run-id=", run_id()),
                            "--checkpoint-dir=/checkpoints",
                            "--store=s3://models/nightly",
                            "--every=auto",
                            "--keep=2",
                            "--grace=1m30s",
                            "--failures=1",
                            "--interruptions=20",
                            "--",
                            "torchrun",
                            "--nproc-per-node=2",
                            "train.py",
                            "--lr",
                            param("lr", "float"),
                            "--shards",
                            output("tokenize", "shards", "int"),
                        ],
                        "resources": {
                            "requests": {"cpu": "16", "memory": "200Gi", "nvidia.com/gpu": "2"},
                            "limits": {"cpu": "16", "memory": "200Gi", "nvidia.com/gpu": "2"},
                        },
                        "volumeMounts": [
                            {"name": "scratch-dev-shm", "mountPath": "/dev/shm"},
                            {"name": "scratch-checkpoints", "mountPath": "/checkpoints"},
                        ],
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
                "volumes": [
                    {"name": "scratch-dev-shm", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}},
                    {"name": "scratch-checkpoints", "emptyDir": {}},
                ],
            },
        ),
        supervised=True,
        failures=1,
        interruptions=20,
        retry_delay=timedelta(seconds=30),
        interruption_delay=timedelta(seconds=30),
        retry_exponential_backoff=2,
        max_retry_delay=timedelta(minutes=10),
        source="docs/examples/nightly.yaml",
    )
    evaluate_items = ListItems(task_id="evaluate-items", for_each={"suite": param("suites")})
    evaluate = GpuPodOperator.partial(
        task_id="evaluate",
        namespace="nlp",
        template=Pod(
            {"labels": {**LABELS, "gpuflow.dev/step": "evaluate"}},
            spec={
                "restartPolicy": "Never",
                "securityContext": SECURITY,
                "affinity": AFFINITY_A100_80GB,
                "tolerations": TOLERATIONS_GPU,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/nlp/train:1.4",
                        "command": [
                            "gpuflow-run",
                            "--pipeline=nightly",
                            "--step=evaluate",
                            join("--run-id=", run_id()),
                            join("--item=suite=", item("suite")),
                            "--output=accuracy:float",
                            "--engine=airflow",
                            "--outputs-dir=/gpuflow/outputs",
                            "--",
                            "python",
                            "evaluate.py",
                            "--suite",
                            item("suite"),
                            "--model",
                            "s3://models/nightly",
                        ],
                        "resources": {
                            "requests": {"cpu": "2", "memory": "8Gi", "nvidia.com/mig-1g.10gb": "1"},
                            "limits": {"cpu": "2", "memory": "8Gi", "nvidia.com/mig-1g.10gb": "1"},
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
        source="docs/examples/nightly.yaml",
        max_active_tis_per_dagrun=2,
        failures=0,
        retries=LOST_WORKERS,  # only for workers that die: a failure of the step is not retried
        map_index_template="{{ task.label }}",
    ).expand(item=evaluate_items.output)
    report = GpuPodOperator(
        task_id="report",
        namespace="nlp",
        template=Pod(
            {"labels": {**LABELS, "gpuflow.dev/step": "report"}},
            spec={
                "restartPolicy": "Never",
                "securityContext": SECURITY,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/nlp/train:1.4",
                        "command": [
                            "gpuflow-run",
                            "--pipeline=nightly",
                            "--step=report",
                            join("--run-id=", run_id()),
                            "--output=accuracy:float",
                            "--engine=airflow",
                            "--outputs-dir=/gpuflow/outputs",
                            "--",
                            "python",
                            "report.py",
                            "--scores",
                            output("evaluate", "accuracy", "float", each=True),
                        ],
                        "resources": RESOURCES_2CPU_8GI,
                        "volumeMounts": [{"name": "scratch-gpuflow-outputs", "mountPath": "/gpuflow/outputs"}],
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
                "volumes": [{"name": "scratch-gpuflow-outputs", "emptyDir": {}}],
            },
        ),
        outputs={"accuracy": "float"},
        supervised=True,
        source="docs/examples/nightly.yaml",
    )
    deploy = GpuPodOperator(
        task_id="deploy",
        namespace="nlp",
        template=Pod(
            {"labels": {**LABELS, "gpuflow.dev/step": "deploy"}},
            spec={
                "restartPolicy": "Never",
                "securityContext": SECURITY,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/nlp/train:1.4",
                        "command": ["python", "deploy.py", "--model", "s3://models/nightly"],
                        "resources": RESOURCES_2CPU_8GI,
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
            },
        ),
        source="docs/examples/nightly.yaml",
        when=output("report", "accuracy", "float") > 0.9,
    )
    all_done = EmptyOperator(
        task_id="all-done",
        doc_md="Waits until every task has ended: Airflow gives up on a task while others before it still run.",
        trigger_rule="all_done",
    )
    notify = GpuPodOperator(
        task_id="notify",
        namespace="nlp",
        template=Pod(
            {"labels": {**LABELS, "gpuflow.dev/step": "notify"}},
            spec={
                "restartPolicy": "Never",
                "securityContext": SECURITY,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/nlp/train:1.4",
                        "command": ["python", "notify.py", "--run", run_id()],
                        "resources": RESOURCES_2CPU_8GI,
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
            },
        ),
        source="docs/examples/nightly.yaml",
        trigger_rule="all_done",
        only_after_failure=True,
    )
    outcome = EmptyOperator(
        task_id="outcome",
        doc_md="Fails when a task of the run failed: Airflow decides by the last tasks alone.",
        trigger_rule="none_failed",
    )

    fetch >> tokenize
    tokenize >> train
    train >> evaluate_items
    evaluate >> report
    report >> deploy
    [fetch, tokenize, train, evaluate_items, evaluate, report, deploy] >> all_done
    [deploy, all_done] >> notify
    [deploy, notify] >> outcome
