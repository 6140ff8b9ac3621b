"""Kueue as a snapshot shows it: its queues, its configuration, and which of a pipeline's pods it takes charge of.

Pods that Kueue places by topology: whether they always find their place, whatever else of the pipeline runs.

Kueue's own search says whether there is a place now. Here the worst is assumed of all other pods: the small ones are
on every node at once, and each of the others takes room where it hurts most. What pods ask of a topology stands in
their annotations; `topology_request` mirrors
sigs.k8s.io/kueue/pkg/controller/jobframework.podSetTopologyRequestBuilder.Build, Kueue v0.19.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import yaml

from gpuflow.checker.contention.concurrency import Competitor, Competitors, Concurrency
from gpuflow.checker.kueue import Assignment, Kueue
from gpuflow.checker.kueue.flavor_assigner import is_tas_requested, pod_set_topology_request
from gpuflow.checker.kueue.flavors import topologies_of
from gpuflow.checker.kueue.reasons import amounts_of
from gpuflow.checker.kueue.tas_flavor_snapshot import PlaceRequest, TopologyTree, domain_rooms
from gpuflow.checker.kueue.workloads import read_cluster_queue, read_reservations, read_workload
from gpuflow.checker.pipeline.pod_groups import PodGroup
from gpuflow.checker.snapshot.missing_kinds import (
    NAME_LABEL,
    asks_namespace,
    makers_of_nodes,
    namespace_labels,
    runs_kueue,
    shows_namespace,
)
from gpuflow.cluster import Cluster, Manifest
from gpuflow.cluster.kinds import KUEUE_SETTINGS_KEY
from gpuflow.core.errors import Finding, GpuflowError, Where
from gpuflow.kubernetes.labels import DEFAULT_QUEUE, QUEUE_LABEL, QUEUE_PRIORITY_LABEL, QUEUED_BY, read_selector
from gpuflow.kubernetes.objects import PodTemplate, decode
from gpuflow.kubernetes.resources import BadField, read_map, read_maps, read_texts

PREFIX: Final = "kueue.x-k8s.io/podset-"
TRUE: Final = ("1", "t", "T", "TRUE", "true", "True")
"""What Go reads as true."""
SLICES: Final = {
    "slice-required-topology": "podSetSliceRequiredTopology",
    "slice-size": "podSetSliceSize",
    "slice-required-topology-constraints": "podsetSliceRequiredTopologyConstraints",
}


def topology_request(annotations: Mapping[str, str]) -> dict[str, Any]:
    """The topologyRequest of a pod set; empty where its pods ask for nothing. The first wish counts, alone."""
    asked = {key.removeprefix(PREFIX): value for key, value in annotations.items() if key.startswith(PREFIX)}
    found: dict[str, Any] = {}
    if "required-topology" in asked:
        found["required"] = asked["required-topology"]
    elif "preferred-topology" in asked:
        found["preferred"] = asked["preferred-topology"]
    elif "unconstrained-topology" in asked:
        found["unconstrained"] = asked["unconstrained-topology"] in TRUE
    if found.keys() & {"required", "preferred"} and "group-name" in asked:
        found["podSetGroupName"] = asked["group-name"]
    return found | {field: asked[key] for key, field in SLICES.items() if key in asked}


ROOM: Final = "room"
"""How many pods of the asking kind find no place because of a pod."""


class OtherPods(NamedTuple):
    """Every kind of pods that may run at the same time, and when."""

    groups: Sequence[PodGroup]
    concurrency: Concurrency
    runs: int


def placed_flavors(kueue: Kueue, workload: Mapping[str, Any], flavors: Sequence[str]) -> list[PlaceRequest]:
    """What is asked of the nodes of each flavor that the workload may get; nothing where no topology decides."""
    head = kueue.enter(read_workload(workload))
    if isinstance(head, Assignment) or kueue.inventory is None:
        return []
    topologies = topologies_of(kueue.flavors, head.queue.flavors)
    return [
        pod_set_topology_request(each.pod_set, each.pods, flavor)
        for each in head.demands
        if is_tas_requested(each.pod_set, head.queue, topologies)
        for flavor in flavors
        if flavor in topologies
    ]


def is_always_placed(kueue: Kueue, own: PodGroup, asked: Sequence[PlaceRequest], others: OtherPods) -> bool:
    """Whether every flavor has a place for it, wherever the other pods of the pipeline are."""
    trees = kueue.snapshot.trees or {}
    if kueue.inventory is None or kueue.inventory.waiting or any(each.group is not None for each in asked):
        return False  # somebody else may be first; a leader and its workers must find one place together
    is_one = len({flavor.topology for flavor in kueue.flavors.values() if flavor.topology is not None}) == 1
    return all(_is_sure(trees[each.flavor], own, each, others, is_one) for each in asked)


def _is_sure(tree: TopologyTree, own: PodGroup, asked: PlaceRequest, others: OtherPods, is_one: bool) -> bool:
    """`is_one`: there is one Topology, so that gangs which ask for one of its domains mean the same ones."""
    devices = {name for name in asked.each if "/" in name}
    light: list[Competitor] = []
    heavy: list[Competitor] = []
    alike: list[Competitor] = []
    for group in others.groups:
        amounts = amounts_of(decode(PodTemplate, group.pod["spec"], "pod").requests())
        if is_one and asked.is_required and _is_in_one(group, own, asked):
            alike.append(Competitor(group.steps, {ROOM: 1}))
        elif group is own or (devices & amounts.keys() and _reaches(group, tree)):
            room = max(1, *(-(-amounts.get(name, 0) // each) for name, each in asked.each.items() if each), 1)
            heavy.append(Competitor(group.steps, {ROOM: room * group.pods}))
        elif not devices & amounts.keys():
            whole = {name: amount * group.pods for name, amount in amounts.items()}
            light.append(Competitor(group.steps, {**whole, "pods": group.pods}))
    everywhere = dict(_peaks(light, (*asked.each, "pods"), others))
    taken = Competitors(heavy).peak_load(ROOM, others.concurrency).value
    gangs = Competitors(alike).peak_load(ROOM, others.concurrency).value
    if taken is None or gangs is None or None in everywhere.values():
        return False
    rooms = domain_rooms(tree, asked, {name: amount or 0 for name, amount in everywhere.items()})
    # The heaviest moment that this gang is a part of leaves so much to the others.
    if not asked.is_required:
        return sum(rooms) - (taken * others.runs - asked.pods) >= asked.pods
    spare = sorted(room - asked.pods + 1 for room in rooms if room >= asked.pods)
    left = taken * others.runs - (0 if alike else asked.pods)
    # Each gang that is in one domain, as this one is, takes away one domain at most.
    full = gangs * others.runs - 1 if alike else 0
    return sum(spare[: len(spare) - full] if full <= len(spare) else ()) > left


def _peaks(light: Sequence[Competitor], names: Sequence[str], others: OtherPods) -> Iterator[tuple[str, int | None]]:
    competitors = Competitors(light)
    for name in names:
        peak = competitors.peak_load(name, others.concurrency).value
        yield name, None if peak is None else peak * others.runs


def _is_in_one(group: PodGroup, own: PodGroup, asked: PlaceRequest) -> bool:
    """Whether Kueue puts all of its pods into one domain of the same level."""
    wishes = topology_request(group.pod["metadata"].get("annotations", {}))
    is_queued = group.labels.get(QUEUE_LABEL) == own.labels.get(QUEUE_LABEL)
    return is_queued and wishes.get("required") == asked.level and "podSetGroupName" not in wishes


def _reaches(group: PodGroup, tree: TopologyTree) -> bool:
    """Whether its node selector leaves it a node of the flavor."""
    selector: Mapping[str, str] = group.pod["spec"].get("nodeSelector") or {}
    return any(
        all(node.labels.get(key) == value for key, value in selector.items())
        for leaf in tree.leaves.values()
        for node in leaf.nodes
    )


QUEUE_KINDS: Final = ("ClusterQueue", "LocalQueue", "ResourceFlavor", "Cohort")


class InactiveStatus(NamedTuple):
    """What a queue says of itself when it admits nothing."""

    reason: str
    """One word of Kueue's."""
    words: str


@dataclass(frozen=True)
class Setup:
    """The queues of a cluster as they meet the pods of some namespaces."""

    kueue: Kueue
    takes_pods_of: frozenset[str]
    """The namespaces whose workloads Kueue looks at."""
    takes_all: bool
    """Whether it also holds back pods that name no queue."""
    priorities: Mapping[str, int] | None
    """The WorkloadPriorityClasses; `None` when they are not known."""
    pending: tuple[Mapping[str, Any], ...]
    """Workloads that wait."""
    inactive: Mapping[tuple[str, str | None, str], InactiveStatus] = field(default_factory=dict)
    """Queues that say of themselves that they are not active, by kind, namespace and name."""
    knows_queues: bool = True
    """Whether the snapshot says which queues there are; where it does not, no pod is followed into one."""
    knows_flavors: bool = True
    """Whether the snapshot shows flavors; where it does not, nobody knows whether they have a topology."""
    integrations: frozenset[str] = frozenset()
    """The kinds that Kueue is configured for; empty: not known, and taken for all of them."""

    def queue_of(self, pod_group: PodGroup) -> str | None:
        """The LocalQueue that a pod of this pod_group goes to; empty when Kueue holds it back for want of one."""
        # What makes the pods: an object of a kind that Kueue is configured for, or nothing but pods.
        by = pod_group.pod["metadata"].get("annotations", {}).get(QUEUED_BY, "pod")
        integrates = not self.integrations or by in self.integrations
        if pod_group.namespace not in self.takes_pods_of or not self.knows_queues or not integrates:
            return None
        named = pod_group.labels.get(QUEUE_LABEL)
        if named is not None:
            return named
        if (pod_group.namespace, DEFAULT_QUEUE) in self.kueue.local_queues:
            return DEFAULT_QUEUE
        return "" if self.takes_all else None

    def workload(self, pod_group: PodGroup, queue: str) -> dict[str, Any]:
        """The Workload that Kueue makes of a pod or a gang: one pod set."""
        annotations = pod_group.pod["metadata"].get("annotations", {})
        topology = topology_request(annotations) if self.knows_flavors else {}
        template = {"spec": pod_group.pod["spec"]}
        pod_set = {"name": pod_group.pod_set, "count": pod_group.pods, "template": template}
        return {
            "metadata": {
                "name": pod_group.steps[0].replace(".", "-").replace("/", "-"),
                "namespace": pod_group.namespace,
            },
            "spec": {
                "queueName": queue,
                "priority": self.priority_of(pod_group) or 0,
                "podSets": [{**pod_set, **({"topologyRequest": topology} if topology else {})}],
            },
        }

    def workload_class(self, pod_group: PodGroup) -> str | None:
        """The WorkloadPriorityClass that its pods name."""
        return pod_group.labels.get(QUEUE_PRIORITY_LABEL)

    def priority_of(self, pod_group: PodGroup) -> int | None:
        """By its WorkloadPriorityClass, else by its PriorityClass; `None` when that class is not in the snapshot."""
        named = self.workload_class(pod_group)
        if named is not None:
            return (self.priorities or {}).get(named)
        value = pod_group.pod["spec"].get("priority")
        if value is None:
            return None if pod_group.pod["spec"].get("priorityClassName") else 0
        return int(value)


def read_setup(cluster: Cluster, *namespaces: str) -> Setup | None:
    """Kueue in a snapshot, for pods of these namespaces; `None` when there is none."""
    manifests = [item for kind in QUEUE_KINDS for item in cluster.of(kind)]
    if not manifests and not runs_kueue(cluster):
        return None
    try:
        configuration = _configuration(cluster)
        takes_all, integrations = _managed_kinds(configuration or {})
        workloads = cluster.bodies("Workload") or []
        return Setup(
            Kueue(
                flavors=_flavors(cluster),
                cluster_queues=_cluster_queues(cluster, namespaces),
                local_queues=[item.body for item in cluster.of("LocalQueue")],
                cohorts=[item.body for item in cluster.of("Cohort")],
                admitted=workloads,
                namespaces=[item.body for item in cluster.of("Namespace")],
                limit_ranges=[item.body for item in cluster.of("LimitRange")],
                runtime_classes=cluster.bodies("RuntimeClass"),
                admission_checks=cluster.bodies("AdmissionCheck"),
                topologies=cluster.bodies("Topology"),
                nodes=cluster.bodies("Node"),
                pods=cluster.bodies("Pod"),
                nodes_may_come=bool(makers_of_nodes(cluster)),
                configuration=configuration,
                reserved={item.name: read_reservations(item.body) for item in cluster.of("ClusterQueue")},
            ),
            frozenset(each for each in namespaces if _is_managed(configuration or {}, cluster, each)),
            takes_all,
            _priorities(cluster),
            tuple(each for each in workloads if not _is_settled(each)),
            dict(_inactive_statuses(cluster)),
            cluster.knows("LocalQueue") and cluster.knows("ClusterQueue"),
            cluster.knows("ResourceFlavor"),
            integrations,
        )
    except (ValueError, yaml.YAMLError) as refusal:
        owner = refusal.owner if isinstance(refusal, BadField) else None
        first = manifests[0].where if manifests else Where(cluster.source)
        where = next((item.where for item in manifests if f"{item.kind} {item.name}" == owner), first)
        raise GpuflowError(Finding("GF403", str(refusal), where, "fix the manifest")) from None


def _flavors(cluster: Cluster) -> list[Mapping[str, Any]]:
    """The flavors. Where none is known, bare ones: what is too much for these is too much for any."""
    known = cluster.bodies("ResourceFlavor")
    if known is not None:
        return known
    names = (flavor for queue in cluster.of("ClusterQueue") for flavor in read_cluster_queue(queue.body).flavors)
    return [{"metadata": {"name": name}, "spec": {}} for name in dict.fromkeys(names)]


def _cluster_queues(cluster: Cluster, namespaces: Sequence[str]) -> list[Mapping[str, Any]]:
    """The ClusterQueues. Where the labels of a namespace are not known, those that ask for some let it pass."""
    found = [item.body for item in cluster.of("ClusterQueue")]
    if all(shows_namespace(cluster, each) for each in namespaces):
        return found
    return [
        {**each, "spec": {**each["spec"], "namespaceSelector": {}}} if asks_namespace(each) else each for each in found
    ]


def _inactive_statuses(cluster: Cluster) -> Iterator[tuple[tuple[str, str | None, str], InactiveStatus]]:
    for item in (*cluster.of("ClusterQueue"), *cluster.of("LocalQueue")):
        status = read_map(item.body.get("status"), f"{item.kind} {item.name}: status")
        for each in read_maps(status.get("conditions"), f"{item.kind} {item.name}: status.conditions"):
            if each.get("type") == "Active" and each.get("status") == "False":
                words = str(each.get("message") or each.get("reason") or "no reason is given")
                home = item.namespace if item.kind == "LocalQueue" else None
                yield (item.kind, home, item.name), InactiveStatus(str(each.get("reason") or ""), words)


def _configuration(cluster: Cluster) -> Mapping[str, Any] | None:
    """Kueue's own configuration, as an object or in the ConfigMap that its manager reads; at most one may be there."""
    found = [item.body for item in cluster.of("Configuration") if item.group == "config.kueue.x-k8s.io"]
    for item in cluster.of("ConfigMap"):
        if (text := _entry(item)) is not None:
            document = yaml.safe_load(text)
            if not isinstance(document, Mapping):
                raise BadField(f"ConfigMap {item.name}", f"{KUEUE_SETTINGS_KEY} is not a Configuration")
            found.append(document)
    if len(found) > 1:
        raise ValueError(f"the snapshot holds {len(found)} configurations of Kueue; keep the one that it runs with")
    return found[0] if found else None


def _entry(item: Manifest) -> str | None:
    """The text under the manager's key, when it is Kueue's: other controllers use the same key."""
    data = item.body.get("data")
    text = data.get(KUEUE_SETTINGS_KEY) if isinstance(data, Mapping) else None
    return text if isinstance(text, str) and "config.kueue.x-k8s.io" in text else None


def _managed_kinds(configuration: Mapping[str, Any]) -> tuple[bool, frozenset[str]]:
    """Whether also what names no queue is Kueue's business, and which kinds are."""
    integrations = read_map(configuration.get("integrations"), "Configuration: integrations")
    frameworks = read_texts(integrations.get("frameworks"), "Configuration: integrations.frameworks")
    return configuration.get("manageJobsWithoutQueueName") is True, frozenset(frameworks)


def _is_managed(configuration: Mapping[str, Any], cluster: Cluster, namespace: str) -> bool:
    """Whether the namespace is Kueue's business."""
    selector = read_selector(
        configuration.get("managedJobsNamespaceSelector"), "Configuration: managedJobsNamespaceSelector"
    )
    labels = namespace_labels(cluster, namespace) or {NAME_LABEL: namespace}
    return selector is None or selector.matches(labels)


def _priorities(cluster: Cluster) -> dict[str, int] | None:
    classes = cluster.bodies("WorkloadPriorityClass")
    if classes is None:
        return None
    values = {str(each["metadata"]["name"]): each.get("value") for each in classes}
    wrong = sorted(name for name, value in values.items() if not isinstance(value, int))
    if wrong:
        raise BadField(f"WorkloadPriorityClass {wrong[0]}: value", f"must be a whole number, not {values[wrong[0]]!r}")
    return {name: value for name, value in values.items() if isinstance(value, int)}


def _is_settled(workload: Mapping[str, Any]) -> bool:
    """Whether a workload has its quota already, or is over."""
    status = workload.get("status")
    conditions = status.get("conditions") if isinstance(status, Mapping) else None
    return any(
        isinstance(each, Mapping) and each.get("type") in ("QuotaReserved", "Finished") and each.get("status") == "True"
        for each in conditions or ()
    )
