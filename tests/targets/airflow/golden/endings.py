# Made by gpuflow 0.1.0 from endings.yaml sha256:120283e5c516bdcb for site nvidia.
# Do not edit: change the source and compile again.

# gpuflow's operators build on this module. Imported here, a DAG processor loads it once, before it forks.
import airflow.providers.cncf.kubernetes.operators.pod  # noqa: F401
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Param

from gpuflow.airflow import DeleteClaim, GpuPodOperator, MakeClaim, Pod, claim, param

SECURITY = {
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "runAsGroup": 1000,
    "fsGroup": 1000,
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER_SECURITY = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}

with DAG(
    dag_id="endings",
    schedule=None,
    catchup=False,
    params={"go": Param(True, type="boolean")},
    doc_md="Made by gpuflow from `endings.yaml`. Change that file, not this DAG.",
    tags=["gpuflow"],
) as dag:
    claim_data = MakeClaim(
        task_id="claim-data",
        namespace="ml",
        name=claim("endings-data"),
        size="10Gi",
        access="ReadWriteMany",
        storage_class="fast",
    )
    load = GpuPodOperator(
        task_id="load",
        namespace="ml",
        template=Pod(
            {"labels": {"gpuflow.dev/pipeline": "endings", "gpuflow.dev/step": "load"}},
            spec={
                "restartPolicy": "Never",
                "securityContext": SECURITY,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/train:1",
                        "command": ["load"],
                        "volumeMounts": [{"name": "run-data", "mountPath": "/data"}],
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
                "volumes": [{"name": "run-data", "persistentVolumeClaim": {"claimName": claim("endings-data")}}],
            },
        ),
        source="endings.yaml",
    )
    maybe = GpuPodOperator(
        task_id="maybe",
        namespace="ml",
        template=Pod(
            {"labels": {"gpuflow.dev/pipeline": "endings", "gpuflow.dev/step": "maybe"}},
            spec={
                "restartPolicy": "Never",
                "securityContext": SECURITY,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/train:1",
                        "command": ["maybe"],
                        "volumeMounts": [{"name": "run-data", "mountPath": "/data"}],
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
                "volumes": [{"name": "run-data", "persistentVolumeClaim": {"claimName": claim("endings-data")}}],
            },
        ),
        source="endings.yaml",
        when=param("go"),
    )
    anyway = GpuPodOperator(
        task_id="anyway",
        namespace="ml",
        template=Pod(
            {"labels": {"gpuflow.dev/pipeline": "endings", "gpuflow.dev/step": "anyway"}},
            spec={
                "restartPolicy": "Never",
                "securityContext": SECURITY,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/train:1",
                        "command": ["anyway"],
                        "volumeMounts": [{"name": "run-data", "mountPath": "/data"}],
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
                "volumes": [{"name": "run-data", "persistentVolumeClaim": {"claimName": claim("endings-data")}}],
            },
        ),
        source="endings.yaml",
        trigger_rule="none_failed",
    )
    slow = GpuPodOperator(
        task_id="slow",
        namespace="ml",
        template=Pod(
            {"labels": {"gpuflow.dev/pipeline": "endings", "gpuflow.dev/step": "slow"}},
            spec={
                "restartPolicy": "Never",
                "securityContext": SECURITY,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/train:1",
                        "command": ["slow"],
                        "volumeMounts": [{"name": "run-data", "mountPath": "/data"}],
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
                "volumes": [{"name": "run-data", "persistentVolumeClaim": {"claimName": claim("endings-data")}}],
            },
        ),
        source="endings.yaml",
    )
    both = GpuPodOperator(
        task_id="both",
        namespace="ml",
        template=Pod(
            {"labels": {"gpuflow.dev/pipeline": "endings", "gpuflow.dev/step": "both"}},
            spec={
                "restartPolicy": "Never",
                "securityContext": SECURITY,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/train:1",
                        "command": ["both"],
                        "volumeMounts": [{"name": "run-data", "mountPath": "/data"}],
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
                "volumes": [{"name": "run-data", "persistentVolumeClaim": {"claimName": claim("endings-data")}}],
            },
        ),
        source="endings.yaml",
    )
    all_done = EmptyOperator(
        task_id="all-done",
        doc_md="Waits until every task has ended: Airflow gives up on a task while others before it still run.",
        trigger_rule="all_done",
    )
    notify = GpuPodOperator(
        task_id="notify",
        namespace="ml",
        template=Pod(
            {"labels": {"gpuflow.dev/pipeline": "endings", "gpuflow.dev/step": "notify"}},
            spec={
                "restartPolicy": "Never",
                "securityContext": SECURITY,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/train:1",
                        "command": ["notify"],
                        "volumeMounts": [{"name": "run-data", "mountPath": "/data"}],
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
                "volumes": [{"name": "run-data", "persistentVolumeClaim": {"claimName": claim("endings-data")}}],
            },
        ),
        source="endings.yaml",
        trigger_rule="all_done",
    )
    page = GpuPodOperator(
        task_id="page",
        namespace="ml",
        template=Pod(
            {"labels": {"gpuflow.dev/pipeline": "endings", "gpuflow.dev/step": "page"}},
            spec={
                "restartPolicy": "Never",
                "securityContext": SECURITY,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/train:1",
                        "command": ["page"],
                        "volumeMounts": [{"name": "run-data", "mountPath": "/data"}],
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
                "volumes": [{"name": "run-data", "persistentVolumeClaim": {"claimName": claim("endings-data")}}],
            },
        ),
        source="endings.yaml",
        trigger_rule="all_done",
        only_after_failure=True,
    )
    tidy = GpuPodOperator(
        task_id="tidy",
        namespace="ml",
        template=Pod(
            {"labels": {"gpuflow.dev/pipeline": "endings", "gpuflow.dev/step": "tidy"}},
            spec={
                "restartPolicy": "Never",
                "securityContext": SECURITY,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/train:1",
                        "command": ["tidy"],
                        "volumeMounts": [{"name": "run-data", "mountPath": "/data"}],
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
                "volumes": [{"name": "run-data", "persistentVolumeClaim": {"claimName": claim("endings-data")}}],
            },
        ),
        source="endings.yaml",
        trigger_rule="none_failed",
    )
    outcome = EmptyOperator(
        task_id="outcome",
        doc_md="Fails when a task of the run failed: Airflow decides by the last tasks alone.",
        trigger_rule="none_failed",
    )
    delete_claim_data = DeleteClaim(
        task_id="delete-claim-data",
        name=claim("endings-data"),
        namespace="ml",
        trigger_rule="all_done",
    )

    ends = [anyway, slow, both, all_done]
    claim_data >> load
    load >> maybe
    maybe >> anyway
    claim_data >> slow
    [maybe, slow] >> both
    [claim_data, load, maybe, anyway, slow, both] >> all_done
    all_done >> notify
    ends >> page
    ends >> tidy
    [anyway, slow, both, notify, page, tidy] >> outcome
    [all_done, notify, page, tidy] >> delete_claim_data
    delete_claim_data >> outcome
