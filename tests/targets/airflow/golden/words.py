# Made by gpuflow 0.1.0 from words.yaml sha256:fd713194f8888496 for site nvidia.
# Do not edit: change the source and compile again.

from datetime import datetime
from zoneinfo import ZoneInfo

# gpuflow's operators build on this module. Imported here, a DAG processor loads it once, before it forks.
import airflow.providers.cncf.kubernetes.operators.pod  # noqa: F401
from airflow.providers.smtp.notifications.smtp import SmtpNotifier
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Asset, CronTriggerTimetable
from airflow.sdk.timezone import coerce_datetime
from airflow.sdk.timezone import utcnow as airflow_sdk_timezone_utcnow

from gpuflow.airflow import (
    LOST_WORKERS,
    Approve,
    DeleteClaim,
    GpuPodOperator,
    MakeClaim,
    Pod,
    claim,
    item,
    join,
    run_id,
)

SECURITY = {
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "runAsGroup": 1000,
    "fsGroup": 1000,
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER_SECURITY = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}

with DAG(
    dag_id="words",
    description="A pipeline that speaks Airflow",
    schedule=CronTriggerTimetable("0 3 * * *", timezone="Europe/Berlin"),
    catchup=False,
    doc_md="# Nightly\n\nRead *this* first.\n",
    owner_links={"nlp": "https://wiki.example.com/nlp"},
    dag_display_name="Every night",
    max_active_runs=3,
    max_consecutive_failed_dag_runs=5,
    on_success_callback=[coerce_datetime],
    on_failure_callback=[airflow_sdk_timezone_utcnow, SmtpNotifier(subject="{{ dag.dag_id }}", to="nlp@example.com")],
    access_control={"Op": {"DAGs": ["can_edit"]}, "Viewer": ["can_read"]},
    is_paused_upon_creation=False,
    disable_bundle_versioning=True,
    end_date=datetime(2035, 1, 31, 18, 0, tzinfo=ZoneInfo("Europe/Berlin")),
    default_args={
        "owner": "nlp",
        "priority_weight": 2,
        "weight_rule": "absolute",
        "on_retry_callback": [coerce_datetime],
        "email": ["nlp@example.com"],
        "email_on_retry": False,
        "kubernetes_conn_id": "second",
        "log_events_on_failure": True,
    },
    tags=["gpuflow", "nightly"],
) as dag:
    claim_scratch = MakeClaim(
        task_id="claim-scratch",
        namespace="ml",
        name=claim("words-scratch"),
        size="1Gi",
        access="ReadWriteOnce",
    )
    each = GpuPodOperator.partial(
        task_id="each",
        doc_md="# Own words",
        namespace="ml",
        template=Pod(
            {"labels": {"gpuflow.dev/pipeline": "words", "gpuflow.dev/step": "each"}},
            spec={
                "restartPolicy": "Never",
                "securityContext": SECURITY,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/x:1",
                        "command": ["y", item("seed")],
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
            },
        ),
        source="words.yaml",
        priority_weight=9,
        on_finish_action="delete_pod",
        failures=0,
        retries=LOST_WORKERS,  # only for workers that die: a failure of the step is not retried
        map_index_template="{{ task.label }}",
    ).expand(item=[{"seed": 1}, {"seed": 2}])
    ask = Approve(task_id="ask", message="Go on?", task_display_name="A person decides", pool="people")
    utcnow = GpuPodOperator(
        task_id="utcnow",
        doc_md="What this *step* does",
        namespace="ml",
        template=Pod(
            {"labels": {"gpuflow.dev/pipeline": "words", "gpuflow.dev/step": "utcnow"}},
            spec={
                "restartPolicy": "Never",
                "securityContext": SECURITY,
                "initContainers": [
                    {
                        "name": "proxy",
                        "image": "registry.example.com/p:1",
                        "command": ["p"],
                        "securityContext": CONTAINER_SECURITY,
                        "restartPolicy": "Always",
                    },
                ],
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/x:1",
                        "command": [
                            "gpuflow-run",
                            "--pipeline=words",
                            "--step=utcnow",
                            join("--run-id=", run_id()),
                            "--output=model:file",
                            "--artifact=model=s3://models/one",
                            "--engine=airflow",
                            "--outputs-dir=/gpuflow/outputs",
                            "--",
                            "x",
                        ],
                        "volumeMounts": [
                            {"name": "run-scratch", "mountPath": "/scratch"},
                            {"name": "scratch-gpuflow-outputs", "mountPath": "/gpuflow/outputs"},
                        ],
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
                "volumes": [
                    {"name": "run-scratch", "persistentVolumeClaim": {"claimName": claim("words-scratch")}},
                    {"name": "scratch-gpuflow-outputs", "emptyDir": {}},
                ],
            },
        ),
        outputs={"model": "string"},
        outlets=[Asset("s3://models/one"), Asset("s3://models/two")],
        artifacts={"model": {"asset": "s3://models/one"}},
        supervised=True,
        source="words.yaml",
        owner="ops",
        task_display_name="The first",
        pool="gpus",
        pool_slots=2,
        depends_on_past=True,
        wait_for_downstream=True,
        max_active_tis_per_dag=4,
        queue="fast",
        inlets=[Asset("s3://data/in")],
        on_execute_callback=[coerce_datetime],
        on_success_callback=[coerce_datetime],
        on_failure_callback=[SmtpNotifier(to="ops@example.com")],
        on_skipped_callback=[coerce_datetime],
        email_on_failure=False,
        startup_timeout_seconds=900,
        deferrable=False,
        poll_interval=3,
        logging_interval=10,
        on_finish_action="keep_pod",
        on_kill_action="keep_pod",
        container_logs=["main", "proxy"],
    )
    all_done = EmptyOperator(
        task_id="all-done",
        doc_md="Waits until every task has ended: Airflow gives up on a task while others before it still run.",
        trigger_rule="all_done",
    )
    outcome = EmptyOperator(
        task_id="outcome",
        doc_md="Fails when a task of the run failed: Airflow decides by the last tasks alone.",
        trigger_rule="none_failed",
    )
    delete_claim_scratch = DeleteClaim(
        task_id="delete-claim-scratch",
        name=claim("words-scratch"),
        namespace="ml",
        trigger_rule="all_done",
    )

    claim_scratch >> each
    each >> ask
    claim_scratch >> utcnow
    [claim_scratch, each, ask, utcnow] >> all_done
    [ask, utcnow] >> outcome
    all_done >> delete_claim_scratch
    delete_claim_scratch >> outcome
