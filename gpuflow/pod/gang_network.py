"""The network between the ranks of a gang: devices, rights and settings that the site says once, for all of them."""

from __future__ import annotations

from typing import Any

from gpuflow.site import Site
from gpuflow.spec.container import Security
from gpuflow.spec.policies import Kubernetes
from gpuflow.spec.step import Step


def networked(step: Step, site: Site) -> Step:
    """The step with what `gangs.network` of the site adds to a rank with GPUs. What the step says itself is meant."""
    preset = site.gangs.network
    has_gpus = any(each is not None for each in (step.gpu, step.mig, step.shared_gpu, step.device_claim))
    if preset is None or step.gang is None or not has_gpus:
        return step
    more: dict[str, Any] = {
        "env": {**preset.env, **step.env},
        "annotations": {**preset.annotations, **step.annotations},
        "shm": preset.shm if step.shm is None else step.shm,
    }
    if preset.resources:
        own = step.kubernetes or Kubernetes()
        more["kubernetes"] = own.model_copy(update={"resources": {**preset.resources, **own.resources}})
    if preset.capabilities:
        said = step.security or Security()
        added = dict.fromkeys((*preset.capabilities, *said.add_capabilities))
        more["security"] = said.model_copy(update={"add_capabilities": tuple(added)})
    return step.model_copy(update=more)
