"""Airflow pools that count GPUs, so that Airflow itself holds tasks back which the cluster could not start anyway."""

from __future__ import annotations

from gpuflow.pod.placement import devices_of_step
from gpuflow.site import Site
from gpuflow.spec.step import Step


def pool_name(resource: str) -> str:
    """The pool that counts a resource: `nvidia.com/gpu` is `gpu`, `nvidia.com/mig-1g.10gb` is `gpu-mig-1g.10gb`."""
    short = resource.rpartition("/")[2]
    return "gpu" if short == "gpu" else f"gpu-{short}"


def slots(step: Step, site: Site) -> dict[str, int]:
    """The pool a step's task belongs to and the slots it takes there: one for each GPU, slice or share of its pods."""
    return {pool_name(resource): count for resource, count in devices_of_step(step, site).items()}
