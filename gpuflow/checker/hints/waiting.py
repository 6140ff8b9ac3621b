"""What waiting means on each engine, by what is waited for. One sentence each: it is printed under a finding."""

from __future__ import annotations

from typing import Final, Literal

For = Literal["quota", "queue", "nodes", "objects"]

_STOCK_TIMEOUT: Final = "the stock KubernetesPodOperator gives up after schedule_timeout_seconds (120 unless set)"
_ANY: Final = "What happens then depends on the engine: --engine says."

_WAITING: Final[dict[str, dict[For, str]]] = {
    "none": {
        "quota": _ANY,
        "queue": "Kueue holds the pod back until there is quota; how long an engine lets it: --engine says.",
        "nodes": "The pod stays Pending until a node has room; how long an engine lets it: --engine says.",
        "objects": "Finished pods count until they are deleted.",
    },
    "argo": {
        "quota": "Argo keeps the step pending and asks again every 10 s, without using up a retry, until there is room "
        "or the pipeline's deadline passes.",
        "queue": "Kueue holds the pod back; Argo shows the step pending, and only the pipeline's deadline ends that.",
        "nodes": "The pod stays Pending until a node has room or is added; only the pipeline's deadline ends that.",
        "objects": "Finished pods count until they are deleted: set podGC in Argo's workflowDefaults, or delete old "
        "workflows.",
    },
    "kubeflow": {
        "quota": "Kubeflow runs on Argo: the step stays pending, without using up a retry, until there is room or the "
        "run's deadline passes.",
        "queue": "Kueue holds the pod back; the task shows as pending, and only the run's deadline ends that.",
        "nodes": "The pod stays Pending until a node has room or is added; only the run's deadline ends that.",
        "objects": "Finished pods count until they are deleted, with the run or by podGC in Argo's workflowDefaults.",
    },
    "airflow": {
        "quota": "GpuPodOperator, which gpuflow compile writes, waits and asks again; the stock KubernetesPodOperator "
        "does not wait: the API server answers 403 and the task fails at once.",
        "queue": f"GpuPodOperator waits and logs its place in the queue; {_STOCK_TIMEOUT}.",
        "nodes": f"GpuPodOperator waits until a node has room or is added; {_STOCK_TIMEOUT}.",
        "objects": "Finished pods count until they are deleted; GpuPodOperator deletes those that succeeded and keeps "
        "the others.",
    },
}


def waiting(engine: str, what: For = "quota") -> str:
    """What it means on an engine that a pod waits for quota, in a Kueue queue, for nodes, or for objects to go."""
    return _WAITING[engine][what]
