"""A function of this file on a GPU: it gets values of other tasks, and what it returns goes on to the next."""

from airflow.sdk import DAG, Param, task

from gpuflow import Step
from gpuflow.airflow import gpu_step, gpu_task

ON_A100 = {
    "image": "registry.example.com/nlp/train:1.4",
    "gpu": "a100-80gb",
    "memory": "64Gi",
    "shm": "16Gi",
    "queue": "research",
    "retry": {"failures": 1, "interruptions": 10, "backoff": "30s"},
    "namespace": "nlp",
}
SCRATCH = Step(image="registry.example.com/nlp/tools:2", command=["scratch", "make"], cpu=1, memory="1Gi")
CLEAN = Step(image="registry.example.com/nlp/tools:2", command=["scratch", "remove"], cpu=1, memory="1Gi")

with DAG(
    dag_id="train_function",
    schedule=None,
    params={"lr": Param(2e-5, type="number")},
    tags=["gpuflow", "example"],
) as dag:

    @task
    def extract() -> str:
        """Where today's documents are."""
        return "s3://lake/documents/today"

    @gpu_task(**ON_A100)
    def train(path: str, lr: float) -> dict[str, float]:
        """Runs in the pod: what it needs is imported here."""
        import torch

        print(f"training on {torch.cuda.get_device_name(0)} with {path}")
        return {"loss": 1.0 / (1.0 + float(lr)), "lr": float(lr)}

    @task
    def best(runs: list[dict[str, float]]) -> float:
        """The learning rate with the smallest loss."""
        return min(runs, key=lambda run: run["loss"])["lr"]

    made = gpu_step(SCRATCH, task_id="make_scratch", namespace="nlp")
    path = extract()
    on_slices = train.override(task_id="sweep", mig="1g.10gb of a100-80gb", gpu=None, memory="12Gi")
    sweep = on_slices.partial(path=path).expand(lr=[1e-5, 2e-5, 5e-5])
    final = train(path, lr="{{ params.lr }}")
    made >> [sweep, final] >> gpu_step(CLEAN, task_id="remove_scratch", namespace="nlp").as_teardown(setups=made)
    best(sweep)
