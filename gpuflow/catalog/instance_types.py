"""Cloud instance types with NVIDIA GPUs: shape, and what Kubernetes can allocate where that is documented."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import cast

from gpuflow.catalog.catalog import Confidence, Model, data_file
from gpuflow.catalog.lookup import model as find_model


@dataclass(frozen=True, slots=True)
class Instance:
    """One instance type."""

    cloud: str
    name: str
    model: str
    """Id of the GPU model."""
    gpus: int
    """Whole GPUs; 0 when the instance has a fraction of one."""
    share: str | None
    """The fraction, such as `1/8`, when there is no whole GPU."""
    vcpu: int
    memory_gib: float
    allocatable_cpu: str | None
    """As Kubernetes writes it; `None` where no figure is documented."""
    allocatable_memory: str | None
    efa: int
    """Elastic Fabric Adapter interfaces (AWS)."""
    source: str
    confidence: Confidence


@cache
def instances() -> tuple[Instance, ...]:
    """Every instance type of the catalog."""
    import csv

    with data_file("instances.csv").open(encoding="utf-8", newline="") as file:
        return tuple(_instance(row) for row in csv.DictReader(file))


def find_instances(
    text: str | None = None,
    *,
    cloud: str | None = None,
    of: str | Model | None = None,
    gpus: int | None = None,
) -> tuple[Instance, ...]:
    """Instance types that match every given wish; `gpus` is the least number of whole GPUs."""
    owner = None if of is None else find_model(of).id
    return tuple(
        instance
        for instance in instances()
        if (text is None or text.lower() in instance.name.lower())
        and (cloud is None or instance.cloud == cloud.lower())
        and (owner is None or instance.model == owner)
        and (gpus is None or instance.gpus >= gpus)
    )


def _instance(row: dict[str, str]) -> Instance:
    return Instance(
        cloud=row["cloud"],
        name=row["instance"],
        model=row["model"],
        gpus=int(row["gpus"]),
        share=row["share"] or None,
        vcpu=int(row["vcpu"]),
        memory_gib=float(row["memory_gib"]),
        allocatable_cpu=row["allocatable_cpu"] or None,
        allocatable_memory=row["allocatable_memory"] or None,
        efa=int(row["efa"]),
        source=row["source"],
        confidence=cast(Confidence, row["confidence"]),
    )
