# Made by gpuflow 0.1.0 from nested.yaml sha256:48b17fb33d674ad4 for site nvidia.
# Do not edit: change the source and compile again.

# gpuflow's operators build on this module. Imported here, a DAG processor loads it once, before it forks.
import airflow.providers.cncf.kubernetes.operators.pod  # noqa: F401
from airflow.sdk import DAG, Param, TaskGroup

from gpuflow.airflow import (
    LOST_WORKERS,
    GpuPodOperator,
    ListItems,
    Mark,
    Pod,
    at_most,
    began,
    item,
    join,
    output,
    param,
    run_id,
)

# Pods that may exist at once: max_active_tasks does not count tasks that wait in the triggerer.
LIMITS = [at_most(8)]
LIMITS_EVALUATE = [
    at_most(8),
    at_most(2, "evaluate", items=["evaluate.suite"]),
    at_most(3, "evaluate", per=["evaluate.suite"]),
]
SECURITY = {
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "runAsGroup": 1000,
    "fsGroup": 1000,
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER_SECURITY = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}

with DAG(
    dag_id="nested",
    schedule=None,
    catchup=False,
    max_active_tasks=8,  # running tasks only; pods are counted by limits=
    params={"suites": Param(["mmlu", "gsm8k"], type="array")},
    doc_md="Made by gpuflow from `nested.yaml`. Change that file, not this DAG.",
    tags=["gpuflow"],
) as dag:
    prepare = GpuPodOperator(
        task_id="prepare",
        namespace="ml",
        template=Pod(
            {"labels": {"gpuflow.dev/pipeline": "nested", "gpuflow.dev/step": "prepare"}},
            spec={
                "restartPolicy": "Never",
                "securityContext": SECURITY,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/train:1",
                        "command": [
                            "gpuflow-run",
                            "--pipeline=nested",
                            "--step=prepare",
                            join("--run-id=", run_id()),
                            "--output=good:bool",
                            "--engine=airflow",
                            "--outputs-dir=/gpuflow/outputs",
                            "--",
                            "prepare",
                        ],
                        "volumeMounts": [{"name": "scratch-gpuflow-outputs", "mountPath": "/gpuflow/outputs"}],
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
                "volumes": [{"name": "scratch-gpuflow-outputs", "emptyDir": {}}],
            },
        ),
        outputs={"good": "bool"},
        supervised=True,
        limits=LIMITS,
        source="nested.yaml",
    )
    evaluate_items = ListItems(
        task_id="evaluate-items",
        for_each={"evaluate.suite": param("suites")},
        distinct=True,
        when=output("prepare", "good", "bool"),
    )
    with TaskGroup("evaluate"):
        evaluate_generate_items = ListItems(
            task_id="generate-items",
            within=["evaluate-items"],
            keys=["evaluate.suite"],
            for_each={"shard": range(4)},
        )
        evaluate_generate = GpuPodOperator.partial(
            task_id="generate",
            namespace="ml",
            template=Pod(
                {"labels": {"gpuflow.dev/pipeline": "one-suite", "gpuflow.dev/step": "generate"}},
                spec={
                    "restartPolicy": "Never",
                    "securityContext": SECURITY,
                    "containers": [
                        {
                            "name": "main",
                            "image": "registry.example.com/evaluate:1",
                            "command": [
                                "gpuflow-run",
                                "--pipeline=one-suite",
                                "--step=generate",
                                join("--run-id=", run_id()),
                                join("--item=evaluate.suite=", item("evaluate.suite"), ",shard=", item("shard")),
                                "--output=path:string",
                                "--engine=airflow",
                                "--outputs-dir=/gpuflow/outputs",
                                "--",
                                "generate",
                                item("evaluate.suite"),
                                item("shard"),
                                "10",
                            ],
                            "volumeMounts": [{"name": "scratch-gpuflow-outputs", "mountPath": "/gpuflow/outputs"}],
                            "securityContext": CONTAINER_SECURITY,
                        },
                    ],
                    "volumes": [{"name": "scratch-gpuflow-outputs", "emptyDir": {}}],
                },
            ),
            outputs={"path": "string"},
            supervised=True,
            # Pods that may exist at once: max_active_tasks does not count tasks that wait in the triggerer.
            limits=[
                at_most(8),
                at_most(2, "evaluate", items=["evaluate.suite"]),
                at_most(3, "evaluate", per=["evaluate.suite"]),
                at_most(2, "evaluate.generate", per=["evaluate.suite"]),
            ],
            failures=0,
            retries=LOST_WORKERS,  # only for workers that die: a failure of the step is not retried
            map_index_template="{{ task.label }}",
        ).expand(item=evaluate_generate_items.output)
        evaluate_check_items = ListItems(
            task_id="check-items",
            within=["evaluate-items", "evaluate.generate-items"],
            keys=["evaluate.suite"],
            when=item("evaluate.suite") != "gsm8k",
        )
        evaluate_check = GpuPodOperator.partial(
            task_id="check",
            namespace="ml",
            template=Pod(
                {"labels": {"gpuflow.dev/pipeline": "one-suite", "gpuflow.dev/step": "check"}},
                spec={
                    "restartPolicy": "Never",
                    "securityContext": SECURITY,
                    "containers": [
                        {
                            "name": "main",
                            "image": "registry.example.com/evaluate:1",
                            "command": ["check", item("evaluate.suite")],
                            "securityContext": CONTAINER_SECURITY,
                        },
                    ],
                },
            ),
            limits=LIMITS_EVALUATE,
            failures=0,
            retries=LOST_WORKERS,  # only for workers that die: a failure of the step is not retried
            map_index_template="{{ task.label }}",
        ).expand(item=evaluate_check_items.output)
        evaluate_score_items = ListItems(
            task_id="score-items",
            within=["evaluate-items", "evaluate.generate-items", "evaluate.check-items"],
            keys=["evaluate.suite"],
        )
        evaluate_score = GpuPodOperator.partial(
            task_id="score",
            namespace="ml",
            template=Pod(
                {"labels": {"gpuflow.dev/pipeline": "one-suite", "gpuflow.dev/step": "score"}},
                spec={
                    "restartPolicy": "Never",
                    "securityContext": SECURITY,
                    "containers": [
                        {
                            "name": "main",
                            "image": "registry.example.com/evaluate:1",
                            "command": [
                                "gpuflow-run",
                                "--pipeline=one-suite",
                                "--step=score",
                                join("--run-id=", run_id()),
                                join("--item=evaluate.suite=", item("evaluate.suite")),
                                "--output=accuracy:float",
                                "--engine=airflow",
                                "--outputs-dir=/gpuflow/outputs",
                                "--",
                                "score",
                                output(
                                    "evaluate.generate",
                                    "path",
                                    each=True,
                                    items="evaluate.generate-items",
                                    same=["evaluate.suite"],
                                ),
                            ],
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
            failures=0,
            retries=LOST_WORKERS,  # only for workers that die: a failure of the step is not retried
            map_index_template="{{ task.label }}",
        ).expand(item=evaluate_score_items.output)
        evaluate_end = Mark(task_id="end", when=began("evaluate-items"), trigger_rule="none_failed")
    report = GpuPodOperator(
        task_id="report",
        namespace="ml",
        template=Pod(
            {"labels": {"gpuflow.dev/pipeline": "nested", "gpuflow.dev/step": "report"}},
            spec={
                "restartPolicy": "Never",
                "securityContext": SECURITY,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/train:1",
                        "command": ["report", output("evaluate.score", "accuracy", "float", each=True)],
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
            },
        ),
        limits=LIMITS,
        source="nested.yaml",
    )

    prepare >> evaluate_items
    evaluate_items >> evaluate_generate_items
    evaluate_generate >> evaluate_check_items
    [evaluate_generate, evaluate_check] >> evaluate_score_items
    [evaluate_score, evaluate_generate, evaluate_check] >> evaluate_end
    evaluate_end >> report
