"""What is known about Kubeflow Pipelines, which runs its pods through Argo Workflows."""

from __future__ import annotations

from gpuflow.engines import EngineFacts
from gpuflow.targets.argo.facts import EXECUTOR, LAUNCHER_MEMORY, OBJECTS

FACTS = EngineFacts(
    name="kubeflow",
    title="Kubeflow",
    waits={
        "quota": "Kubeflow runs on Argo: the step stays pending, without using up a retry, until there is room or the "
        "run's deadline passes.",
        "queue": "Kueue holds the pod; the task shows as pending, and only the run's deadline ends the wait.",
        "nodes": "The pod stays Pending until a node has room or is added; only the run's deadline ends the wait.",
        "objects": "Finished pods count until they are deleted, with the run or by podGC in Argo's workflowDefaults.",
    },
    keeps_parallel=False,
    most_runs=10,  # the largest max_concurrency that KFP accepts
    writes_active_deadline=True,
    objects_per_run=OBJECTS,
    runs_drivers=True,
    launcher="kfp-launcher",
    requests_disk=False,
    container_settings=f"for Argo's own, set {EXECUTOR} of the kubeflow namespace; kfp-launcher and the drivers say "
    "theirs, which nobody can change",
    # The supervisor writes there and then delivers to the path that KFP chose.
    outputs_dir="/tmp/gpuflow/outputs",
    launcher_memory=LAUNCHER_MEMORY,
    supervisor="kubeflow",
)
