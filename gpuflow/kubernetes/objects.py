"""Nodes, pods, quotas and limit ranges as their manifests have them."""

from __future__ import annotations

from typing import Annotated

from msgspec import field

from gpuflow.kubernetes.decoding import Amounts, AnyMap, At, Closed, LabelMap, Loose, Object
from gpuflow.kubernetes.labels import Labels, Requirement
from gpuflow.kubernetes.resources import aggregate, combine_limits, combine_requests
from gpuflow.quantity import Quantity

NO_AMOUNTS = Amounts()
NAME_FIELD = "metadata.name"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class NodeSelectorTerm(Object, frozen=True):
    """One alternative of a node affinity: all of its expressions and fields must hold."""

    expressions: tuple[Requirement, ...] = field(default=(), name="matchExpressions")
    fields: tuple[Requirement, ...] = field(default=(), name="matchFields")

    @property
    def is_possible(self) -> bool:
        """Whether any node can match: an empty term, or one that cannot be read, matches none."""
        readable = all(each.fault is None for each in self.expressions) and all(
            each.operator in ("In", "NotIn") and len(each.values) == 1 for each in self.fields
        )
        return readable and bool(self.expressions or self.fields)

    def matches(self, name: str, labels: Labels) -> bool:
        return all(each.matches(labels) for each in self.expressions) and all(
            ((name if each.key == NAME_FIELD else "") == each.values[0]) == (each.operator == "In")
            for each in self.fields
        )

    @property
    def node_names(self) -> frozenset[str] | None:
        """The nodes that it allows by name; `None` when it names none and so leaves all open."""
        lists = [frozenset(each.values) for each in self.fields if (each.key, each.operator) == (NAME_FIELD, "In")]
        return frozenset.intersection(*lists) if lists else None


class NodeSelector(Object, frozen=True):
    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()

    def matches(self, name: str, labels: Labels) -> bool:
        return any(term.is_possible and term.matches(name, labels) for term in self.node_selector_terms)


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

    @property
    def is_sidecar(self) -> bool:
        return self.restart_policy == "Always"


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
    required: tuple[PodAffinityTerm, ...] = field(default=(), name=REQUIRED)


class Affinity(Object, frozen=True):
    pod_affinity: PodAffinity = PodAffinity()
    pod_anti_affinity: PodAffinity = PodAffinity()


class PodContainers(Object, frozen=True):
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: Amounts = NO_AMOUNTS


class PodTemplate(PodContainers, frozen=True):
    """The resources of a pod; `resources` are those of the pod as a whole."""

    resources: Resources | None = None
    runtime_class_name: str = ""

    def requests(self) -> dict[str, Quantity]:
        total = aggregate(
            (each.resources.requests for each in self.containers),
            ((each.resources.requests, each.is_sidecar) for each in self.init_containers),
        )
        return combine_requests(total, self.resources.requests if self.resources else {}, self.overhead)

    def limits(self) -> dict[str, Quantity]:
        total = aggregate(
            (each.resources.limits for each in self.containers),
            ((each.resources.limits, each.is_sidecar) for each in self.init_containers),
        )
        return combine_limits(total, self.resources.limits if self.resources else {}, self.overhead)


class PodParts(PodContainers, frozen=True):
    """What is read of every pod, even of one that is over."""

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


class ScopeRequirement(Closed, frozen=True):
    scope_name: Loose = None
    operator: Loose = None
    values: Annotated[frozenset[str], At("{list} values")] = frozenset()


class ScopeSelector(Closed, frozen=True):
    match_expressions: Annotated[tuple[ScopeRequirement, ...], At("{here}")] = ()


class ResourceQuotaSpec(Closed, frozen=True):
    hard: Amounts = NO_AMOUNTS
    scopes: tuple[str, ...] = ()
    scope_selector: ScopeSelector = ScopeSelector()


class ResourceQuotaStatus(Closed, frozen=True):
    hard: Amounts = NO_AMOUNTS
    used: Amounts = NO_AMOUNTS


class LimitRangeItem(Closed, frozen=True):
    type: str = ""
    max: Amounts = NO_AMOUNTS
    min: Amounts = NO_AMOUNTS
    default: Amounts = NO_AMOUNTS
    default_request: Amounts = NO_AMOUNTS
    max_limit_request_ratio: Amounts = NO_AMOUNTS


class LimitRangeSpec(Closed, frozen=True):
    limits: tuple[LimitRangeItem, ...] = ()
