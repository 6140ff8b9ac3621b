"""Volumes: disks named in the pod itself, and claims that are for one pod alone.

Where a PersistentVolumeClaim can be mounted depends on its volume and its storage class. Without these a pod with
claims is checked without them, and the answer says so.

Mirrors k8s.io/kubernetes/pkg/scheduler/framework/plugins/volumerestrictions.VolumeRestrictions.Filter, Kubernetes
v1.36.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from gpuflow.checker.nodes.flags import read_flag
from gpuflow.kubernetes.admission.pod import read_text
from gpuflow.resources import read_map, read_maps, read_texts

CLAIM_TAKEN: Final = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)
NO_DISK: Final = "node(s) had no available disk"


class Disk(NamedTuple):
    """A disk that two pods of a node can only share when both just read it."""

    kind: str
    identity: tuple[str, ...]
    monitors: frozenset[str]
    is_shareable: bool

    def clashes(self, other: Disk) -> bool:
        if (self.kind, self.identity) != (other.kind, other.identity):
            return False
        if self.kind == "rbd" and self.monitors.isdisjoint(other.monitors):
            return False
        return not (self.is_shareable and other.is_shareable)


IDENTITY: Final = {
    "gcePersistentDisk": ("pdName",),
    "awsElasticBlockStore": ("volumeID",),
    "iscsi": ("iqn",),
    "rbd": ("pool", "image"),
}
DEFAULTS: Final = {"pool": "rbd"}


def clash(wanted: Iterable[Disk], used: Iterable[Disk]) -> bool:
    return any(disk.clashes(other) for other in used for disk in wanted)


def read_disks(spec: Mapping[str, Any]) -> tuple[Disk, ...]:
    return tuple(_disks(spec)) if spec.get("volumes") else ()


def _disks(spec: Mapping[str, Any]) -> Iterator[Disk]:
    for index, volume in enumerate(read_maps(spec.get("volumes"), "spec.volumes")):
        for kind, fields in IDENTITY.items():
            if volume.get(kind) is None:
                continue
            where = f"spec.volumes[{index}].{kind}"
            source = read_map(volume[kind], where)
            yield Disk(
                kind,
                tuple(read_text(source, field, where) or DEFAULTS.get(field, "") for field in fields),
                frozenset(read_texts(source.get("monitors"), f"{where}.monitors")),
                kind != "awsElasticBlockStore" and read_flag(source, "readOnly", where) is True,
            )


def read_claim_names(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """The claims that a pod mounts by name."""
    if not spec.get("volumes"):
        return ()
    claims = (
        read_map(volume.get("persistentVolumeClaim"), f"spec.volumes[{index}].persistentVolumeClaim")
        for index, volume in enumerate(read_maps(spec.get("volumes"), "spec.volumes"))
    )
    return tuple(dict.fromkeys(str(claim.get("claimName") or "") for claim in claims if claim))


def unknown_volumes(spec: Mapping[str, Any], *, knows_claims: bool = False) -> Iterator[str]:
    """What is not known of a pod's volumes, in words."""
    for index, volume in enumerate(read_maps(spec.get("volumes"), "spec.volumes")):
        where = f"spec.volumes[{index}]"
        claim = read_map(volume.get("persistentVolumeClaim"), f"{where}.persistentVolumeClaim")
        if claim and not knows_claims:
            name = read_text(claim, "claimName", f"{where}.persistentVolumeClaim")
            yield f'which nodes can mount claim "{name}" (volume "{volume.get("name")}")'
        if volume.get("ephemeral") is not None:
            yield f'which nodes can mount the claim made for volume "{volume.get("name")}"'
