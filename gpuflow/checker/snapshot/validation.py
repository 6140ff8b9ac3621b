"""Manifests that cannot be read, or that Kubernetes itself would refuse: each a finding at the line of the value.

Every object of a snapshot is read here once by the reader of its kind, before anything is checked. So a broken one is
named with all the others, whichever part of the check would have met it first. Required fields are those that
Kubernetes demands, so that a manifest which lost a part is not taken for one that asks for nothing.

A cluster made ready for checks: validated, with namespaces filled in, and its nodes read once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property, partial
from typing import Any, Final, NamedTuple

from msgspec.structs import fields

from gpuflow.checker.kueue.flavors import read_flavor, read_named
from gpuflow.checker.kueue.requests import read_configuration
from gpuflow.checker.kueue.tas_flavor_snapshot import read_topology
from gpuflow.checker.kueue.workloads import (
    read_cluster_queue,
    read_cohort,
    read_holder,
    read_local_queue,
    read_reservations,
    read_workload,
)
from gpuflow.checker.nodes.capacity import NodePools
from gpuflow.checker.nodes.controllers import with_condition_taints, with_daemons
from gpuflow.checker.nodes.node_info import (
    BoundPod,
    Node,
    UnboundPod,
    bound_pod,
    node_of,
    read_bound_pod,
    read_node_list,
    read_schedulable_pod,
    takes_up_room,
)
from gpuflow.checker.nodes.volumes import Storage, read_storage
from gpuflow.checker.quota.namespace import NamespacePolicy, StepAdmission, standard_fault
from gpuflow.checker.snapshot.missing_kinds import VOLUMES as VOLUME_KINDS
from gpuflow.cluster import Cluster, Manifest
from gpuflow.cluster.kinds import KUEUE_CONFIG, KUEUE_SETTINGS_KEY
from gpuflow.core import yaml_tree
from gpuflow.core.errors import Finding, GpuflowError, Where
from gpuflow.demands import Demand
from gpuflow.demands.model import sum_usages
from gpuflow.demands.peaks import Usage, amounts_of
from gpuflow.kubernetes import objects
from gpuflow.kubernetes.admission.classes import read_priority_class, read_runtime_class
from gpuflow.kubernetes.admission.limit_range import read_limit_range
from gpuflow.kubernetes.admission.pod import Body, read_flag, read_integer, read_text
from gpuflow.kubernetes.admission.pod_security import LABEL, LEVELS
from gpuflow.kubernetes.admission.quota import read_quota
from gpuflow.kubernetes.labels import EFFECTS, read_labels, read_tolerations
from gpuflow.kubernetes.objects import Amounts, decode, read_as
from gpuflow.kubernetes.resources import BadField, read_map, read_maps, read_resource_list, read_texts

STATES: Final = ("True", "False", "Unknown")


def require_whole_workload(body: Body) -> None:
    pod_sets = read_maps(read_map(body.get("spec"), "spec").get("podSets"), "spec.podSets")
    for index, pod_set in enumerate(pod_sets):
        where = f"spec.podSets[{index}].template"
        template = read_map(pod_set.get("template"), where)
        _require_containers(decode(objects.PodParts, template.get("spec"), f"{where}.spec"), f"{where}.spec")
    status = read_map(body.get("status"), "status")
    for index, condition in enumerate(read_maps(status.get("conditions"), "status.conditions")):
        where = f"status.conditions[{index}]"
        if not read_text(condition, "type", where):
            raise BadField(f"{where}.type", "a condition needs one")
        state = read_text(condition, "status", where)
        if state not in STATES:
            raise BadField(f"{where}.status", f"{state!r} is not one of {', '.join(STATES)}")
    _require_assignments(read_map(status.get("admission"), "status.admission"), pod_sets)


def _require_assignments(admission: Body, pod_sets: Sequence[Body]) -> None:
    """An admission says of every pod set, by its name, what it was given."""
    if not admission:
        return
    where = "status.admission.podSetAssignments"
    assignments = read_maps(admission.get("podSetAssignments"), where)
    given = [read_text(each, "name", f"{where}[{index}]") or "main" for index, each in enumerate(assignments)]
    asked = [read_text(each, "name", f"spec.podSets[{index}]") or "main" for index, each in enumerate(pod_sets)]
    if sorted(given) != sorted(asked):
        raise BadField(where, f"is of {', '.join(given) or 'nothing'}, and the pod sets are {', '.join(asked)}")
    for index, each in enumerate(assignments):
        require_positive(each.get("resourceUsage"), f"{where}[{index}].resourceUsage")


def require_whole_taints(field: str) -> Callable[[Body], None]:
    """A reader that demands a key and an effect of each taint in a field of the spec."""

    def read(body: Body) -> None:
        where = f"spec.{field}"
        for index, taint in enumerate(read_maps(read_map(body.get("spec"), "spec").get(field), where)):
            if not read_text(taint, "key", f"{where}[{index}]"):
                raise BadField(f"{where}[{index}].key", "a taint needs one")
            effect = read_text(taint, "effect", f"{where}[{index}]")
            if effect not in EFFECTS:
                raise BadField(f"{where}[{index}].effect", f"{effect!r} is not one of {', '.join(EFFECTS)}")

    return read


def require_whole_runtime_class(body: Body) -> None:
    scheduling = read_map(body.get("scheduling"), "scheduling")
    read_labels(scheduling.get("nodeSelector"), "scheduling.nodeSelector")
    read_tolerations(scheduling.get("tolerations"), "scheduling.tolerations")
    require_positive(read_map(body.get("overhead"), "overhead").get("podFixed"), "overhead.podFixed")


def require_whole_settings(body: Body) -> None:
    read_flag(body, "manageJobsWithoutQueueName", "Configuration")


def _require_containers(spec: objects.PodParts, where: str) -> None:
    """A pod has containers, each with a name; what they ask for is never negative."""
    if not spec.containers:
        raise BadField(f"{where}.containers", "a pod needs at least one container")
    for field, containers in (("containers", spec.containers), ("initContainers", spec.init_containers)):
        for index, container in enumerate(containers):
            if not container.name:
                raise BadField(f"{where}.{field}[{index}].name", "a container needs one")
            for side, amounts in (("requests", container.resources.requests), ("limits", container.resources.limits)):
                if amounts.negative is not None:
                    require_positive(amounts, f"{where}.{field}[{index}].resources.{side}")
    require_positive(spec.overhead, f"{where}.overhead")
    for kind, affinity in (
        ("podAffinity", spec.affinity.pod_affinity),
        ("podAntiAffinity", spec.affinity.pod_anti_affinity),
    ):
        for index, term in enumerate(affinity.required):
            if not term.topology_key:
                at = f"{where}.affinity.{kind}.{objects.REQUIRED}[{index}].topologyKey"
                raise BadField(at, "an affinity term needs one")


def require_positive(amounts: object, where: str) -> None:
    for key, amount in (amounts if isinstance(amounts, Amounts) else read_resource_list(amounts, where)).items():
        if amount.nano < 0:
            raise BadField(f"{where}[{key}]", f"{amount} is negative; an amount is zero or more")


SCOPES: Final = {
    "Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "PriorityClass", "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
}  # fmt: skip
OPERATORS: Final = {"In", "NotIn", "Exists", "DoesNotExist"}
LIMIT_TYPES: Final = ("Container", "Pod", "PersistentVolumeClaim")


class Validated(NamedTuple):
    """What was read of the objects that a cluster has so many of that reading them again is felt."""

    bound: list[BoundPod]
    """The pods that take up room."""
    waiting: list[tuple[Manifest, UnboundPod]]
    """The pods that a node may take at any moment."""
    nodes: list[Node]


def validate(cluster: Cluster) -> Validated:
    """Raise `GpuflowError` with every manifest that cannot be what it says it is."""
    valid = Validated([], [], [])
    findings = [finding for item in cluster.objects if item.is_known for finding in _faults(item, valid)]
    if findings:
        raise GpuflowError(findings)
    return valid


def _faults(item: Manifest, valid: Validated) -> Iterator[Finding]:
    for read in READERS.get(item.kind, ()):
        try:
            found = read(item.body)
            if isinstance(found, BoundPod):
                valid.bound.append(found)
            elif isinstance(found, UnboundPod):
                valid.waiting.append((item, found))
            elif isinstance(found, Node):
                valid.nodes.append(found)
        except ValueError as refusal:
            names_it = isinstance(refusal, BadField) and refusal.owner
            message = str(refusal) if names_it else f"{item.kind} {item.name}: {refusal}"
            hint = "fix the manifest; Kubernetes would not take it either"
            yield Finding("GF403", message, item.at_fault(refusal), hint)
            return


def _read_quota_rules(body: Body) -> None:
    """What the API server demands of a quota beyond its shape."""
    spec = decode(objects.ResourceQuotaSpec, body.get("spec"), "spec")
    status = decode(objects.ResourceQuotaStatus, body.get("status"), "status")
    for where, amounts in (("spec.hard", spec.hard), ("status.hard", status.hard), ("status.used", status.used)):
        require_positive(amounts, where)
        for key in amounts:
            fault = standard_fault(key)
            if fault:
                raise BadField(f"{where}[{key}]", fault)
    for index, name in enumerate(spec.scopes):
        if name not in SCOPES:
            raise BadField(f"spec.scopes[{index}]", f"{name!r} is not one of {', '.join(sorted(SCOPES))}")
    for index, each in enumerate(spec.scope_selector.match_expressions):
        for field, given, allowed in (("scopeName", each.scope_name, SCOPES), ("operator", each.operator, OPERATORS)):
            where = f"spec.scopeSelector.matchExpressions[{index}].{field}"
            word = read_as(str | None, given, where)
            if word not in allowed:
                raise BadField(where, f"{word!r} is not one of {', '.join(sorted(allowed))}")


def _read_limit_rules(body: Body) -> None:
    for index, item in enumerate(decode(objects.LimitRangeSpec, body.get("spec"), "spec").limits):
        if item.type not in LIMIT_TYPES and "/" not in item.type:
            raise BadField(f"spec.limits[{index}].type", f"{item.type!r} is not one of {', '.join(LIMIT_TYPES)}")
        for field in fields(item)[1:]:
            require_positive(getattr(item, field.name), f"spec.limits[{index}].{field.encode_name}")


def _read_namespace(body: Body) -> None:
    labels = read_labels(read_map(body.get("metadata"), "metadata").get("labels"), "metadata.labels")
    level = labels.get(LABEL)
    if level is not None and level not in LEVELS:
        raise BadField(f"metadata.labels[{LABEL}]", f"{level!r} is not one of {', '.join(LEVELS)}")


def _read_whole_node(body: Body) -> Node:
    node = decode(objects.Node, body, "")
    found = node_of(node)
    require_positive(node.status.allocatable, "status.allocatable")
    require_positive(node.status.capacity, "status.capacity")
    return found


def _read_whole_pod(body: Body) -> BoundPod | UnboundPod | None:
    if takes_up_room(body):
        pod = decode(objects.BoundPod, body, "")
        _require_containers(pod.spec, "spec")
        return bound_pod(pod, body)
    _require_containers(decode(objects.PodParts, body.get("spec"), "spec"), "spec")
    read_bound_pod(body)
    return read_schedulable_pod(body)


def _read_claim(body: Body) -> None:
    spec = read_map(body.get("spec"), "spec")
    read_text(spec, "storageClassName", "spec")
    resources = read_map(spec.get("resources"), "spec.resources")
    require_positive(resources.get("requests"), "spec.resources.requests")


def _read_annotations(body: Body) -> None:
    metadata = read_map(body.get("metadata"), "metadata")
    for key, value in read_map(metadata.get("annotations"), "metadata.annotations").items():
        if not isinstance(value, str):
            raise BadField(f"metadata.annotations[{key}]", f"annotations are strings, not {value!r}")


def _read_workload_priority(body: Body) -> None:
    if read_integer(body, "value", "WorkloadPriorityClass") is None:
        raise BadField("value", "a priority class needs a value")


def _read_group_rules(body: Body) -> None:
    """Every flavor of a resource group says something of every resource that the group covers, and no other."""
    where = "spec.resourceGroups"
    for index, group in enumerate(read_maps(read_map(body.get("spec"), "spec").get("resourceGroups"), where)):
        covered = read_texts(group.get("coveredResources"), f"{where}[{index}].coveredResources")
        flavors = read_maps(group.get("flavors"), f"{where}[{index}].flavors")
        if not covered or not flavors:
            missing = "flavors" if covered else "coveredResources"
            raise BadField(f"{where}[{index}].{missing}", "a resource group needs at least one")
        for number, flavor in enumerate(flavors):
            at = f"{where}[{index}].flavors[{number}].resources"
            names = [item.get("name") for item in read_maps(flavor.get("resources"), at)]
            if sorted(map(str, names)) != sorted(covered):
                given = ", ".join(map(str, names)) or "nothing"
                raise BadField(at, f"must be of {', '.join(covered)}, which the group covers, not of {given}")


def _read_settings(body: Body) -> None:
    """Kueue's configuration, which its manager reads from a ConfigMap."""
    text = read_map(body.get("data"), "data").get(KUEUE_SETTINGS_KEY)
    if not isinstance(text, str) or KUEUE_CONFIG not in text:
        return
    try:
        settings = yaml_tree.parse(text, KUEUE_SETTINGS_KEY)
        read_configuration(settings)
        require_whole_settings(settings)
    except GpuflowError as refusal:
        first = refusal.findings[0]
        raise BadField(f"data[{KUEUE_SETTINGS_KEY}]", f"its line {first.where.line}: {first.message}") from None
    except ValueError as refusal:
        raise BadField(f"data[{KUEUE_SETTINGS_KEY}]", str(refusal)) from None


READERS: Final[dict[str, tuple[Callable[[Body], object], ...]]] = {
    "ResourceQuota": (read_quota, _read_quota_rules),
    "LimitRange": (read_limit_range, _read_limit_rules),
    "Namespace": (_read_namespace,),
    "PriorityClass": (read_priority_class,),
    "RuntimeClass": (read_runtime_class, require_whole_runtime_class),
    "Node": (_read_whole_node, require_whole_taints("taints")),
    "Pod": (_read_whole_pod,),
    "PersistentVolumeClaim": (_read_claim, _read_annotations),
    "PersistentVolume": (lambda body: read_text(read_map(body.get("spec"), "spec"), "storageClassName", "spec"),),
    "StorageClass": (_read_annotations,),
    "ResourceFlavor": (read_flavor, require_whole_taints("nodeTaints")),
    "ClusterQueue": (read_cluster_queue, _read_group_rules, read_reservations),
    "Cohort": (read_cohort, _read_group_rules),
    "LocalQueue": (read_local_queue,),
    "Workload": (read_workload, require_whole_workload, partial(read_holder, by_eviction=True)),
    "WorkloadPriorityClass": (_read_workload_priority,),
    "Topology": (read_topology,),
    "AdmissionCheck": (lambda body: read_named(body, "AdmissionCheck"),),
    "Configuration": (read_configuration, require_whole_settings),
    "ConfigMap": (_read_settings,),
}
"""How each kind is read, to see whether it can be."""


class PreparedCluster:
    """A cluster as pods of one namespace see it. Keep it to check many pipelines against the same cluster.

    `default`: the namespace of manifests that name none; without it, the one that is asked about. `read`: how the
    objects of another namespace are had, where this cluster does not hold them. `files`: what the checked files bring.
    """

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        *,
        default: str | None = None,
        read: Callable[[str], Cluster] | None = None,
        files: tuple[Manifest, ...] = (),
    ) -> None:
        self._given, self._default, self._read, self.files = cluster, default, read, files
        self._filled = cluster.with_default_namespace(default or namespace)
        self._whole = self._filled
        if files:
            from gpuflow.cluster.overlay import lay_over  # most checks bring nothing

            self._whole = lay_over(self._filled, files, default or namespace)
        self.cluster = self._whole.seen_from(namespace)
        self.namespace = namespace
        self.valid = validate(self.cluster)
        self._others = {namespace: self}

    def seen_from(self, namespace: str) -> PreparedCluster:
        """The same cluster as pods of another namespace see it."""
        if namespace not in self._others:
            cluster = self._given if self._read is None else self._read(namespace)
            filled = cluster.with_default_namespace(self._default or namespace)
            is_same = self._read is None and _same_objects(filled, self._filled)
            if is_same and (self._default or not self.files):
                other = copy(self)  # its objects were validated
                other.cluster, other.namespace = self._whole.seen_from(namespace), namespace
                for each in ("storage", "live_usage"):
                    other.__dict__.pop(each, None)
            else:
                other = PreparedCluster(cluster, namespace, default=self._default, read=self._read, files=self.files)
                other._others = self._others
            self._others[namespace] = other
        return self._others[namespace]

    def with_files(self, files: tuple[Manifest, ...]) -> PreparedCluster:
        """The same with what these files bring."""
        return PreparedCluster(self._given, self.namespace, default=self._default, read=self._read, files=files)

    def with_cluster(self, cluster: Cluster) -> PreparedCluster:
        """The same with other objects, of which the nodes and pods are unchanged."""
        other = copy(self)
        other.cluster = cluster
        return other

    @cached_property
    def storage(self) -> Storage:
        """What the namespace's claims depend on."""
        bodies = self.cluster.bodies
        try:
            return read_storage(
                bodies("PersistentVolumeClaim", self.namespace) or (),
                *map(bodies, ("PersistentVolume", "StorageClass", "CSIDriver", "CSIStorageCapacity", "CSINode")),
            )
        except ValueError as refusal:
            where = next((item.where for kind in VOLUME_KINDS for item in self.cluster.of(kind)), Where())
            raise GpuflowError(Finding("GF403", str(refusal), where, "fix the manifest")) from None

    @cached_property
    def live_usage(self) -> Usage:
        """What they cost, by quota key."""
        return sum_usages((amounts_of(each).usage, 1) for each in self.live_pods)

    @property
    def live_pods(self) -> Iterator[Mapping[str, Any]]:
        """The pods of the namespace that have not ended."""
        pods = (item.body for item in self.cluster.of("Pod", self.namespace))
        return (each for each in pods if not _is_ending(each))

    @cached_property
    def node_pools(self) -> NodePools | None:
        """The nodes with what is bound to them; `None` when it is not known which nodes there are."""
        nodes = self.cluster.of("Node")
        if not self.cluster.knows("Node"):
            return None
        try:
            read = zip(self.valid.nodes, nodes, strict=True)
            tainted = [with_condition_taints(node, item.body) for node, item in read]
            node_list = read_node_list(tainted, self.valid.bound, self.cluster.bodies("Namespace"))
            return NodePools(with_daemons(node_list, [item.body for item in self.cluster.of("DaemonSet")]))
        except ValueError as refusal:
            raise GpuflowError(
                Finding("GF403", str(refusal), (nodes or self.cluster.of("Pod"))[0].where, "fix the manifest")
            ) from None


class NamespacePart(NamedTuple):
    """A namespace of the demand's pods: its policy, and the part of the demand that runs there."""

    prepared: PreparedCluster
    demand: Demand
    policy: NamespacePolicy
    admissions: Sequence[StepAdmission]


def prepare_cluster(cluster: Cluster | PreparedCluster, namespace: str) -> PreparedCluster:
    """The cluster, ready for checks of this namespace."""
    return PreparedCluster(cluster, namespace) if isinstance(cluster, Cluster) else cluster.seen_from(namespace)


def _is_ending(pod: Mapping[str, Any]) -> bool:
    done = read_map(pod.get("status"), "status").get("phase") in ("Succeeded", "Failed")
    return done or "deletionTimestamp" in read_map(pod.get("metadata"), "metadata")


def _same_objects(one: Cluster, other: Cluster) -> bool:
    pairs = zip(one.objects, other.objects, strict=False)
    return len(one.objects) == len(other.objects) and all(mine is theirs for mine, theirs in pairs)
