# Made by gpuflow 0.1.0 from sub-pipelines.yaml sha256:ec2f5e17a973a187 for site nvidia.
# Do not edit: change the source and compile again.

from datetime import timedelta

# gpuflow's operators build on this module. Imported here, a DAG processor loads it once, before it forks.
import airflow.providers.cncf.kubernetes.operators.pod  # noqa: F401
from airflow.sdk import DAG, Param, TaskGroup

from gpuflow.airflow import (
    LOST_WORKERS,
    Approve,
    GpuPodOperator,
    ListItems,
    Mark,
    Pod,
    began,
    deadline,
    item,
    output,
    param,
)

# When the time of a group is over, its steps fail and are not tried again.
DEADLINES_EVALUATE = [
    deadline(
        group="evaluate",
        limit=timedelta(hours=1),
        since=output("evaluate.begin", "return_value", "float", items="evaluate-items", same=["evaluate.suite"]),
    ),
]
DEADLINES_RELEASE = [
    deadline(group="release", limit=timedelta(minutes=90), since=output("release.begin", "return_value", "float")),
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
    dag_id="sub-pipelines",
    schedule=None,
    catchup=False,
    params={
        "deploy": Param(True, type="boolean"),
        "probing": Param(False, type="boolean"),
        "suites": Param(["mmlu", "gsm8k", "arc"], type="array"),
    },
    doc_md="Made by gpuflow from `sub-pipelines.yaml`. Change that file, not this DAG.",
    tags=["gpuflow"],
) as dag:
    evaluate_items = ListItems(task_id="evaluate-items", for_each={"evaluate.suite": param("suites")}, distinct=True)
    with TaskGroup("evaluate"):
        evaluate_begin = Mark.partial(task_id="begin").expand(item=evaluate_items.output)
        evaluate_generate_items = ListItems(
            task_id="generate-items",
            within=["evaluate-items"],
            keys=["evaluate.suite"],
            for_each={"shard": range(2)},
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
                            "command": ["generate", item("evaluate.suite"), item("shard")],
                            "securityContext": CONTAINER_SECURITY,
                        },
                    ],
                },
            ),
            deadlines=DEADLINES_EVALUATE,
            failures=0,
            retries=LOST_WORKERS,  # only for workers that die: a failure of the step is not retried
            map_index_template="{{ task.label }}",
        ).expand(item=evaluate_generate_items.output)
        evaluate_judge_items = ListItems(
            task_id="judge-items",
            within=["evaluate-items"],
            keys=["evaluate.suite"],
            when=item("evaluate.suite") != "gsm8k",
        )
        with TaskGroup("judge"):
            evaluate_judge_begin = Mark.partial(task_id="begin").expand(item=evaluate_judge_items.output)
            evaluate_judge_ask_model_items = ListItems(
                task_id="ask-model-items",
                within=["evaluate.judge-items"],
                keys=["evaluate.suite"],
                for_each={"seed": [1, 2]},
            )
            evaluate_judge_ask_model = GpuPodOperator.partial(
                task_id="ask-model",
                namespace="ml",
                template=Pod(
                    {"labels": {"gpuflow.dev/pipeline": "judge", "gpuflow.dev/step": "ask-model"}},
                    spec={
                        "restartPolicy": "Never",
                        "securityContext": SECURITY,
                        "containers": [
                            {
                                "name": "main",
                                "image": "registry.example.com/judge:1",
                                "command": ["judge", item("evaluate.suite"), item("seed")],
                                "securityContext": CONTAINER_SECURITY,
                            },
                        ],
                    },
                ),
                # When the time of a group is over, its steps fail and are not tried again.
                deadlines=[
                    deadline(
                        group="evaluate",
                        limit=timedelta(hours=1),
                        since=output(
                            "evaluate.begin",
                            "return_value",
                            "float",
                            items="evaluate-items",
                            same=["evaluate.suite"],
                        ),
                    ),
                    deadline(
                        group="evaluate.judge",
                        limit=timedelta(minutes=30),
                        since=output(
                            "evaluate.judge.begin",
                            "return_value",
                            "float",
                            items="evaluate.judge-items",
                            same=["evaluate.suite"],
                        ),
                    ),
                ],
                failures=0,
                retries=LOST_WORKERS,  # only for workers that die: a failure of the step is not retried
                map_index_template="{{ task.label }}",
            ).expand(item=evaluate_judge_ask_model_items.output)
        evaluate_sum_items = ListItems(
            task_id="sum-items",
            within=["evaluate-items", "evaluate.judge-items"],
            keys=["evaluate.suite"],
        )
        evaluate_sum = GpuPodOperator.partial(
            task_id="sum",
            namespace="ml",
            template=Pod(
                {"labels": {"gpuflow.dev/pipeline": "one-suite", "gpuflow.dev/step": "sum"}},
                spec={
                    "restartPolicy": "Never",
                    "securityContext": SECURITY,
                    "containers": [
                        {
                            "name": "main",
                            "image": "registry.example.com/evaluate:1",
                            "command": ["sum", item("evaluate.suite")],
                            "securityContext": CONTAINER_SECURITY,
                        },
                    ],
                },
            ),
            deadlines=DEADLINES_EVALUATE,
            failures=0,
            retries=LOST_WORKERS,  # only for workers that die: a failure of the step is not retried
            map_index_template="{{ task.label }}",
        ).expand(item=evaluate_sum_items.output)
        evaluate_end = Mark(task_id="end", when=began("evaluate-items"), trigger_rule="none_failed")
    prepare = GpuPodOperator(
        task_id="prepare",
        namespace="ml",
        template=Pod(
            {"labels": {"gpuflow.dev/pipeline": "sub-pipelines", "gpuflow.dev/step": "prepare"}},
            spec={
                "restartPolicy": "Never",
                "securityContext": SECURITY,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/train:1",
                        "command": ["prepare"],
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
            },
        ),
        source="sub-pipelines.yaml",
        when=param("deploy"),
    )
    with TaskGroup("release"):
        release_begin = Mark(task_id="begin")
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
                            "command": ["push"],
                            "securityContext": CONTAINER_SECURITY,
                        },
                    ],
                },
            ),
            deadlines=DEADLINES_RELEASE,
        )
        release_ask = Approve(
            task_id="ask",
            message="Release?",
            response_timeout=timedelta(hours=3),
            deadlines=DEADLINES_RELEASE,
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
            deadlines=DEADLINES_RELEASE,
            when=param("probing"),
        )
        release_report = GpuPodOperator(
            task_id="report",
            namespace="ml",
            template=Pod(
                {"labels": {"gpuflow.dev/pipeline": "release", "gpuflow.dev/step": "report"}},
                spec={
                    "restartPolicy": "Never",
                    "securityContext": SECURITY,
                    "containers": [
                        {
                            "name": "main",
                            "image": "registry.example.com/deploy:1",
                            "command": ["report-release"],
                            "securityContext": CONTAINER_SECURITY,
                        },
                    ],
                },
            ),
            deadlines=DEADLINES_RELEASE,
            when=began("release.begin"),
            trigger_rule="none_failed",
        )
    table = GpuPodOperator(
        task_id="table",
        namespace="ml",
        template=Pod(
            {"labels": {"gpuflow.dev/pipeline": "sub-pipelines", "gpuflow.dev/step": "table"}},
            spec={
                "restartPolicy": "Never",
                "securityContext": SECURITY,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/train:1",
                        "command": ["table"],
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
            },
        ),
        source="sub-pipelines.yaml",
    )
    with TaskGroup("tidy"):
        tidy_begin = Mark(task_id="begin", trigger_rule="none_failed")
        tidy_sweep = GpuPodOperator(
            task_id="sweep",
            namespace="ml",
            template=Pod(
                {"labels": {"gpuflow.dev/pipeline": "tidy", "gpuflow.dev/step": "sweep"}},
                spec={
                    "restartPolicy": "Never",
                    "securityContext": SECURITY,
                    "containers": [
                        {
                            "name": "main",
                            "image": "registry.example.com/train:1",
                            "command": ["sweep"],
                            "securityContext": CONTAINER_SECURITY,
                        },
                    ],
                },
            ),
        )

    evaluate_items >> evaluate_begin
    evaluate_begin >> evaluate_generate_items
    evaluate_generate >> evaluate_judge_items
    evaluate_judge_items >> evaluate_judge_begin
    evaluate_judge_begin >> evaluate_judge_ask_model_items
    evaluate_judge_ask_model >> evaluate_sum_items
    evaluate_sum >> evaluate_end
    prepare >> release_begin
    release_begin >> release_push
    release_push >> release_ask
    release_push >> release_probe
    release_probe >> release_report
    evaluate_end >> table
    prepare >> tidy_begin
    tidy_begin >> tidy_sweep
