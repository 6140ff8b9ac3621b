"""Semaphores that hold GPU steps back, one for each size: Argo counts holders, not what each of them takes.

So a step with four GPUs holds `gpu-4`, and how many such steps run at once stands in a ConfigMap under that key. The
sum over all keys must stay within what there is; `shares` splits it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gpuflow.errors import Where, fail
from gpuflow.pod.placement import devices_of_step
from gpuflow.site import Site
from gpuflow.spec.flow import every_step
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.step import Step


@dataclass(frozen=True, slots=True)
class Size:
    """So many of one resource, which is what the steps of one semaphore take."""

    resource: str
    count: int

    @property
    def key(self) -> str:
        """`gpu-4` for four of nvidia.com/gpu, `mig-1g.10gb-1` for one slice."""
        return f"{self.resource.rpartition('/')[2]}-{self.count}"


def sizes(step: Step, site: Site) -> list[Size]:
    """What the step takes of each countable device; a gang takes it once for each rank."""
    return [Size(resource, count) for resource, count in sorted(devices_of_step(step, site).items())]


def synchronization(step: Step, site: Site, config_map: str | None) -> dict[str, Any] | None:
    """The template's locks; none without a ConfigMap to count in, and none for a step without GPUs."""
    if config_map is None:
        return None
    held = [{"configMapKeyRef": {"name": config_map, "key": size.key}} for size in sizes(step, site)]
    return {"semaphores": held} if held else None


def reason(pipeline: Pipeline, site: Site, config_map: str | None) -> list[str]:
    """For the artifact's header: why its GPU steps wait, and where the numbers stand."""
    keys = [size.key for size in sizes_of([pipeline], site)] if config_map is not None else []
    if not keys:
        return []
    return [
        f"GPU steps wait for a semaphore of their size: ConfigMap {config_map}, keys {', '.join(keys)}.",
        "Argo counts holders and not GPUs, hence one key for each size.",
    ]


def sizes_of(pipelines: Iterable[Pipeline], site: Site) -> list[Size]:
    """Every size that some step of these pipelines has, by resource, large ones first."""
    found = {size for pipeline in pipelines for _, step in every_step(pipeline) for size in sizes(step, site)}
    return sorted(found, key=lambda size: (size.resource, -size.count))


def shares(needed: Iterable[Size], available: Mapping[str, int]) -> dict[Size, int]:
    """How many steps of each size may run at once, so that together they never take more than there is.

    Every size gets one holder, then further ones in turn, large sizes first, as long as they fit. A resource that
    `available` does not name keeps one holder for each size.
    """
    limits = dict.fromkeys(needed, 1)
    for resource in dict.fromkeys(size.resource for size in limits):
        own = [size for size in limits if size.resource == resource]
        left = available.get(resource, 0) - sum(size.count for size in own)
        if resource not in available:
            continue
        if left < 0:
            raise fail(
                "GF309",
                f"one step of each size ({', '.join(size.key for size in own)}) takes {available[resource] - left} of "
                f"{resource}, and there are {available[resource]}",
                where=Where("gpuflow argo semaphores"),
                hint="let the steps ask for fewer different sizes, or use Kueue (queue: NAME), which counts GPUs",
            )
        while fitting := [size for size in own if size.count <= left]:
            for size in fitting:
                if size.count <= left:
                    limits[size] += 1
                    left -= size.count
    return limits


def config_map(name: str, namespace: str | None, limits: Mapping[Size, int]) -> dict[str, Any]:
    """The ConfigMap that Argo reads the limits from; it stands in the namespace of the workflows."""
    metadata = {"name": name} | ({"namespace": namespace} if namespace is not None else {})
    data = {size.key: str(limit) for size, limit in limits.items()}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
