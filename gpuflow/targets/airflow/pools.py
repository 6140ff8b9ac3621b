"""Airflow pools that count GPUs, so that Airflow itself holds tasks back which the cluster could not start anyway."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpuflow.pod.placement import devices
from gpuflow.site import Site
from gpuflow.spec.flow import every_step
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.step import Step


def pool_name(resource: str) -> str:
    """The pool that counts a resource: `nvidia.com/gpu` is `gpu`, `nvidia.com/mig-1g.10gb` is `gpu-mig-1g.10gb`."""
    short = resource.rpartition("/")[2]
    return "gpu" if short == "gpu" else f"gpu-{short}"


def slots(step: Step, site: Site) -> dict[str, int]:
    """The pool a step's task belongs to and the slots it takes there: one for each GPU, slice or share."""
    return {pool_name(resource): count for resource, count in devices(step, site).resources.items()}


def pools(
    pipelines: Iterable[Pipeline], site: Site, available: Mapping[str, int] | None = None
) -> dict[str, dict[str, Any]]:
    """The pools these pipelines need, in the shape of `airflow pools import`.

    `available` says how many of each resource the namespace may use (a quota). A resource that it does not name gets
    as many slots as the largest single step takes: enough for every step to run, and to be raised by hand.
    """
    largest: dict[str, int] = {}
    for _, step in (found for pipeline in pipelines for found in every_step(pipeline)):
        for resource, count in devices(step, site).resources.items():
            largest[resource] = max(count, largest.get(resource, 0))
    return {
        pool_name(resource): {
            "slots": (available or {}).get(resource, count),
            "description": f"{resource} on site {site.name}, counted by gpuflow",
            "include_deferred": True,
        }
        for resource, count in sorted(largest.items())
    }
