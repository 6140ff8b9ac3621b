"""Nodes and pods as the scheduler sees them, read from their manifests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from gpuflow.checker.nodes.affinity import Affinity, read_affinity
from gpuflow.checker.nodes.amounts import Amounts, held, positive, read_allocatable
from gpuflow.checker.nodes.features import read_declared, read_required
from gpuflow.checker.nodes.flags import read_flag
from gpuflow.checker.nodes.placement import Placement, read_placement
from gpuflow.checker.nodes.ports import HostPort, read_host_ports
from gpuflow.checker.nodes.spread import Constraint, read_constraints
from gpuflow.checker.nodes.storage import Storage
from gpuflow.checker.nodes.taints import COMPARISON_GATE, Taint, Tolerations, read_taints, read_tolerations
from gpuflow.checker.nodes.volume_binding import PodVolumes, pod_volumes
from gpuflow.checker.nodes.volumes import Disk, read_claim_names, read_disks, unknown_volumes
from gpuflow.kubernetes.admission.pod import read_object, read_pod, read_text
from gpuflow.kubernetes.labels import Labels, read_labels
from gpuflow.resources import BadField, read_map, read_maps

Body = Mapping[str, Any]

FIXTURES: Final = ("DaemonSet", "Node")
"""The owners of pods that stay as long as their node does."""

GROUP_MAX: Final = "gpuflow.dev/node-group-max"
GROUP_MIN: Final = "gpuflow.dev/node-group-min"


class Node(NamedTuple):
    name: str
    labels: Labels
    taints: tuple[Taint, ...]
    is_cordoned: bool
    allocatable: Amounts
    slots: int
    """How many pods it takes."""
    features: frozenset[str]
    group_max: int | None
    """For the template of an autoscaled node group: how many such nodes there may be. `None`: a node that is."""
    claimed: frozenset[str] = frozenset()
    """The amounts that it has as devices, through claims."""


class BoundPod(NamedTuple):
    node: str
    namespace: str
    labels: Labels
    is_leaving: bool
    is_fixture: bool
    """It belongs to the node (a DaemonSet's or a static pod) and does not make way."""
    requests: Amounts
    ports: tuple[HostPort, ...]
    affinity: Affinity
    disks: tuple[Disk, ...]
    claims: tuple[str, ...]


class UnboundPod(NamedTuple):
    namespace: str
    labels: Labels
    placement: Placement
    tolerations: Tolerations
    requests: Amounts
    """Without zeros."""
    ports: tuple[HostPort, ...]
    affinity: Affinity
    constraints: tuple[Constraint, ...]
    disks: tuple[Disk, ...]
    features: frozenset[str]
    unknown: tuple[str, ...]
    """What the scheduler will consider and the manifest alone does not say."""
    volumes: PodVolumes | None = None
    """Its claims; `None` when it has none, or when nothing is known of them."""
    is_held: bool = False
    """Another pod has a claim that is for one pod alone."""


def read_node(manifest: object) -> Node:
    manifest = read_object(manifest, "Node")
    metadata = read_map(manifest.get("metadata"), "metadata")
    name = read_text(metadata, "name", "metadata")
    if not name:
        raise BadField("metadata.name", "a node needs a name")
    spec = read_map(manifest.get("spec"), "spec")
    allocatable, slots = read_allocatable(manifest)
    return Node(
        name,
        read_labels(metadata.get("labels"), "metadata.labels"),
        read_taints(spec),
        read_flag(spec, "unschedulable", "spec") or False,
        allocatable,
        slots,
        read_declared(manifest),
        _read_group_max(read_map(metadata.get("annotations"), "metadata.annotations")),
    )


def _read_group_max(annotations: Body) -> int | None:
    if GROUP_MAX not in annotations:
        return None
    most, least = _read_count(annotations, GROUP_MAX), _read_count(annotations, GROUP_MIN)
    if least > most:
        raise BadField(f"metadata.annotations[{GROUP_MIN}]", f"{least} is above {GROUP_MAX}, {most}")
    return most


def _read_count(annotations: Body, key: str) -> int:
    text = annotations.get(key, "0")
    if not isinstance(text, str) or not (text.isascii() and text.isdigit() and len(text) < 10):
        raise BadField(f"metadata.annotations[{key}]", f'must be a number of nodes such as "8", not {text!r}')
    return int(text)


def read_bound(manifest: object) -> BoundPod | None:
    """A pod that takes up room; `None` for one that is finished or not bound to a node."""
    manifest = read_object(manifest, "Pod")
    metadata = read_map(manifest.get("metadata"), "metadata")
    spec = read_map(manifest.get("spec"), "spec")
    node = read_text(spec, "nodeName", "spec")
    status = read_map(manifest.get("status"), "status")
    if not node or read_text(status, "phase", "status") in ("Succeeded", "Failed"):
        return None
    namespace = read_text(metadata, "namespace", "metadata") or "default"
    return BoundPod(
        node,
        namespace,
        read_labels(metadata.get("labels"), "metadata.labels"),
        metadata.get("deletionTimestamp") is not None,
        any(owner.get("kind") in FIXTURES for owner in _owners(metadata)),
        held(manifest),
        read_host_ports(spec),
        read_affinity(spec, namespace),
        read_disks(spec),
        (*read_claim_names(spec), *_ephemeral_claims(spec, str(metadata.get("name")))),
    )


def read_schedulable_pod(manifest: object) -> UnboundPod | None:
    """A pod that the scheduler may bind at any moment; `None` for one that is bound, over, going, or held by a gate."""
    manifest = read_object(manifest, "Pod")
    metadata, spec = read_map(manifest.get("metadata"), "metadata"), read_map(manifest.get("spec"), "spec")
    over = read_text(read_map(manifest.get("status"), "status"), "phase", "status") in ("Succeeded", "Failed")
    if over or read_text(spec, "nodeName", "spec") or metadata.get("deletionTimestamp") is not None:
        return None
    gated = read_maps(spec.get("schedulingGates"), "spec.schedulingGates")
    return None if gated else read_unbound_pod(manifest)


def _owners(metadata: Body) -> list[Body]:
    return read_maps(metadata.get("ownerReferences"), "metadata.ownerReferences")


def read_unbound_pod(
    manifest: object, gates: frozenset[str] = frozenset(), storage: Storage | None = None
) -> UnboundPod:
    """Read a pod that waits. `storage` is what its claims depend on, when that is known."""
    pod = read_pod(manifest)
    spec = pod.spec
    namespace = pod.metadata.get("namespace") or "default"
    labels = read_labels(pod.metadata.get("labels"), "metadata.labels")
    return UnboundPod(
        namespace,
        labels,
        read_placement(spec),
        read_tolerations(spec, COMPARISON_GATE in gates),
        positive(pod.requests()),
        read_host_ports(spec),
        read_affinity(spec, namespace, labels),
        read_constraints(spec, labels),
        read_disks(spec),
        read_required(spec),
        tuple(_unknown(spec, storage)),
        None if storage is None or not (names := read_claim_names(spec)) else pod_volumes(storage, namespace, names),
    )


def _ephemeral_claims(spec: Body, name: str) -> Iterator[str]:
    """The claims that are made for volumes of the pod itself."""
    for volume in read_maps(spec.get("volumes"), "spec.volumes") if spec.get("volumes") else ():
        if volume.get("ephemeral") is not None:
            yield f"{name}-{volume.get('name')}"


def _unknown(spec: Body, storage: Storage | None) -> Iterator[str]:
    for gate in read_maps(spec.get("schedulingGates"), "spec.schedulingGates"):
        yield f'when scheduling gate "{gate.get("name")}" is lifted'
    for claim in read_maps(spec.get("resourceClaims"), "spec.resourceClaims"):
        yield f'which nodes have devices for resource claim "{claim.get("name")}"'
    yield from unknown_volumes(spec, knows_claims=storage is not None)
