"""Claims, volumes, storage classes and drivers, read from their manifests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gpuflow.kubernetes.admission.pod import Body, read_text
from gpuflow.kubernetes.decoding import read_as
from gpuflow.kubernetes.labels import Labels, Selector, read_labels, read_selector
from gpuflow.kubernetes.objects import NodeSelector, NodeSelectorTerm
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
