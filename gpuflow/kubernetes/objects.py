"""Nodes and pods as their manifests have them."""

from __future__ import annotations

from msgspec import field

from gpuflow.kubernetes.decoding import Amounts, AnyMap, LabelMap, Loose, Object

NO_AMOUNTS = Amounts()


class NodeMetadata(Object):
    name: str = ""
    labels: LabelMap = {}
    annotations: AnyMap = {}


class NodeTaint(Object):
    effect: str = ""
    key: Loose = None
    value: Loose = None


class NodeSpec(Object):
    taints: tuple[NodeTaint, ...] = ()
    unschedulable: bool | None = None


class NodeStatus(Object):
    allocatable: Amounts | None = None
    capacity: Loose = None
    declared_features: frozenset[str] = frozenset()


class Node(Object):
    metadata: NodeMetadata = NodeMetadata()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Resources(Object):
    requests: Amounts = NO_AMOUNTS
    limits: Amounts = NO_AMOUNTS


class Container(Object):
    name: str = ""
    restart_policy: str = ""
    resources: Resources = Resources()
    ports: Loose = None


class ContainerPort(Object):
    host_port: int = 0
    container_port: Loose = None
    host_ip: str = field(default="", name="hostIP")
    protocol: str = ""


class PodAffinityTerm(Object):
    topology_key: str = ""
    label_selector: Loose = None
    match_label_keys: Loose = None
    mismatch_label_keys: Loose = None
    namespaces: Loose = None
    namespace_selector: Loose = None


class PodAffinity(Object):
    required: tuple[PodAffinityTerm, ...] = field(default=(), name="requiredDuringSchedulingIgnoredDuringExecution")


class Affinity(Object):
    pod_affinity: PodAffinity = PodAffinity()
    pod_anti_affinity: PodAffinity = PodAffinity()


class PodParts(Object):
    """What is read of every pod, even of one that is over."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: Amounts = NO_AMOUNTS
    affinity: Affinity = Affinity()


class BoundPodSpec(PodParts):
    node_name: str = ""
    host_network: bool | None = None
    resources: Resources | None = None
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str = ""
    runtime_class_name: str = ""
    active_deadline_seconds: int | None = None
    volumes: Loose = None


class OwnerReference(Object):
    kind: Loose = None


class PodMetadata(Object):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    labels: LabelMap = {}
    annotations: AnyMap = {}
    deletion_timestamp: Loose = None
    owner_references: tuple[OwnerReference, ...] = ()


class PodStatus(Object):
    phase: str = ""
    container_statuses: Loose = None
    init_container_statuses: Loose = None
    resources: Loose = None


class PodNode(Object):
    node_name: str = ""


class PodHead(Object):
    """What is read of a pod that takes up no room."""

    metadata: AnyMap = {}
    spec: PodNode = PodNode()
    status: AnyMap = {}


class BoundPod(Object):
    metadata: PodMetadata = PodMetadata()
    spec: BoundPodSpec = BoundPodSpec()
    status: PodStatus = PodStatus()
