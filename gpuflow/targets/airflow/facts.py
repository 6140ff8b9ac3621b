"""What is known about Airflow."""

from __future__ import annotations

from typing import Final

from gpuflow.engines import EngineFacts

_STOCK_TIMEOUT: Final = "the stock KubernetesPodOperator gives up after schedule_timeout_seconds (120 unless set)"

FACTS = EngineFacts(
    name="airflow",
    title="Airflow",
    waits={
        "quota": "GpuPodOperator, which gpuflow compile writes, waits and asks again; the stock KubernetesPodOperator "
        "does not wait: the API server answers 403 and the task fails at once.",
        "queue": f"GpuPodOperator waits and logs its place in the queue; {_STOCK_TIMEOUT}.",
        "nodes": f"GpuPodOperator waits until a node has room or is added; {_STOCK_TIMEOUT}.",
        "objects": "Finished pods count until they are deleted; GpuPodOperator deletes those that succeeded and keeps "
        "the others.",
    },
    most_runs=16,  # core.max_active_runs_per_dag, unless it was changed; only forbid sets max_active_runs
    forbids_data_runs=True,
    keeps_pods="failed",
    launches_gangs=False,  # GpuGangOperator does; of a --standalone file the stock operator makes a launcher
    container_settings="gpuflow compile passes the site's limits on; a stock KubernetesPodOperator reads them from "
    "xcom_sidecar_container_resources in the connection's extra",
    supervisor="airflow",
)
