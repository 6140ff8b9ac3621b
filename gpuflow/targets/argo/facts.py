"""What is known about Argo Workflows."""

from __future__ import annotations

from typing import Final

from gpuflow.engines import EngineFacts, RunObject

EXECUTOR: Final = "executor.resources in the ConfigMap workflow-controller-configmap"
"""Where Argo's controller reads what its own containers ask for."""
LAUNCHER_MEMORY: Final = "128Mi"
"""What `argoexec`, 108 MB, needs to start a container: with 80Mi it hangs, with 96Mi it takes seconds (4.0.2)."""
OBJECTS: Final = (
    # In these Argo's pods report how they ended.
    RunObject("count/workflowtaskresults.argoproj.io", "WorkflowTaskResult", "pod"),
    RunObject("count/workflows.argoproj.io", "Workflow", "run"),
)

FACTS = EngineFacts(
    name="argo",
    title="Argo",
    waits={
        "quota": "Argo keeps the step pending and asks again every 10 s, without using up a retry, until there is room "
        "or the pipeline's deadline passes.",
        "queue": "Kueue holds the pod; Argo shows the step pending, and only the pipeline's deadline ends the wait.",
        "nodes": "The pod stays Pending until a node has room or is added; only the pipeline's deadline ends the wait.",
        "objects": "Finished pods count until they are deleted: set engines.argo.pod_gc in the site, or podGC in a "
        "workflow of your own, or delete old workflows.",
    },
    caps_pods=True,
    writes_active_deadline=True,
    objects_per_run=OBJECTS,
    avoids_nodes_of="attempts",
    container_settings=f"set {EXECUTOR}",
    launcher_memory=LAUNCHER_MEMORY,
    supervisor="argo",
)
