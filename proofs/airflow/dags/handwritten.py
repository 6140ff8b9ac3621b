"""A team's own DAG: a sensor, a task group, a function on a GPU, setup and teardown, and an asset for others."""

import os
from datetime import timedelta

from airflow.providers.standard.sensors.python import PythonSensor
from airflow.sdk import DAG, Asset, TaskGroup, setup, task, teardown

from gpuflow import Step
from gpuflow.airflow import gpu_task
from gpuflow.airflow import task as step_task

IMAGE, NAMESPACE = os.environ["PROOF_PYTHON_IMAGE"], os.environ["PROOF_NAMESPACE"]
MODEL = Asset("s3://lake/model")
SMALL = {
    "image": IMAGE,
    "image_pull_policy": "IfNotPresent",
    "cpu": {"request": "20m"},
    "memory": "96Mi",
}


@setup
def open_store():
    print("PROOF store opened")
    return "store-7"


@teardown
def close_store(store):
    print(f"PROOF {store} closed")


@gpu_task(**SMALL, gpu="a100-80gb", namespace=NAMESPACE, outlets=[MODEL])
def train(store: str, lr: float) -> dict[str, float]:
    print(f"PROOF training with {lr} from {store}")
    return {"loss": lr / 2}


@task
def choose(losses):
    best = min(loss["loss"] for loss in losses)
    print(f"PROOF best {best}")
    return best


CHECK = Step(**SMALL, command=["python3", "-c", "import sys; print('PROOF checked', sys.argv[1])", {"param": "loss"}])

with DAG("handwritten", default_args={"retry_delay": timedelta(seconds=1)}):
    arrived = PythonSensor(task_id="arrived", python_callable=lambda: True, poke_interval=1)
    store = open_store()
    with TaskGroup("model"):
        trained = train.partial(store=store).expand(lr=[0.5, 0.25])
        best = choose(trained)
        checked = step_task(CHECK, task_id="check", namespace=NAMESPACE, loss=best)
    arrived >> store
    checked >> close_store(store)
