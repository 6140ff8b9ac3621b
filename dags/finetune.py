# Made by gpuflow 0.1.0 from docs/examples/finetune.yaml sha256:cc3dfbb9e0332b58 for site nvidia.
# Do not edit: change the source and compile again.
# LOST: airflow does not support cache (step "plan"): Airflow keeps no results of earlier runs

from datetime import timedelta

# gpuflow's operators build on this module. Imported here, a DAG processor loads it once, before it forks.
import airflow.providers.cncf.kubernetes.operators.pod  # noqa: F401
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, CronTriggerTimetable, Param, TaskGroup

from gpuflow.airflow import (
    LOST_WORKERS,
    Approve,
    DeleteClaim,
    GpuPodOperator,
    ListItems,
    MakeClaim,
    Pod,
    at_most,
    claim,
    combinations,
    deadline,
    item,
    join,
    output,
    param,
    run_id,
)

# Pods that may exist at once: max_active_tasks does not count tasks that wait in the triggerer.
LIMITS = [at_most(24)]
LIMITS_EVALUATE = [
    at_most(24),
    at_most(2, "evaluate", items=["evaluate.suite"]),
    at_most(4, "evaluate", per=["evaluate.suite"]),
]
# When it is over, steps fail and exit steps still run; with Airflow's dagrun_timeout they would not.
DEADLINES = [deadline(run=timedelta(days=2))]
LABELS = {
    "cost-centre": "4711",
    "team": "nlp",
    "gpuflow.dev/pipeline": "finetune",
    "gpuflow.dev/team": "nlp",
    "kueue.x-k8s.io/queue-name": "research",
}
LABELS_FINETUNE_EVAL = {
    "cost-centre": "4711",
    "team": "nlp",
    "gpuflow.dev/pipeline": "finetune-eval",
    "gpuflow.dev/team": "nlp",
}
ENV = [{"name": "HF_HOME", "value": "/cache"}, {"name": "RUN", "value": run_id()}]
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
RESOURCES_2CPU_8GI = {"requests": {"cpu": "2", "memory": "6Gi"}, "limits": {"cpu": "2", "memory": "8Gi"}}

with DAG(
    dag_id="finetune",
    description="Fine-tune a language model every week, and publish it when people and numbers agree",
    schedule=CronTriggerTimetable("30 2 * * 6", timezone="Europe/Berlin"),
    catchup=False,
    max_active_runs=1,
    max_active_tasks=24,  # running tasks only; pods are counted by limits=
    params={
        "base": Param(
            "llama-3-8b",
            type="string",
            enum=["llama-3-8b", "llama-3-70b"],
            description="The model to start from",
        ),
        "dry_run": Param(False, type="boolean"),
        "epochs": Param(3, type="integer", minimum=1, maximum=10),
        "release": Param("weekly", type="string", description="Where the model is kept"),
        "suites": Param(["mmlu", "gsm8k", "humaneval"], type="array", description="Benchmarks to run"),
        "threshold": Param(
            0.9,
            type="number",
            minimum=0,
            maximum=1,
            description="Accuracy a model needs to be published",
        ),
    },
    doc_md=(
        "Fine-tune a language model every week, and publish it when people and numbers agree\n"
        "\n"
        "Made by gpuflow from `docs/examples/finetune.yaml`. Change that file, not this DAG."
    ),
    default_args={"owner": "nlp"},
    tags=["gpuflow", "team=nlp", "cost-centre=4711"],
) as dag:
    claim_corpus = MakeClaim(
        task_id="claim-corpus",
        namespace="nlp",
        name=claim("finetune-corpus"),
        size="500Gi",
        access="ReadWriteMany",
        storage_class="fast",
    )
    plan = GpuPodOperator(
        task_id="plan",
        doc_md="Look at the bucket and decide what there is to do",
        namespace="nlp",
        template=Pod(
            {"labels": {**LABELS, "gpuflow.dev/step": "plan"}, "annotations": {"example.com/owner": "nlp-oncall"}},
            spec={
                "restartPolicy": "Never",
                "serviceAccountName": "finetune",
                "imagePullSecrets": [{"name": "registry"}],
                "securityContext": SECURITY,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/nlp/finetune:2.1",
                        "imagePullPolicy": "IfNotPresent",
                        "command": [
                            "gpuflow-run",
                            "--pipeline=finetune",
                            "--step=plan",
                            join("--run-id=", run_id()),
                            "--output=languages:json",
                            "--output=rows:int",
                            "--engine=airflow",
                            "--outputs-dir=/gpuflow/outputs",
                            "--",
                            "sh",
                            "-c",
                            'f=$$(mktemp) && printf %s "$0" >"$f" && exec "$@" "$f"',
                            (
                                "import json, os, pathlib\n"
                                "\n"
                                '# Nothing here is expanded: $HOME, $$(date), {{ braces }} and "quotes" reach Python '
                                "as they are.\n"
                                'out = pathlib.Path(os.environ["GPUFLOW_OUTPUTS"])\n'
                                'out.joinpath("languages").write_text(json.dumps(["de", "en", "fr"]))\n'
                                'out.joinpath("rows").write_text("1200000")\n'
                            ),
                            "python3",
                            "-u",
                        ],
                        "workingDir": "/workspace",
                        "env": ENV,
                        "resources": RESOURCES_2CPU_8GI,
                        "volumeMounts": [{"name": "scratch-gpuflow-outputs", "mountPath": "/gpuflow/outputs"}],
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
                "volumes": [{"name": "scratch-gpuflow-outputs", "emptyDir": {}}],
            },
        ),
        outputs={"languages": "json", "rows": "int"},
        supervised=True,
        retries=2,
        retry_delay=timedelta(seconds=30),
        retry_exponential_backoff=2,
        limits=LIMITS,
        deadlines=DEADLINES,
        source="docs/examples/finetune.yaml",
    )
    download = GpuPodOperator.partial(
        task_id="download",
        doc_md="One copy per source, from a fixed list",
        namespace="nlp",
        template=Pod(
            {"labels": {**LABELS, "gpuflow.dev/step": "download"}, "annotations": {"example.com/owner": "nlp-oncall"}},
            spec={
                "restartPolicy": "Never",
                "serviceAccountName": "finetune",
                "activeDeadlineSeconds": 10800,  # the step's timeout
                "imagePullSecrets": [{"name": "registry"}],
                "securityContext": SECURITY,
                "initContainers": [
                    {
                        "name": "permissions",
                        "image": "busybox:1.37",
                        "command": ["sh", "-c", "touch /scratch/ready"],
                        "volumeMounts": [{"name": "scratch-scratch", "mountPath": "/scratch"}],
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/nlp/finetune:2.1",
                        "imagePullPolicy": "IfNotPresent",
                        "command": ["python", "download.py", "--source", item("source"), "--to", "/corpus"],
                        "workingDir": "/workspace",
                        "env": [
                            *ENV,
                            {
                                "name": "AWS_ACCESS_KEY_ID",
                                "valueFrom": {"secretKeyRef": {"name": "object-store", "key": "access"}},
                            },
                            {
                                "name": "AWS_SECRET_ACCESS_KEY",
                                "valueFrom": {"secretKeyRef": {"name": "object-store", "key": "secret"}},
                            },
                            {
                                "name": "MIRROR",
                                "valueFrom": {"configMapKeyRef": {"name": "mirrors", "key": "eu", "optional": True}},
                            },
                        ],
                        "envFrom": [
                            {"secretRef": {"name": "proxy", "optional": True}},
                            {"prefix": "DL_", "configMapRef": {"name": "download-settings"}},
                        ],
                        "resources": {
                            "requests": {"cpu": "2", "memory": "6Gi", "ephemeral-storage": "55Gi"},
                            "limits": {"cpu": "2", "memory": "8Gi", "ephemeral-storage": "60Gi"},
                        },
                        "volumeMounts": [
                            {"name": "run-corpus", "mountPath": "/corpus"},
                            {"name": "scratch-scratch", "mountPath": "/scratch"},
                        ],
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
                "volumes": [
                    {"name": "run-corpus", "persistentVolumeClaim": {"claimName": claim("finetune-corpus")}},
                    {"name": "scratch-scratch", "emptyDir": {"sizeLimit": "50Gi"}},
                ],
            },
        ),
        retries=5,
        retry_delay=timedelta(seconds=10),
        retry_exponential_backoff=3,
        max_retry_delay=timedelta(minutes=5),
        retryable_exit_codes=(1, 28, 56),
        limits=LIMITS,
        deadlines=DEADLINES,
        source="docs/examples/finetune.yaml",
        max_active_tis_per_dagrun=2,
        map_index_template="{{ task.label }}",
    ).expand(item=[{"source": "wiki"}, {"source": "news"}, {"source": "code"}])
    tokenize_items = ListItems(task_id="tokenize-items", for_each={"language": output("plan", "languages", "json")})
    tokenize = GpuPodOperator.partial(
        task_id="tokenize",
        doc_md="One copy per language, known only when plan has run",
        namespace="nlp",
        template=Pod(
            {"labels": {**LABELS, "gpuflow.dev/step": "tokenize"}, "annotations": {"example.com/owner": "nlp-oncall"}},
            spec={
                "restartPolicy": "Never",
                "serviceAccountName": "finetune",
                "imagePullSecrets": [{"name": "registry"}],
                "securityContext": {
                    "runAsNonRoot": True,
                    "runAsUser": 2000,
                    "runAsGroup": 2000,
                    "fsGroup": 2000,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/nlp/finetune:2.1",
                        "imagePullPolicy": "IfNotPresent",
                        "command": [
                            "python",
                            "tokenize.py",
                            "--language",
                            item("language"),
                            "--in",
                            "/corpus",
                            "--vocabulary",
                            "/etc/vocabulary",
                        ],
                        "workingDir": "/workspace",
                        "env": ENV,
                        "resources": {
                            "requests": {"cpu": "8", "memory": "32Gi"},
                            "limits": {"cpu": "8", "memory": "32Gi"},
                        },
                        "volumeMounts": [
                            {"name": "run-corpus", "mountPath": "/corpus"},
                            {"name": "config-vocabulary", "mountPath": "/etc/vocabulary", "readOnly": True},
                        ],
                        "securityContext": {
                            "allowPrivilegeEscalation": False,
                            "capabilities": {"drop": ["ALL"]},
                            "readOnlyRootFilesystem": True,
                        },
                    },
                ],
                "volumes": [
                    {"name": "run-corpus", "persistentVolumeClaim": {"claimName": claim("finetune-corpus")}},
                    {"name": "config-vocabulary", "configMap": {"name": "vocabulary"}},
                ],
            },
        ),
        retries=2,
        retry_delay=timedelta(seconds=30),
        retry_exponential_backoff=2,
        limits=LIMITS,
        deadlines=DEADLINES,
        source="docs/examples/finetune.yaml",
        max_active_tis_per_dagrun=8,
        map_index_template="{{ task.label }}",
    ).expand(item=tokenize_items.output)
    sweep = GpuPodOperator.partial(
        task_id="sweep",
        doc_md="Every combination of learning rate and seed, on shares of small GPUs",
        namespace="nlp",
        template=Pod(
            {"labels": {**LABELS, "gpuflow.dev/step": "sweep"}, "annotations": {"example.com/owner": "nlp-oncall"}},
            spec={
                "restartPolicy": "Never",
                "serviceAccountName": "finetune",
                "imagePullSecrets": [{"name": "registry"}],
                "securityContext": SECURITY,
                "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-L4", "nvidia.com/gpu.sharing-strategy": "mps"},
                "tolerations": TOLERATIONS_GPU,
                "topologySpreadConstraints": [
                    {
                        "maxSkew": 1,
                        "whenUnsatisfiable": "DoNotSchedule",
                        "labelSelector": {
                            "matchLabels": {"gpuflow.dev/pipeline": "finetune", "gpuflow.dev/step": "sweep"},
                        },
                        "topologyKey": "kubernetes.io/hostname",
                    },
                ],
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/nlp/finetune:2.1",
                        "imagePullPolicy": "IfNotPresent",
                        "command": [
                            "gpuflow-run",
                            "--pipeline=finetune",
                            "--step=sweep",
                            join("--run-id=", run_id()),
                            join("--item=lr=", item("lr"), ",seed=", item("seed")),
                            "--output=loss:float",
                            "--engine=airflow",
                            "--outputs-dir=/gpuflow/outputs",
                            "--",
                            "python",
                            "sweep.py",
                            "--lr",
                            item("lr"),
                            "--seed",
                            item("seed"),
                            "--rows",
                            output("plan", "rows", "int", default=0),
                        ],
                        "workingDir": "/workspace",
                        "env": ENV,
                        "resources": {
                            "requests": {"cpu": "2", "memory": "6Gi", "nvidia.com/gpu.shared": "1"},
                            "limits": {"cpu": "2", "memory": "8Gi", "nvidia.com/gpu.shared": "1"},
                        },
                        "volumeMounts": [
                            {"name": "run-corpus", "mountPath": "/corpus", "subPath": "tokens", "readOnly": True},
                            {"name": "scratch-gpuflow-outputs", "mountPath": "/gpuflow/outputs"},
                        ],
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
                "volumes": [
                    {"name": "run-corpus", "persistentVolumeClaim": {"claimName": claim("finetune-corpus")}},
                    {"name": "scratch-gpuflow-outputs", "emptyDir": {}},
                ],
            },
        ),
        outputs={"loss": "float"},
        supervised=True,
        failures=1,  # Airflow's own retry_delay lies between them: 5 minutes, or [core] default_task_retry_delay
        interruptions=5,  # another pod at once, in the same try
        limits=LIMITS,
        deadlines=DEADLINES,
        source="docs/examples/finetune.yaml",
        max_active_tis_per_dagrun=6,
        # the failures, and tries for workers that die; of a mapped task Airflow reads them here
        retries=1 + LOST_WORKERS,
        map_index_template="{{ task.label }}",
    ).expand(
        item=combinations({"lr": [1e-05, 2e-05, 5e-05], "seed": range(1, 4)}),  # 9 tasks
    )
    select = GpuPodOperator(
        task_id="select",
        doc_md="The fan-out's losses arrive as one list",
        namespace="nlp",
        template=Pod(
            {"labels": {**LABELS, "gpuflow.dev/step": "select"}, "annotations": {"example.com/owner": "nlp-oncall"}},
            spec={
                "restartPolicy": "Never",
                "serviceAccountName": "finetune",
                "imagePullSecrets": [{"name": "registry"}],
                "securityContext": {"runAsUser": 0, "seccompProfile": {"type": "RuntimeDefault"}},
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/nlp/finetune:2.1",
                        "imagePullPolicy": "IfNotPresent",
                        "command": [
                            "gpuflow-run",
                            "--pipeline=finetune",
                            "--step=select",
                            join("--run-id=", run_id()),
                            "--output=lr:float",
                            "--output=worthwhile:bool",
                            "--engine=airflow",
                            "--outputs-dir=/gpuflow/outputs",
                            "--",
                            "python",
                            "select.py",
                            "--losses",
                            output("sweep", "loss", "float", each=True),
                        ],
                        "workingDir": "/workspace",
                        "env": ENV,
                        "resources": RESOURCES_2CPU_8GI,
                        "volumeMounts": [{"name": "scratch-gpuflow-outputs", "mountPath": "/gpuflow/outputs"}],
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
                "volumes": [{"name": "scratch-gpuflow-outputs", "emptyDir": {}}],
            },
        ),
        outputs={"lr": "float", "worthwhile": "bool"},
        supervised=True,
        retries=2,
        retry_delay=timedelta(seconds=30),
        retry_exponential_backoff=2,
        limits=LIMITS,
        deadlines=DEADLINES,
        source="docs/examples/finetune.yaml",
    )
    train = GpuPodOperator(
        task_id="train",
        doc_md="The long one, on eight GPUs of one machine, resumed after every interruption",
        namespace="nlp",
        template=Pod(
            {
                "labels": {
                    "cost-centre": "4711",
                    "team": "nlp",
                    "gpuflow.dev/pipeline": "finetune",
                    "gpuflow.dev/step": "train",
                    "gpuflow.dev/team": "nlp",
                    "kueue.x-k8s.io/queue-name": "research",
                    "kueue.x-k8s.io/priority-class": "weekly",
                },
                "annotations": {"example.com/owner": "nlp-oncall"},
            },
            spec={
                "restartPolicy": "Never",
                "serviceAccountName": "finetune",
                "priorityClassName": "training",
                "terminationGracePeriodSeconds": 120,  # longer than --grace below, for the last checkpoint
                # the step's timeout, which gpuflow-run keeps itself, and an hour for the image, init containers and the
                # end
                "activeDeadlineSeconds": 90120,
                "imagePullSecrets": [{"name": "registry"}],
                "securityContext": SECURITY,
                "nodeSelector": {"example.com/fabric": "infiniband"},
                "affinity": AFFINITY_A100_80GB,
                "tolerations": [
                    {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
                    {"key": "example.com/reserved", "operator": "Equal", "value": "training", "effect": "NoSchedule"},
                ],
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/nlp/finetune:2.1",
                        "imagePullPolicy": "IfNotPresent",
                        "command": [
                            "gpuflow-run",
                            "--pipeline=finetune",
                            "--step=train",
                            join("--run-id=", run_id()),
                            "--checkpoint-dir=/checkpoints",
                            join("--store=s3://models/finetune/", param("release")),
                            "--every=20m",
                            "--keep=3",
                            "--grace=1m30s",
                            "--resume-env=RESUME_FROM",
                            "--failures=1",
                            "--interruptions=20",
                            "--final-exit-codes=2,64",
                            "--output=loss:float",
                            "--output=model:directory=/out/model",
                            join("--artifact=model=s3://models/", param("release"), "/", run_id()),
                            "--engine=airflow",
                            "--outputs-dir=/gpuflow/outputs",
                            "--timeout=1d",
                            "--",
                            "torchrun",
                            "--nproc-per-node=8",
                            "train.py",
                            "--base",
                            param("base"),
                            "--epochs",
                            param("epochs"),
                            "--lr",
                            output("select", "lr", "float"),
                            "--bf16",
                            "--cost",
                            "$$$$ per $$(HOUR)",
                        ],
                        "workingDir": "/workspace",
                        "env": ENV,
                        "resources": {
                            "requests": {"cpu": "64", "memory": "800Gi", "nvidia.com/gpu": "8", "rdma/hca": "4"},
                            "limits": {"cpu": "64", "memory": "800Gi", "nvidia.com/gpu": "8", "rdma/hca": "4"},
                        },
                        "volumeMounts": [
                            {"name": "claim-model-cache", "mountPath": "/cache"},
                            {"name": "run-corpus", "mountPath": "/corpus", "readOnly": True},
                            {"name": "scratch-ramdisk", "mountPath": "/ramdisk"},
                            {"name": "secret-wandb", "mountPath": "/secrets", "readOnly": True},
                            {"name": "scratch-dev-shm", "mountPath": "/dev/shm"},
                            {"name": "scratch-checkpoints", "mountPath": "/checkpoints"},
                            {"name": "scratch-gpuflow-outputs", "mountPath": "/gpuflow/outputs"},
                        ],
                        "securityContext": {
                            "allowPrivilegeEscalation": False,
                            "capabilities": {"drop": ["ALL"], "add": ["IPC_LOCK"]},
                        },
                    },
                ],
                "volumes": [
                    {"name": "claim-model-cache", "persistentVolumeClaim": {"claimName": "model-cache"}},
                    {"name": "run-corpus", "persistentVolumeClaim": {"claimName": claim("finetune-corpus")}},
                    {"name": "scratch-ramdisk", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}},
                    {"name": "secret-wandb", "secret": {"secretName": "wandb"}},
                    {"name": "scratch-dev-shm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}},
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
        retry_delay=timedelta(minutes=1),
        interruption_delay=timedelta(minutes=1),
        retry_exponential_backoff=2,
        max_retry_delay=timedelta(minutes=15),
        final_exit_codes=(2, 64),
        more_memory={"factor": 1.5, "max": "1200Gi"},
        limits=LIMITS,
        deadlines=DEADLINES,
        source="docs/examples/finetune.yaml",
        when=output("select", "worthwhile", "bool") & ~param("dry_run"),
    )
    quantize = GpuPodOperator(
        task_id="quantize",
        doc_md="Whichever of these GPUs is free",
        namespace="nlp",
        template=Pod(
            {"labels": {**LABELS, "gpuflow.dev/step": "quantize"}, "annotations": {"example.com/owner": "nlp-oncall"}},
            spec={
                "restartPolicy": "Never",
                "serviceAccountName": "finetune",
                "imagePullSecrets": [{"name": "registry"}],
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
                                                "NVIDIA-H100-80GB-HBM3",
                                                "NVIDIA-H100-PCIe",
                                                "NVIDIA-H800",
                                            ],
                                        },
                                    ],
                                },
                            ],
                        },
                    },
                },
                "tolerations": TOLERATIONS_GPU,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/nlp/finetune:2.1",
                        "imagePullPolicy": "IfNotPresent",
                        "command": [
                            "gpuflow-run",
                            "--pipeline=finetune",
                            "--step=quantize",
                            join("--run-id=", run_id()),
                            "--output=model:directory",
                            join("--artifact=model=s3://models/", param("release"), "/int8"),
                            "--engine=airflow",
                            "--outputs-dir=/gpuflow/outputs",
                            "--",
                            "python",
                            "quantize.py",
                            "--model",
                            output("train", "model"),
                        ],
                        "workingDir": "/workspace",
                        "env": ENV,
                        "resources": {
                            "requests": {"cpu": "2", "memory": "64Gi", "nvidia.com/gpu": "1"},
                            "limits": {"cpu": "2", "memory": "64Gi", "nvidia.com/gpu": "1"},
                        },
                        "volumeMounts": [{"name": "scratch-gpuflow-outputs", "mountPath": "/gpuflow/outputs"}],
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
                "volumes": [{"name": "scratch-gpuflow-outputs", "emptyDir": {}}],
            },
        ),
        outputs={"model": "string"},
        artifacts={"model": {}},
        supervised=True,
        retries=2,
        retry_delay=timedelta(seconds=30),
        retry_exponential_backoff=2,
        limits=LIMITS,
        deadlines=DEADLINES,
        source="docs/examples/finetune.yaml",
    )
    evaluate_items = ListItems(task_id="evaluate-items", for_each={"evaluate.suite": param("suites")}, distinct=True)
    with TaskGroup("evaluate"):
        evaluate_generate_items = ListItems(
            task_id="generate-items",
            within=["evaluate-items"],
            keys=["evaluate.suite"],
            for_each={"shard": range(4)},
        )
        evaluate_generate = GpuPodOperator.partial(
            task_id="generate",
            namespace="nlp",
            template=Pod(
                {"labels": {**LABELS_FINETUNE_EVAL, "gpuflow.dev/step": "generate"}},
                spec={
                    "restartPolicy": "Never",
                    "securityContext": SECURITY,
                    "affinity": AFFINITY_A100_80GB,
                    "tolerations": TOLERATIONS_GPU,
                    "containers": [
                        {
                            "name": "main",
                            "image": "registry.example.com/nlp/evaluate:2.1",
                            "command": [
                                "gpuflow-run",
                                "--pipeline=finetune-eval",
                                "--step=generate",
                                join("--run-id=", run_id()),
                                join("--item=evaluate.suite=", item("evaluate.suite"), ",shard=", item("shard")),
                                "--output=answers:string",
                                "--engine=airflow",
                                "--outputs-dir=/gpuflow/outputs",
                                "--",
                                "python",
                                "generate.py",
                                "--suite",
                                item("evaluate.suite"),
                                "--model",
                                output("quantize", "model"),
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
            limits=LIMITS_EVALUATE,
            deadlines=DEADLINES,
            failures=0,
            retries=LOST_WORKERS,  # only for workers that die: a failure of the step is not retried
            map_index_template="{{ task.label }}",
        ).expand(item=evaluate_generate_items.output)
        evaluate_score = GpuPodOperator.partial(
            task_id="score",
            namespace="nlp",
            template=Pod(
                {"labels": {**LABELS_FINETUNE_EVAL, "gpuflow.dev/step": "score"}},
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
                                join("--item=evaluate.suite=", item("evaluate.suite")),
                                "--output=accuracy:float",
                                "--engine=airflow",
                                "--outputs-dir=/gpuflow/outputs",
                                "--",
                                "python",
                                "score.py",
                                "--answers",
                                output(
                                    "evaluate.generate",
                                    "answers",
                                    each=True,
                                    items="evaluate.generate-items",
                                    same=["evaluate.suite"],
                                ),
                                "--seeds",
                                "3",
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
            limits=LIMITS_EVALUATE,
            deadlines=DEADLINES,
            failures=0,
            retries=LOST_WORKERS,  # only for workers that die: a failure of the step is not retried
            map_index_template="{{ task.label }}",
        ).expand(item=evaluate_items.output)
    report = GpuPodOperator(
        task_id="report",
        namespace="nlp",
        template=Pod(
            {"labels": {**LABELS, "gpuflow.dev/step": "report"}, "annotations": {"example.com/owner": "nlp-oncall"}},
            spec={
                "restartPolicy": "Never",
                "serviceAccountName": "finetune",
                "imagePullSecrets": [{"name": "registry"}],
                "securityContext": SECURITY,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/nlp/finetune:2.1",
                        "imagePullPolicy": "IfNotPresent",
                        "command": [
                            "gpuflow-run",
                            "--pipeline=finetune",
                            "--step=report",
                            join("--run-id=", run_id()),
                            "--output=accuracy:float",
                            "--output=card:file=/out/card.md",
                            join("--artifact=card=s3://reports/", run_id(), "/card.md"),
                            "--engine=airflow",
                            "--outputs-dir=/gpuflow/outputs",
                            "--",
                            "python",
                            "report.py",
                            "--scores",
                            output("evaluate.score", "accuracy", "float", each=True),
                        ],
                        "workingDir": "/workspace",
                        "env": ENV,
                        "resources": RESOURCES_2CPU_8GI,
                        "volumeMounts": [{"name": "scratch-gpuflow-outputs", "mountPath": "/gpuflow/outputs"}],
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
                "volumes": [{"name": "scratch-gpuflow-outputs", "emptyDir": {}}],
            },
        ),
        outputs={"accuracy": "float", "card": "string"},
        artifacts={"card": {}},
        supervised=True,
        retries=2,
        retry_delay=timedelta(seconds=30),
        retry_exponential_backoff=2,
        limits=LIMITS,
        deadlines=DEADLINES,
        source="docs/examples/finetune.yaml",
    )
    smoke_test = GpuPodOperator(
        task_id="smoke-test",
        doc_md="Any GPU with enough memory serves the model beside a small client",
        namespace="nlp",
        template=Pod(
            {
                "labels": {**LABELS, "gpuflow.dev/step": "smoke-test"},
                "annotations": {"example.com/owner": "nlp-oncall"},
            },
            spec={
                "restartPolicy": "Never",
                "serviceAccountName": "finetune",
                "imagePullSecrets": [{"name": "registry"}],
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
                                                "Tesla-V100-SXM2-32GB",
                                                "Tesla-V100-PCIE-32GB",
                                                "Tesla-V100S-PCIE-32GB",
                                                "Tesla-V100-SXM3-32GB",
                                                "NVIDIA-A10",
                                                "NVIDIA-A10G",
                                                "NVIDIA-A30",
                                                "NVIDIA-A40",
                                                "NVIDIA-RTX-A6000",
                                                "NVIDIA-GeForce-RTX-3090",
                                                "NVIDIA-A100-SXM4-40GB",
                                                "NVIDIA-A100-PCIE-40GB",
                                                "NVIDIA-A800-SXM4-40GB",
                                                "NVIDIA-A100-SXM4-80GB",
                                                "NVIDIA-A100-80GB-PCIe",
                                                "NVIDIA-A800-SXM4-80GB",
                                                "NVIDIA-L4",
                                                "NVIDIA-L40",
                                                "NVIDIA-L40S",
                                                "NVIDIA-GeForce-RTX-4090",
                                                "NVIDIA-H100-80GB-HBM3",
                                                "NVIDIA-H100-PCIe",
                                                "NVIDIA-H800",
                                                "NVIDIA-H100-NVL",
                                                "NVIDIA-H200",
                                                "NVIDIA-H200-NVL",
                                                "NVIDIA-B200",
                                                "NVIDIA-GB200",
                                                "NVIDIA-B300-SXM6-AC",
                                                "NVIDIA-GeForce-RTX-5090",
                                                "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition",
                                                "NVIDIA-RTX-PRO-6000-Blackwell-Workstation-Edition",
                                                "NVIDIA-RTX-PRO-6000-Blackwell-Max-Q-Workstation-Edition",
                                            ],
                                        },
                                    ],
                                },
                            ],
                        },
                    },
                },
                "tolerations": TOLERATIONS_GPU,
                "initContainers": [
                    {
                        "name": "server",
                        "image": "registry.example.com/serving/vllm:0.9",
                        "command": ["vllm", "serve", output("quantize", "model")],
                        "ports": [{"containerPort": 8000}],
                        "resources": {
                            "requests": {"cpu": "4", "memory": "24Gi"},
                            "limits": {"cpu": "4", "memory": "24Gi"},
                        },
                        "livenessProbe": {"tcpSocket": {"port": 8000}, "periodSeconds": 30, "timeoutSeconds": 5},
                        "startupProbe": {
                            "httpGet": {"path": "/health", "port": 8000},
                            "periodSeconds": 10,
                            "failureThreshold": 60,
                        },
                        "securityContext": CONTAINER_SECURITY,
                        "restartPolicy": "Always",
                    },
                ],
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/nlp/finetune:2.1",
                        "imagePullPolicy": "IfNotPresent",
                        "command": ["python", "client.py", "--server", "http://localhost:8000"],
                        "workingDir": "/workspace",
                        "env": ENV,
                        "resources": {
                            "requests": {"cpu": "2", "memory": "6Gi", "nvidia.com/gpu": "1"},
                            "limits": {"cpu": "2", "memory": "8Gi", "nvidia.com/gpu": "1"},
                        },
                        "readinessProbe": {"exec": {"command": ["test", "-e", "/tmp/ready"]}, "initialDelaySeconds": 5},
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
            },
        ),
        retries=2,
        retry_delay=timedelta(seconds=30),
        retry_exponential_backoff=2,
        limits=LIMITS,
        deadlines=DEADLINES,
        source="docs/examples/finetune.yaml",
    )
    approve = Approve(
        task_id="approve",
        doc_md="A person looks at the report",
        message="Publish the new model?",
        response_timeout=timedelta(hours=12),
        deadlines=DEADLINES,
        when=output("report", "accuracy", "float", default=0.0) >= param("threshold", "float"),
    )
    publish = GpuPodOperator(
        task_id="publish",
        namespace="nlp",
        template=Pod(
            {"labels": {**LABELS, "gpuflow.dev/step": "publish"}, "annotations": {"example.com/owner": "nlp-oncall"}},
            spec={
                "restartPolicy": "Never",
                "serviceAccountName": "finetune",
                "imagePullSecrets": [{"name": "registry"}],
                "securityContext": SECURITY,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/nlp/finetune:2.1",
                        "imagePullPolicy": "IfNotPresent",
                        "command": [
                            "python",
                            "publish.py",
                            "--release",
                            param("release"),
                            "--model",
                            output("quantize", "model"),
                        ],
                        "workingDir": "/workspace",
                        "env": ENV,
                        "resources": RESOURCES_2CPU_8GI,
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
            },
        ),
        retries=2,
        retry_delay=timedelta(seconds=30),
        retry_exponential_backoff=2,
        limits=LIMITS,
        deadlines=DEADLINES,
        source="docs/examples/finetune.yaml",
        when=param("base").is_in(["llama-3-8b", "llama-3-70b"]) & (output("train", "loss", "float") < 2.5),
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
            {"labels": {**LABELS, "gpuflow.dev/step": "notify"}, "annotations": {"example.com/owner": "nlp-oncall"}},
            spec={
                "restartPolicy": "Never",
                "serviceAccountName": "finetune",
                "imagePullSecrets": [{"name": "registry"}],
                "securityContext": SECURITY,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/nlp/finetune:2.1",
                        "imagePullPolicy": "IfNotPresent",
                        "command": [
                            "python",
                            "notify.py",
                            "--run",
                            run_id(),
                            "--accuracy",
                            output("report", "accuracy", "float", default=0.0),
                        ],
                        "workingDir": "/workspace",
                        "env": ENV,
                        "resources": RESOURCES_2CPU_8GI,
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
            },
        ),
        retries=2,
        retry_delay=timedelta(seconds=30),
        retry_exponential_backoff=2,
        limits=LIMITS,
        source="docs/examples/finetune.yaml",
        trigger_rule="all_done",
    )
    page = GpuPodOperator(
        task_id="page",
        namespace="nlp",
        template=Pod(
            {"labels": {**LABELS, "gpuflow.dev/step": "page"}, "annotations": {"example.com/owner": "nlp-oncall"}},
            spec={
                "restartPolicy": "Never",
                "serviceAccountName": "finetune",
                "imagePullSecrets": [{"name": "registry"}],
                "securityContext": SECURITY,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/nlp/finetune:2.1",
                        "imagePullPolicy": "IfNotPresent",
                        "command": ["python", "page.py", "--team", "nlp"],
                        "workingDir": "/workspace",
                        "env": ENV,
                        "resources": RESOURCES_2CPU_8GI,
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
            },
        ),
        retries=2,
        retry_delay=timedelta(seconds=30),
        retry_exponential_backoff=2,
        limits=LIMITS,
        source="docs/examples/finetune.yaml",
        trigger_rule="all_done",
        only_after_failure=True,
    )
    tidy = GpuPodOperator(
        task_id="tidy",
        namespace="nlp",
        template=Pod(
            {"labels": {**LABELS, "gpuflow.dev/step": "tidy"}, "annotations": {"example.com/owner": "nlp-oncall"}},
            spec={
                "restartPolicy": "Never",
                "serviceAccountName": "finetune",
                "imagePullSecrets": [{"name": "registry"}],
                "securityContext": SECURITY,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/nlp/finetune:2.1",
                        "imagePullPolicy": "IfNotPresent",
                        "command": ["python", "tidy.py", "--keep", "3"],
                        "workingDir": "/workspace",
                        "env": ENV,
                        "resources": RESOURCES_2CPU_8GI,
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
            },
        ),
        retries=2,
        retry_delay=timedelta(seconds=30),
        retry_exponential_backoff=2,
        limits=LIMITS,
        source="docs/examples/finetune.yaml",
        trigger_rule="none_failed",
    )
    outcome = EmptyOperator(
        task_id="outcome",
        doc_md="Fails when a task of the run failed: Airflow decides by the last tasks alone.",
        trigger_rule="none_failed",
    )
    delete_claim_corpus = DeleteClaim(
        task_id="delete-claim-corpus",
        name=claim("finetune-corpus"),
        namespace="nlp",
        trigger_rule="all_done",
    )

    ends = [report, smoke_test, approve, publish, all_done]
    claim_corpus >> plan
    plan >> download
    [download, plan] >> tokenize_items
    [tokenize, plan] >> sweep
    sweep >> select
    select >> train
    train >> quantize
    quantize >> evaluate_items
    evaluate_items >> evaluate_generate_items
    evaluate_generate >> evaluate_score
    evaluate_score >> report
    quantize >> smoke_test
    [report, smoke_test] >> approve
    [approve, quantize, train] >> publish
    [
        claim_corpus,
        plan,
        download,
        tokenize_items,
        tokenize,
        sweep,
        select,
        train,
        quantize,
        evaluate_items,
        evaluate_generate_items,
        evaluate_generate,
        evaluate_score,
        report,
        smoke_test,
        approve,
        publish,
    ] >> all_done
    all_done >> notify
    ends >> page
    ends >> tidy
    [report, smoke_test, approve, publish, notify, page, tidy] >> outcome
    [all_done, notify, page, tidy] >> delete_claim_corpus
    delete_claim_corpus >> outcome
