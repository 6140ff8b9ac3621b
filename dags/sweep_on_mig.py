"""A hyper-parameter sweep on MIG slices: one mapped task, four slices at a time, and a task that picks the best."""

from airflow.sdk import DAG
from airflow.sdk import task as python_task

from gpuflow import Step
from gpuflow.airflow import task

TRIAL = Step(
    image="registry.example.com/nlp/train:1.4",
    command=["python", "trial.py", "--lr", {"item": "lr"}, "--seed", {"item": "seed"}],
    for_each={"lr": [1e-5, 2e-5, 5e-5], "seed": {"range": 3}},
    parallel=4,
    mig="1g.10gb of a100-80gb",
    memory="12Gi",
    queue="research",
    retry={"failures": 0, "interruptions": 5},
    outputs={"loss": float},
)

with DAG(dag_id="sweep_on_mig", schedule=None, tags=["gpuflow", "example"]) as dag:
    trials = task(TRIAL, task_id="trial", namespace="nlp")

    @python_task
    def best(losses: list[float]) -> int:
        """The number of the best trial; the UI shows its learning rate and seed beside it."""
        losses = list(losses)
        return losses.index(min(losses))

    best(trials.output["loss"])
