"""The network between the ranks of a gang: devices, rights and settings that the site says once, for all of them."""

from __future__ import annotations

from typing import Any

from gpuflow.site import Site
from gpuflow.site.gangs import GangNetwork
from gpuflow.spec.container import Security
from gpuflow.spec.policies import Kubernetes
from gpuflow.spec.step import Step

SHM = "/dev/shm"


def networked(step: Step, site: Site) -> Step:
    """The step with what `gangs.network` of the site adds to a rank with GPUs. What the step says itself is meant."""
    preset = _preset(step, site)
    if preset is None:
        return step
    more: dict[str, Any] = {
        "env": {**preset.env, **step.env},
        "annotations": {**preset.annotations, **step.annotations},
        "shm": preset.shm if step.shm is None and SHM not in step.volumes else step.shm,
    }
    if preset.resources:
        own = step.kubernetes or Kubernetes()
        more["kubernetes"] = own.model_copy(update={"resources": {**preset.resources, **own.resources}})
    return step.model_copy(update=more)


def program_security(step: Step, site: Site) -> Security:
    """What the program of a rank may do: more than its helpers and the launcher, which use no network of this kind."""
    said, preset = step.security or Security(), _preset(step, site)
    if preset is None or not preset.capabilities:
        return said
    added = dict.fromkeys((*preset.capabilities, *said.add_capabilities))
    return said.model_copy(update={"add_capabilities": tuple(added)})


def _preset(step: Step, site: Site) -> GangNetwork | None:
    has_gpus = any(each is not None for each in (step.gpu, step.mig, step.shared_gpu, step.device_claim))
    return site.gangs.network if step.gang is not None and has_gpus else None
