"""Six tasks of a team that writes KubernetesPodOperator: what `migrated.py` says in gpuflow's words."""

import os
from datetime import timedelta

from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.sdk import DAG
from kubernetes.client import models as k8s

IMAGE, WAIT = os.environ["PROOF_IMAGE"], os.environ.get("PROOF_WAIT", "1")


def note(context):
    print(f"CALLBACK {context['ti'].task_id} {context['ti'].state}")


def resources(**limits):
    asked = {"cpu": "20m", "memory": "32Mi"}
    return k8s.V1ResourceRequirements(requests={**asked, **limits}, limits={"memory": "32Mi", **limits})


LOCKED = k8s.V1SecurityContext(allow_privilege_escalation=False, capabilities=k8s.V1Capabilities(drop=["ALL"]))
PERSON = k8s.V1PodSecurityContext(
    run_as_non_root=True,
    run_as_user=1000,
    run_as_group=1000,
    fs_group=1000,
    seccomp_profile=k8s.V1SeccompProfile(type="RuntimeDefault"),
)
TOKEN = k8s.V1VolumeProjection(
    service_account_token=k8s.V1ServiceAccountTokenProjection(
        path="lake", audience="lake.example.com", expiration_seconds=3600
    )
)
A100 = k8s.V1NodeSelectorRequirement(key="nvidia.com/gpu.product", operator="In", values=["NVIDIA-A100-SXM4-80GB"])
AFFINITY = k8s.V1Affinity(
    node_affinity=k8s.V1NodeAffinity(
        required_during_scheduling_ignored_during_execution=k8s.V1NodeSelector(
            node_selector_terms=[k8s.V1NodeSelectorTerm(match_expressions=[A100])]
        )
    )
)


def shell(text):
    return ["sh", "-c", text]


with DAG(
    "stock",
    default_args={
        "namespace": os.environ["PROOF_NAMESPACE"],
        "image": IMAGE,
        "image_pull_policy": "IfNotPresent",
        "security_context": PERSON,
        "container_security_context": LOCKED,
        "base_container_name": "main",
        "on_finish_action": "keep_pod",
        "on_success_callback": note,
        "on_failure_callback": note,
        "retries": 1,
        "retry_delay": timedelta(seconds=2),
        "deferrable": True,
        "poll_interval": 1,
        "container_resources": resources(),
    },
):
    extract = KubernetesPodOperator(
        task_id="extract",
        cmds=shell('test -n "$LAKE" && test "$TABLE" = reviews && cat /etc/app/app.ini > /scratch/x && cat /scratch/x'),
        env_vars={"TABLE": "reviews"},
        env_from=[
            k8s.V1EnvFromSource(secret_ref=k8s.V1SecretEnvSource(name="lake")),
            k8s.V1EnvFromSource(config_map_ref=k8s.V1ConfigMapEnvSource(name="app")),
        ],
        volumes=[
            k8s.V1Volume(name="scratch", empty_dir=k8s.V1EmptyDirVolumeSource(size_limit="16Mi")),
            k8s.V1Volume(name="app", config_map=k8s.V1ConfigMapVolumeSource(name="app")),
        ],
        volume_mounts=[
            k8s.V1VolumeMount(name="scratch", mount_path="/scratch"),
            k8s.V1VolumeMount(name="app", mount_path="/etc/app"),
        ],
    )
    upload = KubernetesPodOperator(
        task_id="upload",
        cmds=shell("test -s /var/run/tokens/lake && echo has a token"),
        volumes=[k8s.V1Volume(name="tokens", projected=k8s.V1ProjectedVolumeSource(sources=[TOKEN]))],
        volume_mounts=[k8s.V1VolumeMount(name="tokens", mount_path="/var/run/tokens")],
    )
    train = KubernetesPodOperator(
        task_id="train",
        cmds=shell(f"trap 'exit 143' TERM; sleep {WAIT} & wait; echo trained"),
        container_resources=resources(**{"nvidia.com/gpu": "1"}),
        affinity=AFFINITY,
        tolerations=[k8s.V1Toleration(key="nvidia.com/gpu", operator="Exists", effect="NoSchedule")],
        termination_grace_period=5,
    )
    evaluate = KubernetesPodOperator(
        task_id="evaluate",
        cmds=shell("echo evaluated"),
        init_containers=[
            k8s.V1Container(
                name="metrics",
                image=IMAGE,
                image_pull_policy="IfNotPresent",
                command=shell("trap exit TERM; while :; do sleep 1; done"),
                restart_policy="Always",
                security_context=LOCKED,
                resources=resources(),
            )
        ],
    )
    publish = KubernetesPodOperator(task_id="publish", cmds=shell("echo published"), kubernetes_conn_id="second")
    report = KubernetesPodOperator(
        task_id="report",
        cmds=shell("cat /handover/page"),
        volumes=[k8s.V1Volume(name="handover", empty_dir=k8s.V1EmptyDirVolumeSource(size_limit="16Mi"))],
        volume_mounts=[k8s.V1VolumeMount(name="handover", mount_path="/handover")],
        init_containers=[
            k8s.V1Container(
                name="render",
                image=IMAGE,
                image_pull_policy="IfNotPresent",
                command=shell("echo page > /handover/page"),
                security_context=LOCKED,
                resources=resources(),
                volume_mounts=[k8s.V1VolumeMount(name="handover", mount_path="/handover")],
            )
        ],
        deferrable=False,
    )
    extract >> upload >> train >> evaluate >> publish >> report
