"""Containers that will find too little shared memory."""

from __future__ import annotations

from collections.abc import Iterator

from gpuflow.demands.gang_scheduling import gpus, maps
from gpuflow.errors import Finding
from gpuflow.readers.findings.subject import Subject
from gpuflow.readers.findings.words import looks_like_torch

SHM = "/dev/shm"


def small_shared_memory(subject: Subject) -> Iterator[Finding]:
    """GF769: PyTorch on several GPUs with the runtime's own /dev/shm."""
    for asked in subject.containers():
        number = gpus(asked.container)
        mounts = {str(mount.get("mountPath")).rstrip("/") for mount in maps(asked.container.get("volumeMounts"))}
        if number < 2 or SHM in mounts or asked.pod["spec"].get("hostIPC") or not looks_like_torch(asked.container):
            continue
        yield Finding(
            "GF769",
            f"{asked.title} uses {number} GPUs with PyTorch, and its {SHM} has the 64 MiB of the container runtime",
            subject.where_of(asked, "volumeMounts"),
            f"mount an emptyDir {{medium: Memory, sizeLimit: 16Gi}} at {SHM}; it counts in the memory limit",
            severity="warning",
        )
