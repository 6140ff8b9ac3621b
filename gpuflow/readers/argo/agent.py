"""The agent: one pod of Argo's for a run, which sends requests and talks to plugins.

Mirrors createAgentPod of workflow/controller/agent.go, Argo v4.0.2, where no variable of the controller says otherwise.
"""

from __future__ import annotations

from typing import Any

from gpuflow.demands.model import PodSet, StepDemand
from gpuflow.pod.injected import RESTRICTED
from gpuflow.readers.argo.spec import Spec
from gpuflow.readers.argo.values import mapping, plain

RESOURCES = {"requests": {"cpu": "10m", "memory": "64M"}, "limits": {"cpu": "100m", "memory": "256M"}}
NAME = "agent"


def agent_step(spec: Spec, workflow: str) -> StepDemand:
    """The agent as a step; all of it is the engine's."""
    labels = {
        "workflows.argoproj.io/workflow": workflow,
        "workflows.argoproj.io/completed": "false",
        "workflows.argoproj.io/component": "agent",
    }
    body: dict[str, Any] = {"restartPolicy": "OnFailure", "automountServiceAccountToken": False}
    for group, name in (("initContainers", "init"), ("containers", "main")):
        body[group] = [{"name": name, "image": "engine", "resources": RESOURCES, **RESTRICTED}]
    for field in ("nodeSelector", "affinity", "tolerations", "schedulerName", "serviceAccountName"):
        value = plain(spec.tree.get(field))
        if value:
            body[field] = value
    labels |= mapping(plain(mapping(spec.tree.get("podMetadata")).get("labels")))
    step = StepDemand(
        NAME, (PodSet("main", 1, {"metadata": {"labels": labels}, "spec": body}),), where=spec.home.where()
    )
    return StepDemand(step.name, step.pod_sets, where=step.where, overhead=step.usage)
