"""Where the volumes of a pod let it run: disks named in the pod itself, and claims with the volumes behind them.

A claim leaves the nodes that reach its volume, or for which a volume can be found or made; a volume may say by its
labels in which zone or region it is. Where a PersistentVolumeClaim can be mounted depends on its volume and its
storage class. Without these a pod with claims is checked without them, and the answer says so. Attach limits of nodes,
and in-tree volumes that became CSI ones, are not looked at here.

Mirrors VolumeRestrictions.Filter, VolumeZone.Filter, VolumeBinding.PreFilter and volumeBinder.FindPodVolumes in
k8s.io/kubernetes/pkg/scheduler/framework/plugins (volumerestrictions, volumezone, volumebinding), with
k8s.io/component-helpers/storage/volume.FindMatchingVolume, Kubernetes v1.36.3.

Claims, volumes, storage classes and drivers, read from their manifests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple

from gpuflow.kubernetes.admission.pod import Body, read_flag, read_text
from gpuflow.kubernetes.labels import Labels, Selector, read_labels, read_selector
from gpuflow.kubernetes.objects import NodeSelector, NodeSelectorTerm, read_as
from gpuflow.kubernetes.resources import read_map, read_maps, read_quantity, read_resource_list, read_texts
from gpuflow.quantity import Quantity

ON_DEMAND: Final = "WaitForFirstConsumer"
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
POD_MODE: Final = "ReadWriteOncePod"
SHARED_MODES: Final = frozenset({"ReadWriteMany", "ReadOnlyMany"})
CLASS_MARK: Final = "volume.beta.kubernetes.io/storage-class"
NODE_MARK: Final = "volume.kubernetes.io/selected-node"
BOUND_MARK: Final = "pv.kubernetes.io/bind-completed"
UNATTACHED_SOURCES: Final = ("nfs", "hostPath", "local", "cephfs", "glusterfs", "azureFile")
"""Sources that are mounted without being attached to a node first."""


class Claim(NamedTuple):
    """A PersistentVolumeClaim."""

    namespace: str
    name: str
    storage_class: str
    """Empty: it wants a volume without a class."""
    volume: str
    """The name of its volume; empty while it has none."""
    is_bound: bool
    is_lost: bool
    is_leaving: bool
    modes: frozenset[str]
    size: Quantity
    selector: Selector | None
    block: bool
    attributes_class: str
    selected_node: str | None
    """The node for which the scheduler has asked for a volume already."""
    capacity: Quantity
    """What it got; zero while it has no volume, or where the manifest does not say it."""

    @property
    def is_for_one_pod(self) -> bool:
        return POD_MODE in self.modes


class Volume(NamedTuple):
    """A PersistentVolume."""

    name: str
    labels: Labels
    storage_class: str
    modes: frozenset[str]
    size: Quantity
    is_available: bool
    is_leaving: bool
    claim: tuple[str, str] | None
    """The namespace and name of the claim that it is for."""
    nodes: NodeSelector | None
    """Those that reach it; `None`: all."""
    block: bool
    attributes_class: str
    driver: str | None
    is_attached: bool | None
    """Whether it is attached to a node before it is mounted, by its source; `None`: its driver decides."""

    @property
    def terms(self) -> tuple[NodeSelectorTerm, ...]:
        return () if self.nodes is None else self.nodes.node_selector_terms

    def reaches(self, labels: Labels) -> bool:
        """Whether its node affinity allows a node with these labels. It cannot ask for the name of a node."""
        return self.nodes is None or self.nodes.matches("", labels)


class StorageClass(NamedTuple):
    name: str
    provisioner: str
    is_on_demand: bool
    """A volume is made, or chosen, when the scheduler has a node for the first pod."""
    topologies: tuple[tuple[tuple[str, frozenset[str]], ...], ...]

    def allows(self, labels: Labels) -> bool:
        """Whether volumes may be made for a node with these labels."""
        return not self.topologies or any(
            term and all(labels.get(key) in values for key, values in term) for term in self.topologies
        )


class Driver(NamedTuple):
    """A CSIDriver."""

    name: str
    attaches: bool
    tells_capacity: bool


class Capacity(NamedTuple):
    """A CSIStorageCapacity: the largest volume of a class that some nodes can get."""

    storage_class: str
    largest: Quantity | None
    nodes: Selector | None


class NodeDriver(NamedTuple):
    """What a CSINode says of one driver."""

    topology_keys: tuple[str, ...]
    most: int | None
    """How many of its volumes the node takes."""


@dataclass(frozen=True, slots=True)
class Storage:
    """What a cluster says of volumes. `None` stands for a kind that is not known."""

    claims: Mapping[tuple[str, str], Claim] = field(default_factory=dict)
    volumes: Mapping[str, Volume] | None = field(default_factory=dict)
    classes: Mapping[str, StorageClass] | None = field(default_factory=dict)
    drivers: Mapping[str, Driver] | None = field(default_factory=dict)
    capacities: tuple[Capacity, ...] | None = ()
    node_drivers: Mapping[str, Mapping[str, NodeDriver]] | None = field(default_factory=dict)
    kept: dict[object, object] = field(default_factory=dict, compare=False, repr=False)
    """Answers for pods that mount the same claims."""


def read_storage(
    claims: Iterable[Body] = (),
    volumes: Iterable[Body] | None = (),
    classes: Iterable[Body] | None = (),
    drivers: Iterable[Body] | None = (),
    capacities: Iterable[Body] | None = (),
    csi_nodes: Iterable[Body] | None = (),
) -> Storage:
    """Read the manifests once, to ask about many pods. `ValueError` names the field that cannot be read."""
    read = [read_claim(body) for body in claims]
    return Storage(
        {(each.namespace, each.name): each for each in read},
        None if volumes is None else {each.name: each for each in map(read_volume, volumes)},
        None if classes is None else {each.name: each for each in map(read_class, classes)},
        None if drivers is None else {each.name: each for each in map(_read_driver, drivers)},
        None if capacities is None else tuple(map(_read_capacity, capacities)),
        None if csi_nodes is None else {_name(body): _read_node_drivers(body) for body in csi_nodes},
    )


def read_claim(body: Body) -> Claim:
    metadata, spec = _metadata(body), read_map(body.get("spec"), "spec")
    phase = read_text(read_map(body.get("status"), "status"), "phase", "status")
    annotations = read_map(metadata.get("annotations"), "metadata.annotations")
    volume = read_text(spec, "volumeName", "spec") or ""
    return Claim(
        read_text(metadata, "namespace", "metadata") or "default",
        _name(body),
        _class_of(metadata, spec),
        volume,
        # A manifest without a status is one that nobody has read from a cluster: what it says will be so.
        bool(volume) and (phase == "Bound" or BOUND_MARK in annotations or "status" not in body),
        phase == "Lost",
        metadata.get("deletionTimestamp") is not None,
        frozenset(read_texts(spec.get("accessModes"), "spec.accessModes")),
        _storage(read_map(spec.get("resources"), "spec.resources").get("requests"), "spec.resources.requests"),
        read_selector(spec.get("selector"), "spec.selector"),
        spec.get("volumeMode") == "Block",
        read_text(spec, "volumeAttributesClassName", "spec") or "",
        annotations.get(NODE_MARK),
        _storage(read_map(body.get("status"), "status").get("capacity"), "status.capacity"),
    )


def read_volume(body: Body) -> Volume:
    metadata, spec = _metadata(body), read_map(body.get("spec"), "spec")
    phase = read_text(read_map(body.get("status"), "status"), "phase", "status")
    claim = read_map(spec.get("claimRef"), "spec.claimRef")
    required = read_map(spec.get("nodeAffinity"), "spec.nodeAffinity").get("required")
    csi = read_map(spec.get("csi"), "spec.csi")
    return Volume(
        _name(body),
        read_labels(metadata.get("labels"), "metadata.labels"),
        _class_of(metadata, spec),
        frozenset(read_texts(spec.get("accessModes"), "spec.accessModes")),
        _storage(spec.get("capacity"), "spec.capacity"),
        phase == "Available",
        metadata.get("deletionTimestamp") is not None,
        (str(claim.get("namespace") or ""), str(claim.get("name") or "")) if claim else None,
        read_as(NodeSelector | None, required, "spec.nodeAffinity.required"),
        spec.get("volumeMode") == "Block",
        read_text(spec, "volumeAttributesClassName", "spec") or "",
        read_text(csi, "driver", "spec.csi"),
        False if any(source in spec for source in UNATTACHED_SOURCES) else None,
    )


def read_class(body: Body) -> StorageClass:
    topologies = []
    for term in read_maps(body.get("allowedTopologies"), "allowedTopologies"):
        where = "allowedTopologies.matchLabelExpressions"
        expressions = read_maps(term.get("matchLabelExpressions"), where)
        topologies.append(
            tuple((str(each.get("key")), frozenset(read_texts(each.get("values"), where))) for each in expressions)
        )
    return StorageClass(
        _name(body), str(body.get("provisioner") or ""), body.get("volumeBindingMode") == ON_DEMAND, tuple(topologies)
    )


def _read_driver(body: Body) -> Driver:
    spec = read_map(body.get("spec"), "spec")
    return Driver(_name(body), spec.get("attachRequired") is not False, spec.get("storageCapacity") is True)


def _read_capacity(body: Body) -> Capacity:
    largest = body.get("maximumVolumeSize", body.get("capacity"))
    return Capacity(
        str(body.get("storageClassName") or ""),
        None if largest is None else read_quantity(largest),
        read_selector(body.get("nodeTopology"), "nodeTopology"),
    )


def _read_node_drivers(body: Body) -> Mapping[str, NodeDriver]:
    found = {}
    for each in read_maps(read_map(body.get("spec"), "spec").get("drivers"), "spec.drivers"):
        most = read_map(each.get("allocatable"), "spec.drivers.allocatable").get("count")
        keys = tuple(read_texts(each.get("topologyKeys"), "spec.drivers.topologyKeys"))
        found[str(each.get("name"))] = NodeDriver(keys, most if isinstance(most, int) else None)
    return found


def _storage(amounts: object, where: str) -> Quantity:
    return read_resource_list(amounts, where).get("storage", Quantity.zero)


def _class_of(metadata: Body, spec: Body) -> str:
    """The old annotation counts before the field."""
    annotations = read_map(metadata.get("annotations"), "metadata.annotations")
    return str(annotations.get(CLASS_MARK) or spec.get("storageClassName") or "")


def _metadata(body: Body) -> Body:
    return read_map(body.get("metadata"), "metadata")


def _name(body: Body) -> str:
    return read_text(_metadata(body), "name", "metadata") or ""


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


def disks_clash(wanted: Iterable[Disk], used: Iterable[Disk]) -> bool:
    return any(disk.clashes(other) for other in used for disk in wanted)


def read_disks(spec: Mapping[str, Any]) -> Iterator[Disk]:
    for index, volume in enumerate(read_maps(spec.get("volumes") or None, "spec.volumes")):
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
    claims = (
        read_map(volume.get("persistentVolumeClaim"), f"spec.volumes[{index}].persistentVolumeClaim")
        for index, volume in enumerate(read_maps(spec.get("volumes") or None, "spec.volumes"))
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


CURRENT: Final = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
"""The names of today for labels of old."""
ZONE_KEYS: Final = (*CURRENT, *CURRENT.values())
BETWEEN: Final = "__"
"""Stands between zones, where a label of a volume names several."""


def zone_refuses(volumes: Iterable[Volume], labels: Labels) -> bool:
    """Whether a node with these labels is in another zone than a volume. A node without any zone is in all."""
    if not any(key in labels for key in ZONE_KEYS):
        return False
    for volume in volumes:
        for key in ZONE_KEYS:
            zones = _zones(volume, key)
            if zones is not None and labels.get(key, labels.get(CURRENT.get(key, key))) not in zones:
                return True
    return False


def is_zonal(volume: Volume) -> bool:
    return any(_zones(volume, key) is not None for key in ZONE_KEYS)


def _zones(volume: Volume, key: str) -> frozenset[str] | None:
    """The zones that a label names; `None` without the label, and when Kubernetes cannot read it."""
    if key not in volume.labels:
        return None
    zones = [zone.strip() for zone in volume.labels[key].split(BETWEEN)]
    return frozenset(zones) if all(zones) else None


NO_VOLUME: Final = "node(s) didn't find available persistent volumes to bind"
OUT_OF_REACH: Final = "node(s) didn't match PersistentVolume's node affinity"
NO_SPACE: Final = "node(s) did not have enough free storage"
NO_ZONE: Final = "node(s) had no available volume zone"
UNBOUND: Final = "pod has unbound immediate PersistentVolumeClaims"


def pod_volumes(storage: Storage, namespace: str, names: Sequence[str]) -> PodVolumes:
    """The claims of a pod, the same object for the same claims."""
    key = namespace, frozenset(names)
    found = storage.kept.get(key)
    if not isinstance(found, PodVolumes):
        storage.kept[key] = found = PodVolumes(storage, namespace, names)
    return found


class PodVolumes:
    """The claims of one pod. One object stands for all pods that mount the same claims."""

    def __init__(self, storage: Storage, namespace: str, names: Sequence[str]) -> None:
        self.storage = storage
        self.names = tuple(names)
        self.claims = [claim for name in names if (claim := storage.claims.get((namespace, name)))]
        self._missing = [name for name in names if (namespace, name) not in storage.claims]
        self._volumes, self._classes = storage.volumes or {}, storage.classes or {}
        self._bound = [claim for claim in self.claims if claim.is_bound]
        waiting = [claim for claim in self.claims if not claim.is_bound]
        self._delayed = [claim for claim in waiting if self._is_delayed(claim)]
        self._immediate = [claim for claim in waiting if not self._is_delayed(claim)]
        self._ready = {
            claim.name: [volume for volume in self._volumes.values() if may_bind(claim, volume)]
            for claim in self._delayed
        }

    @cached_property
    def refusal(self) -> str | None:
        """Why no node is looked at, in the scheduler's words."""
        for name in self._missing:
            return f'persistentvolumeclaim "{name}" not found'
        for claim in self.claims:
            if claim.is_lost:
                return f'persistentvolumeclaim "{claim.name}" bound to non-existent persistentvolume "{claim.volume}"'
            if claim.is_leaving:
                return f'persistentvolumeclaim "{claim.name}" is being deleted'
        if self._immediate:
            return UNBOUND
        for claim in self._bound:
            if claim.volume not in self._volumes:
                return f'persistentvolume "{claim.volume}" not found'
        return None

    def refusals(self, name: str, labels: Labels) -> list[str]:
        """Why a node does not take the pod, in the scheduler's words."""
        reasons = []
        bound = [self._volumes[claim.volume] for claim in self._bound if claim.volume in self._volumes]
        if not all(volume.reaches(labels) for volume in bound):
            reasons.append(OUT_OF_REACH)
        reasons += self._unbound_refusals(name, labels)
        if not reasons and zone_refuses(bound, labels):
            return [NO_ZONE]
        return sorted(reasons)

    @cached_property
    def keys(self) -> frozenset[str]:
        """The labels of nodes that it looks at."""
        volumes = [self._volumes[claim.volume] for claim in self._bound if claim.volume in self._volumes]
        found = {key for volume in volumes for key in ZONE_KEYS} | set[str]()
        for volume in (*volumes, *(each for ready in self._ready.values() for each in ready)):
            found |= {each.key for term in volume.terms for each in term.expressions}
        for claim in self._delayed:
            made = self._classes[claim.storage_class]
            found |= {key for term in made.topologies for key, _ in term}
            found |= {each.key for selector in self._selectors(made) for each in selector.requirements}
        return frozenset(found)

    @property
    def looks_at_names(self) -> bool:
        return any(claim.selected_node is not None for claim in self._delayed)

    def _unbound_refusals(self, name: str, labels: Labels) -> Iterable[str]:
        """Why the claims that have no volume yet would get none there."""
        if any(claim.selected_node not in (None, name) for claim in self._delayed):
            return [NO_VOLUME]
        provisioned = [claim for claim in self._delayed if claim.selected_node is not None]
        chosen: set[str] = set()
        for claim in sorted((claim for claim in self._delayed if claim.selected_node is None), key=_size):
            volume = find_volume(claim, self._ready[claim.name], labels, chosen)
            if volume is None:
                provisioned.append(claim)
            else:
                chosen.add(volume.name)
        for claim in provisioned:
            made = self._classes[claim.storage_class]
            if made.provisioner in ("", NO_PROVISIONER) or not made.allows(labels):
                return [NO_VOLUME]
            if not self._has_space(claim, made, labels):
                return [NO_SPACE]
        return []

    def _has_space(self, claim: Claim, made: StorageClass, labels: Labels) -> bool:
        driver = (self.storage.drivers or {}).get(made.provisioner)
        if driver is None or not driver.tells_capacity or not claim.size:
            return True
        return any(
            each.largest is not None and each.largest.value >= claim.size.value
            for each in self.storage.capacities or ()
            if each.storage_class == made.name and each.nodes is not None and each.nodes.matches(labels)
        )

    def _selectors(self, made: StorageClass) -> Iterable[Selector]:
        capacities = self.storage.capacities or ()
        return [each.nodes for each in capacities if each.storage_class == made.name and each.nodes is not None]

    def _is_delayed(self, claim: Claim) -> bool:
        made = self._classes.get(claim.storage_class)
        return made is not None and made.is_on_demand and not claim.volume


def find_volume(claim: Claim, ready: Iterable[Volume], labels: Labels, chosen: Iterable[str] = ()) -> Volume | None:
    """The volume that a claim gets on a node with these labels, of those that it may get: its own, or the smallest."""
    smallest = None
    for volume in ready:
        if volume.name in chosen:
            continue
        if volume.claim is not None:
            return volume if volume.reaches(labels) else None
        if volume.reaches(labels) and (smallest is None or volume.size < smallest.size):
            smallest = volume
    return smallest


def may_bind(claim: Claim, volume: Volume) -> bool:
    """Whether a claim may get a volume, on some node. One that is set aside for the claim is taken as it is."""
    if (
        volume.storage_class != claim.storage_class
        or volume.size < claim.size
        or volume.block != claim.block
        or volume.attributes_class != claim.attributes_class
        or volume.is_leaving
    ):
        return False
    if volume.claim is not None:
        return volume.claim == (claim.namespace, claim.name)
    selected = claim.selector is None or claim.selector.matches(volume.labels)
    return volume.is_available and selected and claim.modes <= volume.modes


def _size(claim: Claim) -> int:
    return claim.size.value
