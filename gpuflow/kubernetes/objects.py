"""Nodes and pods as their manifests have them."""

from __future__ import annotations

from msgspec import field

from gpuflow.kubernetes.decoding import Amounts, AnyMap, LabelMap, Loose, Object

NO_AMOUNTS = Amounts()


class NodeMetadata(Object, frozen=True):
    name: str = ""
    labels: LabelMap = {}
    annotations: AnyMap = {}


class NodeTaint(Object, frozen=True):
    effect: str = ""
    key: Loose = None
    value: Loose = None


class NodeSpec(Object, frozen=True):
    taints: tuple[NodeTaint, ...] = ()
    unschedulable: bool | None = None


class NodeStatus(Object, frozen=True):
    allocatable: Amounts | None = None
    capacity: Loose = None
    declared_features: frozenset[str] = frozenset()


class Node(Object, frozen=True):
    metadata: NodeMetadata = NodeMetadata()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Resources(Object, frozen=True):
    requests: Amounts = NO_AMOUNTS
    limits: Amounts = NO_AMOUNTS


class Container(Object, frozen=True):
    name: str = ""
    restart_policy: str = ""
    resources: Resources = Resources()
    ports: Loose = None


class ContainerPort(Object, frozen=True):
    host_port: int = 0
    container_port: Loose = None
    host_ip: str = field(default="", name="hostIP")
    protocol: str = ""


class PodAffinityTerm(Object, frozen=True):
    topology_key: str = ""
    label_selector: Loose = None
    match_label_keys: Loose = None
    mismatch_label_keys: Loose = None
    namespaces: Loose = None
    namespace_selector: Loose = None


class PodAffinity(Object, frozen=True):
    required: tuple[PodAffinityTerm, ...] = field(default=(), name="requiredDuringSchedulingIgnoredDuringExecution")


class Affinity(Object, frozen=True):
    pod_affinity: PodAffinity = PodAffinity()
    pod_anti_affinity: PodAffinity = PodAffinity()


class PodParts(Object, frozen=True):
    """What is read of every pod, even of one that is over."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: Amounts = NO_AMOUNTS
    affinity: Affinity = Affinity()


class BoundPodSpec(PodParts, frozen=True):
    node_name: str = ""
    host_network: bool | None = None
    resources: Resources | None = None
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str = ""
    runtime_class_name: str = ""
    active_deadline_seconds: int | None = None
    volumes: Loose = None


class OwnerReference(Object, frozen=True):
    kind: Loose = None


class PodMetadata(Object, frozen=True):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    labels: LabelMap = {}
    annotations: AnyMap = {}
    deletion_timestamp: Loose = None
    owner_references: tuple[OwnerReference, ...] = ()


class PodStatus(Object, frozen=True):
    phase: str = ""
    container_statuses: Loose = None
    init_container_statuses: Loose = None
    resources: Loose = None


class BoundPod(Object, frozen=True):
    metadata: PodMetadata = PodMetadata()
    spec: BoundPodSpec = BoundPodSpec()
    status: PodStatus = PodStatus()
