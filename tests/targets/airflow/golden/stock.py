# Made by gpuflow 0.1.0 from stock.yaml sha256:a0105cd60c39a46c for site nvidia.
# Do not edit: change the source and compile again.
# gpuflow-run must be in the image: plan (for its outputs), fan (for its outputs).
# Nothing of gpuflow in the image: train, gather, tidy.

from datetime import timedelta

from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, Param, literal


def run_name(dag_id: str, run_id: str) -> str:
    """A short name of the run, safe in paths and in Kubernetes names. Airflow's own id holds colons and plus signs."""
    import hashlib

    whole = f"{deployment()}/{dag_id}/{run_id}"
    return f"r{hashlib.sha256(whole.encode()).hexdigest()[:15]}"


def deployment() -> str:
    """What tells this Airflow from others: `[gpuflow] deployment`, or an id that its first task keeps as a Variable."""
    import time
    import uuid

    from airflow.providers.common.compat.sdk import AirflowException, conf
    from airflow.sdk import Variable

    key, hint = "gpuflow_deployment", "or set [gpuflow] deployment in airflow.cfg"
    name = str(conf.get("gpuflow", "deployment", fallback="") or "").strip()
    if name:
        return name

    from airflow.sdk.exceptions import ErrorType
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.comms import GetVariable
    from airflow.sdk.execution_time.supervisor import ensure_secrets_backend_loaded

    # Variable.get also says "not there" when the API server, or a secrets manager that is asked before it, is only out
    # of reach, and a second id would part every run from its checkpoints. So each is asked where its refusal is heard.
    server = getattr(task_runner, "SUPERVISOR_COMMS", None)
    if server is None:  # no task runs: `airflow tasks render`, which has the database and no API server
        from airflow.models import Variable as Stored

        name = Stored.get(key, default_var=None)
        if name:
            return str(name)
        raise AirflowException(f"there is no Variable {key} before the first task has run: create it, {hint}")
    try:
        name = Variable.get(key, default=None)
        if name:
            return str(name)
        for backend in ensure_secrets_backend_loaded():
            backend.get_variable(key=key)
        answer = server.send(GetVariable(key=key))
    except Exception as refusal:
        raise AirflowException(f"the Variable {key} cannot be read now: try again, {hint}") from refusal
    if getattr(answer, "error", None) != ErrorType.VARIABLE_NOT_FOUND:
        raise AirflowException(f"the Variable {key} cannot be read now: try again, {hint}")
    try:
        Variable.set(key, uuid.uuid4().hex, description="Tells this Airflow from others that share a store. Keep it.")
        time.sleep(2)  # of several first tasks at once the last one to write decides for all
        name = Variable.get(key, default=None)
    except Exception as refusal:
        raise AirflowException(f"the Variable {key} cannot be kept: create it, {hint}") from refusal
    if not name:
        raise AirflowException(f"the Variable {key} cannot be kept: create it, {hint}")
    return str(name)


with DAG(
    dag_id="stock",
    schedule=None,
    catchup=False,
    params={"lr": Param(0.1, type="number"), "name": Param("a", type="string")},
    doc_md="Made by gpuflow from `stock.yaml`. Change that file, not this DAG.",
    tags=["gpuflow"],
    user_defined_macros={"run_name": run_name},
) as dag:
    plan = KubernetesPodOperator(
        task_id="plan",
        namespace="ml",
        retry_delay=timedelta(seconds=10),
        retry_exponential_backoff=2,
        base_container_name="main",
        retries=2,
        do_xcom_push=True,
        deferrable=True,
        schedule_timeout_seconds=604800,  # waiting for a node; by default it is 2 minutes, which fails queued steps
        startup_timeout_seconds=600,  # pulling the image
        on_finish_action="delete_succeeded_pod",
        log_events_on_failure=True,
        pod_template_dict={
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "labels": {
                    "gpuflow.dev/pipeline": "stock",
                    "gpuflow.dev/step": "plan",
                    "kueue.x-k8s.io/queue-name": "research",
                },
            },
            "spec": {
                "restartPolicy": "Never",
                "securityContext": {
                    "runAsNonRoot": True,
                    "runAsUser": 1000,
                    "runAsGroup": 1000,
                    "fsGroup": 1000,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/train:1",
                        "command": [
                            "gpuflow-run",
                            "--pipeline=stock",
                            "--step=plan",
                            "--run-id={{ run_name(dag_run.dag_id, dag_run.run_id) }}",
                            "--output=rows:int",
                            "--engine=airflow",
                            "--outputs-dir=/gpuflow/outputs",
                            "--",
                            "plan",
                            literal("{{ kept }}"),
                            (
                                '{{ (params["name"] if params["name"] is string else params["name"] | tojson) | '
                                'replace("$", "$$") }}'
                            ),
                        ],
                        "volumeMounts": [{"name": "scratch-gpuflow-outputs", "mountPath": "/gpuflow/outputs"}],
                        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                    },
                ],
                "volumes": [{"name": "scratch-gpuflow-outputs", "emptyDir": {}}],
            },
        },
    )
    train = KubernetesPodOperator(
        task_id="train",
        namespace="ml",
        base_container_name="main",
        retries=0,
        deferrable=True,
        schedule_timeout_seconds=604800,  # waiting for a node; by default it is 2 minutes, which fails queued steps
        startup_timeout_seconds=600,  # pulling the image
        on_finish_action="delete_succeeded_pod",
        log_events_on_failure=True,
        pod_template_dict={
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "labels": {
                    "gpuflow.dev/pipeline": "stock",
                    "gpuflow.dev/step": "train",
                    "kueue.x-k8s.io/queue-name": "research",
                },
            },
            "spec": {
                "restartPolicy": "Never",
                "securityContext": {
                    "runAsNonRoot": True,
                    "runAsUser": 1000,
                    "runAsGroup": 1000,
                    "fsGroup": 1000,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
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
                        "image": "registry.example.com/train:1",
                        "command": [
                            "train",
                            '{{ "--lr={" }}{{ (params["lr"] | float | tojson) }}{{ "}" }}',
                            '{{ (ti.xcom_pull(task_ids="plan")["rows"] | tojson) | replace("$", "$$") }}',
                            "$$(HOME)",
                        ],
                        "resources": {"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}},
                        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                    },
                ],
            },
        },
    )
    fan = KubernetesPodOperator.partial(
        task_id="fan",
        namespace="ml",
        max_active_tis_per_dagrun=2,
        base_container_name="main",
        retries=0,
        do_xcom_push=True,
        deferrable=True,
        schedule_timeout_seconds=604800,  # waiting for a node; by default it is 2 minutes, which fails queued steps
        startup_timeout_seconds=600,  # pulling the image
        on_finish_action="delete_succeeded_pod",
        log_events_on_failure=True,
    ).expand(
        pod_template_dict=[
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "labels": {
                        "gpuflow.dev/pipeline": "stock",
                        "gpuflow.dev/step": "fan",
                        "kueue.x-k8s.io/queue-name": "research",
                    },
                },
                "spec": {
                    "restartPolicy": "Never",
                    "securityContext": {
                        "runAsNonRoot": True,
                        "runAsUser": 1000,
                        "runAsGroup": 1000,
                        "fsGroup": 1000,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [
                        {
                            "name": "main",
                            "image": "registry.example.com/train:1",
                            "command": [
                                "gpuflow-run",
                                "--pipeline=stock",
                                "--step=fan",
                                "--run-id={{ run_name(dag_run.dag_id, dag_run.run_id) }}",
                                "--item=lr=0.1,seed=0",
                                "--output=loss:float",
                                "--engine=airflow",
                                "--outputs-dir=/gpuflow/outputs",
                                "--",
                                "fan",
                                "0.1",
                                "0",
                                literal("{{ kept }}"),
                            ],
                            "volumeMounts": [{"name": "scratch-gpuflow-outputs", "mountPath": "/gpuflow/outputs"}],
                            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                        },
                    ],
                    "volumes": [{"name": "scratch-gpuflow-outputs", "emptyDir": {}}],
                },
            },
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "labels": {
                        "gpuflow.dev/pipeline": "stock",
                        "gpuflow.dev/step": "fan",
                        "kueue.x-k8s.io/queue-name": "research",
                    },
                },
                "spec": {
                    "restartPolicy": "Never",
                    "securityContext": {
                        "runAsNonRoot": True,
                        "runAsUser": 1000,
                        "runAsGroup": 1000,
                        "fsGroup": 1000,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [
                        {
                            "name": "main",
                            "image": "registry.example.com/train:1",
                            "command": [
                                "gpuflow-run",
                                "--pipeline=stock",
                                "--step=fan",
                                "--run-id={{ run_name(dag_run.dag_id, dag_run.run_id) }}",
                                "--item=lr=0.1,seed=1",
                                "--output=loss:float",
                                "--engine=airflow",
                                "--outputs-dir=/gpuflow/outputs",
                                "--",
                                "fan",
                                "0.1",
                                "1",
                                literal("{{ kept }}"),
                            ],
                            "volumeMounts": [{"name": "scratch-gpuflow-outputs", "mountPath": "/gpuflow/outputs"}],
                            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                        },
                    ],
                    "volumes": [{"name": "scratch-gpuflow-outputs", "emptyDir": {}}],
                },
            },
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "labels": {
                        "gpuflow.dev/pipeline": "stock",
                        "gpuflow.dev/step": "fan",
                        "kueue.x-k8s.io/queue-name": "research",
                    },
                },
                "spec": {
                    "restartPolicy": "Never",
                    "securityContext": {
                        "runAsNonRoot": True,
                        "runAsUser": 1000,
                        "runAsGroup": 1000,
                        "fsGroup": 1000,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [
                        {
                            "name": "main",
                            "image": "registry.example.com/train:1",
                            "command": [
                                "gpuflow-run",
                                "--pipeline=stock",
                                "--step=fan",
                                "--run-id={{ run_name(dag_run.dag_id, dag_run.run_id) }}",
                                "--item=lr=0.2,seed=0",
                                "--output=loss:float",
                                "--engine=airflow",
                                "--outputs-dir=/gpuflow/outputs",
                                "--",
                                "fan",
                                "0.2",
                                "0",
                                literal("{{ kept }}"),
                            ],
                            "volumeMounts": [{"name": "scratch-gpuflow-outputs", "mountPath": "/gpuflow/outputs"}],
                            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                        },
                    ],
                    "volumes": [{"name": "scratch-gpuflow-outputs", "emptyDir": {}}],
                },
            },
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "labels": {
                        "gpuflow.dev/pipeline": "stock",
                        "gpuflow.dev/step": "fan",
                        "kueue.x-k8s.io/queue-name": "research",
                    },
                },
                "spec": {
                    "restartPolicy": "Never",
                    "securityContext": {
                        "runAsNonRoot": True,
                        "runAsUser": 1000,
                        "runAsGroup": 1000,
                        "fsGroup": 1000,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [
                        {
                            "name": "main",
                            "image": "registry.example.com/train:1",
                            "command": [
                                "gpuflow-run",
                                "--pipeline=stock",
                                "--step=fan",
                                "--run-id={{ run_name(dag_run.dag_id, dag_run.run_id) }}",
                                "--item=lr=0.2,seed=1",
                                "--output=loss:float",
                                "--engine=airflow",
                                "--outputs-dir=/gpuflow/outputs",
                                "--",
                                "fan",
                                "0.2",
                                "1",
                                literal("{{ kept }}"),
                            ],
                            "volumeMounts": [{"name": "scratch-gpuflow-outputs", "mountPath": "/gpuflow/outputs"}],
                            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                        },
                    ],
                    "volumes": [{"name": "scratch-gpuflow-outputs", "emptyDir": {}}],
                },
            },
        ],
    )
    ask = ApprovalOperator(
        task_id="ask",
        response_timeout=timedelta(hours=1),
        subject=literal("Go {{ on }}?"),
        fail_on_reject=True,
    )
    gather = KubernetesPodOperator(
        task_id="gather",
        namespace="ml",
        base_container_name="main",
        retries=0,
        deferrable=True,
        schedule_timeout_seconds=604800,  # waiting for a node; by default it is 2 minutes, which fails queued steps
        startup_timeout_seconds=600,  # pulling the image
        on_finish_action="delete_succeeded_pod",
        log_events_on_failure=True,
        pod_template_dict={
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "labels": {
                    "gpuflow.dev/pipeline": "stock",
                    "gpuflow.dev/step": "gather",
                    "kueue.x-k8s.io/queue-name": "research",
                },
            },
            "spec": {
                "restartPolicy": "Never",
                "securityContext": {
                    "runAsNonRoot": True,
                    "runAsUser": 1000,
                    "runAsGroup": 1000,
                    "fsGroup": 1000,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/train:1",
                        "command": [
                            "gather",
                            (
                                '{{ ((ti.xcom_pull(task_ids=["fan"]) | map(attribute="loss") | list) | tojson) | '
                                'replace("$", "$$") }}'
                            ),
                        ],
                        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                    },
                ],
            },
        },
    )
    all_done = EmptyOperator(
        task_id="all-done",
        doc_md="Waits until every task has ended: Airflow gives up on a task while others before it still run.",
        trigger_rule="all_done",
    )
    tidy = KubernetesPodOperator(
        task_id="tidy",
        namespace="ml",
        trigger_rule="all_done",
        base_container_name="main",
        retries=0,
        deferrable=True,
        schedule_timeout_seconds=604800,  # waiting for a node; by default it is 2 minutes, which fails queued steps
        startup_timeout_seconds=600,  # pulling the image
        on_finish_action="delete_succeeded_pod",
        log_events_on_failure=True,
        pod_template_dict=literal(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "labels": {
                        "gpuflow.dev/pipeline": "stock",
                        "gpuflow.dev/step": "tidy",
                        "kueue.x-k8s.io/queue-name": "research",
                    },
                },
                "spec": {
                    "restartPolicy": "Never",
                    "securityContext": {
                        "runAsNonRoot": True,
                        "runAsUser": 1000,
                        "runAsGroup": 1000,
                        "fsGroup": 1000,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [
                        {
                            "name": "main",
                            "image": "registry.example.com/train:1",
                            "command": ["tidy"],
                            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                        },
                    ],
                },
            },
        ),
    )
    outcome = EmptyOperator(
        task_id="outcome",
        doc_md="Fails when a task of the run failed: Airflow decides by the last tasks alone.",
        trigger_rule="none_failed",
    )

    plan >> train
    train >> fan
    fan >> ask
    [ask, fan] >> gather
    [plan, train, fan, ask, gather] >> all_done
    all_done >> tidy
    [gather, tidy] >> outcome
