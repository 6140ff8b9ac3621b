"""Functions on GPUs: values of other tasks in, type hints out, mapped, changed, failing, and pickled arguments."""

import os
from datetime import timedelta
from typing import TypedDict

from airflow.sdk import DAG, task

from gpuflow.airflow import gpu_task

SMALL = {
    "image": os.environ["PROOF_PYTHON_IMAGE"],
    "image_pull_policy": "IfNotPresent",
    "namespace": os.environ["PROOF_NAMESPACE"],
    "cpu": {"request": "20m"},
    "memory": "96Mi",
}
TWICE = {"failures": 1, "interruptions": 2}


class Scores(TypedDict):
    """What `train` returns."""

    loss: float
    steps: int


@task(multiple_outputs=True)
def where():
    return {"path": "s3://lake/today", "shards": [1, 2, 3]}


@gpu_task(**SMALL, gpu="a100-80gb")
def train(path: str, shards: list[int], lr: float = 0.5, ds: str | None = None) -> Scores:
    print(f"PROOF {path} {shards} {lr} {ds}")
    return {"loss": lr / 2, "steps": sum(shards)}


@gpu_task(**SMALL)
def score(loss: float, steps: int) -> float:
    return loss * steps


@gpu_task(**SMALL)
def tell(value: float) -> None:
    print(f"PROOF told {value}")


@gpu_task(**SMALL, gpu="a100-80gb")
def sweep(base: float, lr: float) -> dict[str, float]:
    return {"lr": lr, "loss": base * lr}


@task
def gather(runs):
    return min(run["loss"] for run in runs)


@gpu_task(**SMALL, retry=TWICE, env={"ATTEMPT": {"run": "attempt"}})
def flaky() -> int:
    import os

    attempt = int(os.environ["ATTEMPT"])
    if attempt == 1:
        raise RuntimeError("the first attempt fails")
    return attempt


@gpu_task(**SMALL, retry=TWICE)
def broken(shard: int) -> int:
    sizes = {1: 10, 2: 20}

    def size_of(number: int) -> int:
        return sizes[number]

    return size_of(shard)


def by(serializer):
    """One function for each way to pickle: its argument is no JSON."""

    @gpu_task(**SMALL, serializer=serializer, task_id=f"by_{serializer}")
    def pickled(words: set[str]) -> list[str]:
        return [type(words).__name__, *sorted(words)]

    return pickled({"b", "a"})


with DAG("functions", default_args={"retry_delay": timedelta(seconds=2), "poll_interval": 1}):
    found = where()
    trained = train(found["path"], found["shards"])
    tell(score(trained["loss"], trained["steps"]))
    gather(sweep.partial(base=trained["loss"]).expand(lr=[1.0, 0.5]))
    train.override(task_id="on_a_slice", gpu=None, mig="1g.10gb of a100-80gb")("s3://other", [4], lr=1.0)
    flaky()
    broken(3)
    for name in ("pickle", *filter(None, os.environ["PROOF_SERIALIZERS"].split(","))):
        by(name)
