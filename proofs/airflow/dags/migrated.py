"""The six tasks of `stock.py` in gpuflow's words, task by task, in the same hand-written DAG."""

import os
from datetime import timedelta

from airflow.sdk import DAG

from gpuflow import Step
from gpuflow.airflow import task

IMAGE, WAIT = os.environ["PROOF_IMAGE"], os.environ.get("PROOF_WAIT", "1")
SMALL = {
    "image": IMAGE,
    "image_pull_policy": "IfNotPresent",
    "cpu": {"request": "20m"},
    "memory": "32Mi",
    "retry": {"failures": 1, "interruptions": 2, "backoff": {"start": "2s"}},
}
HELPER = {"image": IMAGE, "cpu": {"request": "20m"}, "memory": "32Mi"}
TOKEN = {"token": {"path": "lake", "audience": "lake.example.com", "expires": "1h"}}
SOURCES = [{"secret": "lake"}, {"config_map": "app"}]


def note(context):
    print(f"CALLBACK {context['ti'].task_id} {context['ti'].state}")


def shell(text):
    return ["sh", "-c", text]


EXTRACT = Step(
    **SMALL,
    command=shell('test -n "$LAKE" && test "$TABLE" = reviews && cat /etc/app/app.ini > /scratch/x && cat /scratch/x'),
    env={"TABLE": "reviews"},
    env_from=SOURCES,
    volumes={"/scratch": {"empty_dir": "16Mi"}, "/etc/app": {"config_map": "app"}},
)
UPLOAD = Step(
    **SMALL,
    command=shell("test -s /var/run/tokens/lake && echo has a token"),
    volumes={"/var/run/tokens": {"projected": [TOKEN]}},
)
TRAIN = Step(
    **SMALL,
    command=shell(f"trap 'exit 143' TERM; sleep {WAIT} & wait; echo trained"),
    gpu="a100-80gb sxm",
    termination_grace="5s",
)
EVALUATE = Step(
    **SMALL,
    command=shell("echo evaluated"),
    sidecars=[{**HELPER, "name": "metrics", "command": shell("trap exit TERM; while :; do sleep 1; done")}],
)
PUBLISH = Step(**SMALL, command=shell("echo published"))
REPORT = Step(
    **SMALL,
    command=shell("cat /handover/page"),
    volumes={"/handover": {"empty_dir": "16Mi"}},
    init_containers=[
        {
            **HELPER,
            "name": "render",
            "command": shell("echo page > /handover/page"),
            "volumes": {"/handover": {"empty_dir": "16Mi"}},
        }
    ],
)

with DAG(
    "migrated",
    default_args={
        "on_finish_action": "keep_pod",
        "on_success_callback": note,
        "on_failure_callback": note,
        "retry_delay": timedelta(seconds=2),
        "poll_interval": 1,
    },
):
    where = {"namespace": os.environ["PROOF_NAMESPACE"]}
    extract = task(EXTRACT, task_id="extract", **where)
    upload = task(UPLOAD, task_id="upload", **where)
    train = task(TRAIN, task_id="train", **where)
    evaluate = task(EVALUATE, task_id="evaluate", **where)
    publish = task(PUBLISH, task_id="publish", **where, airflow={"kubernetes_conn_id": "second"})
    report = task(REPORT, task_id="report", **where, airflow={"deferrable": False})
    extract >> upload >> train >> evaluate >> publish >> report
