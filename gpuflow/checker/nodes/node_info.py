"""Nodes and pods as the scheduler sees them, read from manifests, and a pod held against what is bound to a node.

Counted are resources, the number of pods, ports of the node that pods take for themselves, and what a pod needs a
node's kubelet to be able to do, where kubelets declare it.

Mirrors Fit.Filter in k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources and NodePorts.Filter in
k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodeports, Kubernetes v1.36.3.

Which nodes a pod may use: its node name, node selector and required node affinity, and the taints that it tolerates.

Mirrors k8s.io/component-helpers/scheduling/corev1/nodeaffinity.RequiredNodeAffinity.Match and
k8s.io/component-helpers/scheduling/corev1.FindMatchingUntoleratedTaint, Kubernetes v1.36.3.

Resources in the scheduler's units: thousandths of a cpu, whole numbers of everything else.

Mirrors k8s.io/component-helpers/resource.PodRequests, Kubernetes v1.36.3.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple

from gpuflow.checker.nodes.pod_affinity import (
    Affinity,
    Namespaces,
    SpreadConstraint,
    affinity_of,
    read_spread_constraints,
)
from gpuflow.checker.nodes.volumes import (
    Disk,
    PodVolumes,
    Storage,
    pod_volumes,
    read_claim_names,
    read_disks,
    unknown_volumes,
)
from gpuflow.kubernetes import objects
from gpuflow.kubernetes.admission.field_errors import is_extended
from gpuflow.kubernetes.admission.pod import (
    EMPTY,
    Body,
    Container,
    Requirements,
    default_level,
    read_flag,
    read_object,
    read_pod,
    read_text,
    round_container,
    round_to_milli,
)
from gpuflow.kubernetes.labels import BLOCKING_EFFECTS, Labels, Taint, Toleration, read_labels, read_tolerations
from gpuflow.kubernetes.objects import REQUIRED, NodeSelectorTerm, NodeTaint, decode, read_as
from gpuflow.kubernetes.resources import (
    BadField,
    ResourceList,
    aggregate,
    combine_requests,
    is_hugepages,
    is_pod_level,
    read_map,
    read_maps,
    read_resource_list,
)
from gpuflow.quantity import Format, Quantity

Amounts = dict[str, int]


@lru_cache(maxsize=4096)
def is_scheduled(name: str) -> bool:
    """Whether the scheduler looks at a resource."""
    return (
        name in ("cpu", "memory", "ephemeral-storage")
        or is_hugepages(name)
        or "kubernetes.io/" in name
        or name.startswith("attachable-volumes-")
        or is_extended(name)
    )


def amounts(resources: ResourceList) -> Amounts:
    return {
        name: quantity.milli if name == "cpu" else quantity.value
        for name, quantity in resources.items()
        if is_scheduled(name)
    }


def positive_amounts(resources: ResourceList) -> Amounts:
    """The amounts above zero: a request of zero is never short."""
    return {name: amount for name, amount in amounts(resources).items() if amount > 0}


def sum_amounts(many: Iterable[Amounts]) -> Amounts:
    """What several ask for together."""
    total: Amounts = {}
    for each in many:
        for name, amount in each.items():
            total[name] = total.get(name, 0) + amount
    return total


def as_quantity(name: str, amount: int) -> Quantity:
    """An amount as a person writes it."""
    if name == "cpu":
        return Quantity.from_nano(amount * 10**6)
    binary = name in ("memory", "ephemeral-storage") or is_hugepages(name)
    return Quantity.from_units(amount, Format.BINARY_SI if binary else Format.DECIMAL_SI)


def held_amounts(pod: objects.BoundPod, status: Mapping[str, Any]) -> Amounts:
    """What a bound pod takes of its node.

    A container that is being resized counts with the largest of what it wants, runs with and was allocated, and
    without what it wants once the node called that infeasible.
    """
    spec, said = pod.spec, pod.status
    is_resized = bool(said.container_statuses or said.init_container_statuses or said.resources)
    if len(spec.containers) == 1 and not (is_resized or spec.init_containers or spec.resources or spec.overhead):
        return _alone(spec.containers[0].resources.requests, spec.containers[0].resources.limits)
    containers, init_containers = (tuple(map(_container, each)) for each in (spec.containers, spec.init_containers))
    level = EMPTY
    if spec.resources is not None:
        asked = default_level(containers, init_containers, Requirements(spec.resources.requests, spec.resources.limits))
        level = round_to_milli(asked.requests)
    containers, init_containers = (tuple(map(round_container, each)) for each in (containers, init_containers))
    if is_resized:
        total, level = _effective_requests(containers, init_containers, level, status)
    else:
        total = aggregate(
            (each.requests for each in containers), ((each.requests, each.is_sidecar) for each in init_containers)
        )
    if level or spec.overhead:
        total = combine_requests(dict(total), level, round_to_milli(spec.overhead))
    return positive_amounts(total)


@lru_cache(maxsize=4096)
def _alone(requests: objects.Amounts, limits: objects.Amounts) -> Amounts:
    """What a container takes that is the only one of its pod; so many pods ask for the same that it is kept."""
    return positive_amounts(round_to_milli({**requests, **limits, **requests}))


def _container(container: objects.Container) -> Container:
    requests, limits = container.resources.requests, container.resources.limits
    wanted = {**requests, **limits, **requests}  # what only the limits name is asked for too
    return Container(container.name, wanted, limits, container.is_sidecar, EMPTY)


def _effective_requests(
    containers: tuple[Container, ...],
    init_containers: tuple[Container, ...],
    level: ResourceList,
    status: Mapping[str, Any],
) -> tuple[ResourceList, ResourceList]:
    """The sum of the containers and the amounts of the pod as a whole, with what the status says of them."""
    conditions = read_maps(status.get("conditions"), "status.conditions")
    pending = next((each for each in conditions if each.get("type") == "PodResizePending"), {})
    infeasible = pending.get("reason") == "Infeasible"
    states = {
        read_text(state, "name", f"status.{field}[{index}]"): (state, f"status.{field}[{index}]")
        for field in ("containerStatuses", "initContainerStatuses")
        for index, state in enumerate(read_maps(status.get(field), f"status.{field}"))
    }

    def largest(wanted: ResourceList, state: Mapping[str, Any], where: str) -> ResourceList:
        running = read_map(state["resources"], f"{where}.resources").get("requests")
        total = {} if infeasible else dict(wanted)
        for other in (
            read_resource_list(running, f"{where}.resources.requests"),
            read_resource_list(state.get("allocatedResources"), f"{where}.allocatedResources"),
        ):
            for name, quantity in other.items():
                total[name] = max(quantity, total.get(name, quantity))
        return total

    def requests(container: Container) -> ResourceList:
        state, where = states.get(container.name, (EMPTY, ""))
        return container.requests if state.get("resources") is None else largest(container.requests, state, where)

    total = aggregate(
        map(requests, containers),
        ((requests(each) if each.is_sidecar else each.requests, each.is_sidecar) for each in init_containers),
    )
    if status.get("resources") is not None and any(map(is_pod_level, level)):
        effective = largest(level, status, "status")
        level = {name: effective.get(name, Quantity.zero) for name in level}
    return total, level


class Placement:
    """What a pod says about the nodes it wants."""

    def __init__(self, node_name: str, selector: Labels, terms: tuple[NodeSelectorTerm, ...] | None) -> None:
        self.node_name = node_name
        self.selector = selector
        self.terms = terms

    @cached_property
    def _possible(self) -> tuple[NodeSelectorTerm, ...]:
        return tuple(term for term in self.terms or () if term.is_possible)

    def matches(self, name: str, labels: Labels) -> bool:
        """Whether the node selector and the affinity allow the node."""
        for key, value in self.selector.items():
            if labels.get(key) != value:
                return False
        return self.terms is None or any(term.matches(name, labels) for term in self._possible)

    @cached_property
    def node_names(self) -> frozenset[str] | None:
        """The only nodes the affinity allows, when every term of it gives names; `None` when all are open."""
        names: frozenset[str] = frozenset()
        for term in self.terms or ():
            if term.node_names is None:
                return None
            names |= term.node_names
        return names if self.terms else None

    @cached_property
    def keys(self) -> frozenset[str]:
        """The labels it looks at."""
        return frozenset(self.selector) | {each.key for term in self._possible for each in term.expressions}

    @cached_property
    def identity(self) -> tuple[object, ...]:
        """Equal for two pods that say the same."""
        return self.node_name, frozenset(self.selector.items()), self.terms

    @cached_property
    def looks_at_names(self) -> bool:
        return bool(self.node_name) or any(term.fields for term in self._possible)


def read_placement(spec: Mapping[str, Any]) -> Placement:
    affinity = read_map(spec.get("affinity"), "spec.affinity")
    node = read_map(affinity.get("nodeAffinity"), "spec.affinity.nodeAffinity")
    where = f"spec.affinity.nodeAffinity.{REQUIRED}"
    required = node.get(REQUIRED)
    terms = None
    if required is not None:
        where += ".nodeSelectorTerms"
        items = read_maps(read_map(required, where).get("nodeSelectorTerms"), where)
        terms = read_as(tuple[NodeSelectorTerm, ...], items, where)
    return Placement(
        read_text(spec, "nodeName", "spec") or "", read_labels(spec.get("nodeSelector"), "spec.nodeSelector"), terms
    )


COMPARISON_GATE: Final = "TaintTolerationComparisonOperators"
"""The alpha feature gate without which `Gt` and `Lt` tolerate nothing."""


CORDON: Final = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
"""What a pod must tolerate to be put on a node marked unschedulable."""

TEMPORARY_TAINTS: Final = frozenset(
    {
        CORDON.key,
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
        "node.kubernetes.io/memory-pressure",
        "node.kubernetes.io/disk-pressure",
        "node.kubernetes.io/pid-pressure",
        "node.kubernetes.io/network-unavailable",
        "node.kubernetes.io/out-of-service",
        "node.cloudprovider.kubernetes.io/uninitialized",
        "node.cloudprovider.kubernetes.io/shutdown",
    }
)
"""Taints that come and go with the condition of a node and say nothing about whom it is for."""


class Tolerations(NamedTuple):
    items: tuple[Toleration, ...]
    comparing: bool

    def cover(self, taint: Taint) -> bool:
        return any(
            each.tolerates(taint.key, taint.value, taint.effect, comparing=self.comparing) for each in self.items
        )

    def cover_all(self, taints: tuple[Taint, ...]) -> bool:
        return all(self.cover(taint) for taint in taints)


def blocking_taints(listed: Iterable[NodeTaint]) -> tuple[Taint, ...]:
    """The taints that keep pods off; a preference is none, and its key and value are not read."""
    taints = []
    for index, item in enumerate(listed):
        if item.effect in BLOCKING_EFFECTS:
            key, value = (
                read_as(str | None, part, f"spec.taints[{index}].{field}") or ""
                for field, part in (("key", item.key), ("value", item.value))
            )
            taints.append(Taint(key, value, item.effect))
    return tuple(taints)


NO_FEATURES: Final = "node(s) didn't match Pod's required features"


def read_required_features(spec: Mapping[str, Any]) -> frozenset[str]:
    required = set()
    if read_flag(spec, "hostNetwork", "spec") and read_flag(spec, "hostUsers", "spec") is False:
        required.add("UserNamespacesHostNetworkSupport")
    for field in ("containers", "initContainers"):
        for index, container in enumerate(read_maps(spec.get(field), f"spec.{field}")):
            rules = read_maps(container.get("restartPolicyRules"), f"spec.{field}[{index}].restartPolicyRules")
            if any(rule.get("action") == "RestartAllContainers" for rule in rules):
                required.add("RestartAllContainersOnContainerExits")
    return frozenset(required)


ANY_ADDRESS: Final = "0.0.0.0"


class HostPort(NamedTuple):
    address: str
    protocol: str
    number: int

    def clashes(self, other: HostPort) -> bool:
        same_address = self.address == other.address or ANY_ADDRESS in (self.address, other.address)
        return same_address and self.number == other.number and self.protocol == other.protocol


def ports_clash(wanted: Iterable[HostPort], used: Iterable[HostPort]) -> bool:
    return any(port.clashes(other) for other in used for port in wanted)


def host_ports(pod: objects.PodParts, *, on_host: bool) -> Iterator[HostPort]:
    """The host ports of the containers that run all the time; on the host's network every port is one."""
    for field, containers in (("initContainers", pod.init_containers), ("containers", pod.containers)):
        for index, container in enumerate(containers):
            if container.ports and (field == "containers" or container.is_sidecar):
                where = f"spec.{field}[{index}].ports"
                for position, port in enumerate(read_as(tuple[objects.ContainerPort, ...], container.ports, where)):
                    number = port.host_port
                    if on_host and not number:
                        number = read_as(int | None, port.container_port, f"{where}[{position}].containerPort") or 0
                    if number > 0:
                        yield HostPort(port.host_ip or ANY_ADDRESS, port.protocol or "TCP", number)


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
    constraints: tuple[SpreadConstraint, ...]
    disks: tuple[Disk, ...]
    features: frozenset[str]
    unknown: tuple[str, ...]
    """What the scheduler will consider and the manifest alone does not say."""
    volumes: PodVolumes | None = None
    """Its claims; `None` when it has none, or when nothing is known of them."""
    is_held: bool = False
    """Another pod has a claim that is for one pod alone."""


def read_node(manifest: object) -> Node:
    return node_of(decode(objects.Node, read_object(manifest, "Node"), ""))


def node_of(node: objects.Node) -> Node:
    if not node.metadata.name:
        raise BadField("metadata.name", "a node needs a name")
    offered: ResourceList | None = node.status.allocatable
    if offered is None:  # one that says nothing of it offers its whole capacity
        offered = read_resource_list(node.status.capacity, "status.capacity")
    return Node(
        node.metadata.name,
        node.metadata.labels,
        blocking_taints(node.spec.taints),
        node.spec.unschedulable or False,
        amounts(offered),
        offered.get("pods", Quantity.zero).value,
        node.status.declared_features,
        _read_group_max(node.metadata.annotations),
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


def takes_up_room(manifest: Body) -> bool:
    """Whether a pod is bound to a node and not over; what cannot be read may be."""
    spec, status = manifest.get("spec"), manifest.get("status")
    if not isinstance(spec, Mapping) or not spec.get("nodeName"):
        return False
    return not isinstance(status, Mapping) or status.get("phase") not in ("Succeeded", "Failed")


def read_bound_pod(manifest: object) -> BoundPod | None:
    """A pod that takes up room; `None` for one that is finished or not bound to a node."""
    manifest = read_object(manifest, "Pod")
    if takes_up_room(manifest):
        return bound_pod(decode(objects.BoundPod, manifest, ""), manifest)
    for field in ("metadata", "spec", "status"):
        read_map(manifest.get(field), field)
    read_text(read_map(manifest.get("spec"), "spec"), "nodeName", "spec")
    return None


def bound_pod(pod: objects.BoundPod, manifest: Body) -> BoundPod:
    metadata, spec = pod.metadata, pod.spec
    namespace = metadata.namespace or "default"
    disks: tuple[Disk, ...] = ()
    claims: tuple[str, ...] = ()
    if spec.volumes:
        written = manifest["spec"]
        disks, claims = (
            tuple(read_disks(written)),
            (*read_claim_names(written), *_ephemeral_claims(written, metadata.name)),
        )
    return BoundPod(
        spec.node_name,
        namespace,
        metadata.labels,
        metadata.deletion_timestamp is not None,
        any(owner.kind in FIXTURES for owner in metadata.owner_references),
        held_amounts(pod, manifest.get("status") or {}),
        tuple(host_ports(spec, on_host=spec.host_network or False)),
        affinity_of(spec.affinity, namespace),
        disks,
        claims,
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


def read_unbound_pod(
    manifest: object, gates: frozenset[str] = frozenset(), storage: Storage | None = None
) -> UnboundPod:
    """Read a pod that waits. `storage` is what its claims depend on, when that is known."""
    pod = read_pod(manifest)
    spec, parts = pod.spec, decode(objects.PodParts, pod.spec, "spec")
    namespace = pod.metadata.get("namespace") or "default"
    labels = read_labels(pod.metadata.get("labels"), "metadata.labels")
    return UnboundPod(
        namespace,
        labels,
        read_placement(spec),
        Tolerations(read_tolerations(spec.get("tolerations"), "spec.tolerations"), COMPARISON_GATE in gates),
        positive_amounts(pod.requests()),
        tuple(host_ports(parts, on_host=read_flag(spec, "hostNetwork", "spec") or False)),
        affinity_of(parts.affinity, namespace, labels),
        read_spread_constraints(spec, labels),
        tuple(read_disks(spec)),
        read_required_features(spec),
        tuple(_unknown(spec, storage)),
        None if storage is None or not (names := read_claim_names(spec)) else pod_volumes(storage, namespace, names),
    )


def _ephemeral_claims(spec: Body, name: str) -> Iterator[str]:
    """The claims that are made for volumes of the pod itself."""
    for volume in read_maps(spec.get("volumes") or None, "spec.volumes"):
        if volume.get("ephemeral") is not None:
            yield f"{name}-{volume.get('name')}"


def _unknown(spec: Body, storage: Storage | None) -> Iterator[str]:
    for gate in read_maps(spec.get("schedulingGates"), "spec.schedulingGates"):
        yield f'when scheduling gate "{gate.get("name")}" is lifted'
    for claim in read_maps(spec.get("resourceClaims"), "spec.resourceClaims"):
        yield f'which nodes have devices for resource claim "{claim.get("name")}"'
    yield from unknown_volumes(spec, knows_claims=storage is not None)


TOO_MANY_PODS: Final = "Too many pods"


def insufficient_reason(resource: str) -> str:
    """That a node has too little of a resource, in the scheduler's words."""
    return f"Insufficient {resource}"


class NodeInfo(NamedTuple):
    """A node and the pods on it."""

    node: Node
    pods: tuple[BoundPod, ...]
    used: Amounts

    def shortages(self, requests: Amounts) -> list[str]:
        """What it has too little of, in the scheduler's words."""
        short = [TOO_MANY_PODS] if len(self.pods) >= self.node.slots else []
        for name, amount in requests.items():
            if name not in self.node.claimed and self._lacks(name, amount):
                short.append(insufficient_reason(name))
        return short

    def lacks_devices(self, requests: Amounts) -> bool:
        """Whether claims find too few devices."""
        return any(name in self.node.claimed and self._lacks(name, amount) for name, amount in requests.items())

    def _lacks(self, name: str, amount: int) -> bool:
        return amount > self.node.allocatable.get(name, 0) - self.used.get(name, 0)


class NodeList(NamedTuple):
    hosts: tuple[NodeInfo, ...]
    templates: tuple[Node, ...]
    """One node for each autoscaled node group."""
    namespaces: Namespaces
    knows_namespaces: bool
    asks_for_namespaces: bool
    """Whether a bound pod keeps apart from pods of namespaces with certain labels."""

    def unknown(self, pod: UnboundPod) -> tuple[str, ...]:
        """What the scheduler will consider of a pod and the manifests at hand do not say."""
        terms = (*pod.affinity.together, *pod.affinity.apart)
        asked = self.asks_for_namespaces or any(term.asks_for_namespaces for term in terms)
        if self.knows_namespaces or not asked:
            return pod.unknown
        return (*pod.unknown, "which namespaces the namespaceSelector of an affinity means")


def read_node_list(
    nodes: Iterable[object], pods: Iterable[object] = (), namespaces: Mapping[str, Any] | Iterable[object] | None = None
) -> NodeList:
    """Read the manifests once, to ask about many pods. `ValueError` names the manifest that cannot be read.

    Pods and nodes may be manifests, or were read before.
    """
    bound: defaultdict[str, list[BoundPod]] = defaultdict(list)
    for index, manifest in enumerate(_require_list(pods, "pods")):
        try:
            pod = manifest if isinstance(manifest, BoundPod) else read_bound_pod(manifest)
        except ValueError as error:
            raise ValueError(f"{_place('pods', index, manifest)}: {error}") from None
        if pod is not None:
            bound[pod.node].append(pod)
    known: dict[str, Node] = {}
    for index, manifest in enumerate(_require_list(nodes, "nodes")):
        try:
            node = manifest if isinstance(manifest, Node) else read_node(manifest)
        except ValueError as error:
            raise ValueError(f"{_place('nodes', index, manifest)}: {error}") from None
        if node.name in known:
            raise ValueError(f'nodes[{index}]: there is already a node "{node.name}"')
        known[node.name] = node
    return NodeList(
        tuple(_host(node, bound.get(node.name, ())) for node in known.values() if node.group_max is None),
        tuple(node for node in known.values() if node.group_max is not None),
        _read_namespaces(namespaces),
        namespaces is not None,
        any(term.asks_for_namespaces for there in bound.values() for pod in there for term in pod.affinity.apart),
    )


def _host(node: Node, pods: Sequence[BoundPod]) -> NodeInfo:
    return NodeInfo(node, tuple(pods), sum_amounts(pod.requests for pod in pods))


def _require_list(manifests: Iterable[object], what: str) -> Iterable[object]:
    if isinstance(manifests, Mapping | str) or not isinstance(manifests, Iterable):
        raise ValueError(f"{what}: must be a list of manifests, not {type(manifests).__name__}")
    return manifests


def _place(what: str, index: int, manifest: object) -> str:
    metadata = manifest.get("metadata") if isinstance(manifest, Mapping) else None
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    return f"{what}[{index}] ({name})" if isinstance(name, str) else f"{what}[{index}]"


def _read_namespaces(namespaces: Mapping[str, Any] | Iterable[object] | None) -> Namespaces:
    """Labels by name, from a map of just that or from manifests, which then carry their own name as a label."""
    if isinstance(namespaces, Mapping):
        return {name: read_labels(labels, f"namespaces[{name}]") for name, labels in namespaces.items()}
    found = {}
    for index, manifest in enumerate(_require_list(namespaces or (), "namespaces")):
        where = f"namespaces[{index}].metadata"
        try:
            metadata = read_map(read_object(manifest, "Namespace").get("metadata"), where)
            name = read_text(metadata, "name", where) or ""
        except ValueError as error:
            raise ValueError(f"namespaces[{index}]: {error}") from None
        found[name] = {**read_labels(metadata.get("labels"), f"{where}.labels"), "kubernetes.io/metadata.name": name}
    return found
