"""A classic ETL DAG, written by hand, with one GPU step in the middle: that one is gpuflow's."""

from airflow.sdk import DAG, TaskGroup
from airflow.sdk import task as python_task

from gpuflow import Step
from gpuflow.airflow import task

EMBED = Step(
    image="registry.example.com/nlp/embed:3.0",
    command=["python", "embed.py", "--from", {"param": "path"}, "--to", "s3://warehouse/vectors"],
    gpu="a100-80gb",
    memory="64Gi",
    shm="16Gi",
    queue="research",
    retry={"failures": 1, "interruptions": 10, "backoff": "30s"},
    outputs={"rows": int},
)

with DAG(dag_id="etl_with_gpu_step", schedule="@daily", catchup=False, tags=["gpuflow", "example"]) as dag:

    @python_task
    def extract() -> str:
        """Where today's documents are."""
        return "s3://lake/documents/today"

    @python_task
    def load(rows: int) -> None:
        """Tell the warehouse how many vectors are new."""
        print(f"{rows} new vectors")

    path = extract()
    with TaskGroup("vectors"):
        # `{param: path}` of the step takes the keyword argument `path`: here what another task returns.
        embed = task(EMBED, task_id="embed", namespace="nlp", path=path)

    load(embed.output["rows"])
