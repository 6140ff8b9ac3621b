"""Steps that gpuflow adds to a pipeline: small containers with Python, from the image that a site has for alerts."""

from __future__ import annotations

from typing import Any

from gpuflow.site import Site
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.step import Step
from gpuflow.targets.kubeflow.facts import FACTS

CPU, MEMORY = "50m", FACTS.launcher_memory


def own_step(site: Site, description: str, program: str, *arguments: Any, **more: Any) -> Step:
    """A step that runs a program in Python."""
    fields = {
        "description": description,
        "image": site.images.alerts,
        "command": ("python3", "-c", program, *arguments),
        "cpu": CPU,
        "memory": MEMORY,
        **more,
    }
    return Step.model_validate(fields)


def free_name(name: str, pipeline: Pipeline) -> str:
    """A name that no step of the pipeline has."""
    while name in pipeline.steps or name in pipeline.exit:
        name += "-x"
    return name
