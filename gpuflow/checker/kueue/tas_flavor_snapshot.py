"""Topology-aware scheduling: the nodes of a cluster as the tree that a Topology makes of them, and where in it pods go.

The tree knows what is free in each of its leaves. The search says where the pods of a workload are put, or why they
cannot be. Pods that ask for slices of a topology are not followed here: `TopologyRequest.has_slices`.

Mirrors newTopologyTree, TASFlavorCache.snapshot and TASFlavorSnapshot.findTopologyAssignment in
sigs.k8s.io/kueue/pkg/cache/scheduler, Kueue v0.19.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from gpuflow.checker.kueue.flavors import (
    Flavor,
    FlavorConstraints,
    FlavorTaint,
    read_named,
    read_taint,
    untolerated_taint,
)
from gpuflow.checker.kueue.reasons import amounts_of
from gpuflow.kubernetes.admission.pod import Body, read_object, read_text
from gpuflow.kubernetes.labels import read_labels
from gpuflow.kubernetes.objects import PodTemplate, decode
from gpuflow.kubernetes.resources import BadField, read_map, read_maps, read_resource_list

HOSTNAME: Final = "kubernetes.io/hostname"
"""The level at which a domain is one node. Only there does Kueue look at taints, selectors and affinity."""
POD_ANNOTATIONS: Final = (
    "kueue.x-k8s.io/podset-required-topology",
    "kueue.x-k8s.io/podset-preferred-topology",
    "kueue.x-k8s.io/podset-unconstrained-topology",
    "kueue.x-k8s.io/podset-slice-required-topology",
    "kueue.x-k8s.io/podset-slice-required-topology-constraints",
)
"""Pods with one of these are counted with the workload that holds their place, and not by themselves."""
ENDED_PHASES: Final = ("Succeeded", "Failed")

Amounts = dict[str, int]
T = TypeVar("T")


class TopologyNode(NamedTuple):
    """A node that is ready and not cordoned: Kueue forgets all others."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[FlavorTaint, ...]
    capacity: Mapping[str, int]


class TopologyInventory(NamedTuple):
    """What topology-aware scheduling sees of a cluster."""

    levels: Mapping[str, tuple[str, ...]]
    """The labels of each Topology, from the highest level to the lowest."""
    nodes: Sequence[TopologyNode]
    busy: Mapping[str, Mapping[str, int]]
    """What pods without a place in a topology take of each node."""
    daemons: Mapping[str, Mapping[str, int]]
    """As far as it is taken for good."""
    waiting: int = 0
    """Pods that no node has yet, and that wait for nothing else."""


class Domain:
    """A place in a topology: a block, a rack, a node."""

    __slots__ = ("children", "free", "key", "node", "nodes", "used", "values")

    def __init__(self, values: tuple[str, ...], key: str, node: TopologyNode | None = None) -> None:
        self.values = values
        self.key = key
        """What names it among the domains of its level."""
        self.node = node
        """Of a leaf that is one node: the node."""
        self.nodes: list[TopologyNode] = []
        self.children: list[Domain] = []
        self.free: Amounts = {}
        """Of a leaf: what its nodes have, less what pods without a place take."""
        self.used: Amounts = {}
        """Of a leaf: what workloads with a place hold."""


class TopologyTree:
    """The domains of one flavor's nodes."""

    def __init__(self, topology: str, levels: tuple[str, ...], flavor: Flavor, inventory: TopologyInventory) -> None:
        self.topology = topology
        self.levels = levels
        self.tolerations = flavor.tolerations
        self.is_by_node = bool(levels) and levels[-1] == HOSTNAME
        self.leaves: dict[str, Domain] = {}
        self.by_level: list[list[Domain]] = [[] for _ in levels]
        self._inner: dict[tuple[str, ...], Domain] = {}
        for node in inventory.nodes:
            if _belongs_to_flavor(node, flavor, levels):
                leaf = self._add_leaf(node)
                leaf.nodes.append(node)
                add_to(leaf.free, node.capacity)
                add_to(leaf.free, inventory.busy.get(node.name, {}), -1)

    def _add_leaf(self, node: TopologyNode) -> Domain:
        values = tuple(node.labels[level] for level in self.levels)
        key = values[-1] if self.is_by_node else domain_key(values)
        if key not in self.leaves:
            leaf = Domain(values, key, node if self.is_by_node else None)
            self.leaves[key] = leaf
            self.by_level[len(values) - 1].append(leaf)
            self._add_to_parent(leaf)
        return self.leaves[key]

    def _add_to_parent(self, domain: Domain) -> None:
        above = domain.values[:-1]
        if not above:
            return
        parent = self._inner.get(above)
        if parent is None:
            parent = self._inner[above] = Domain(above, domain_key(above))
            self.by_level[len(above) - 1].append(parent)
            self._add_to_parent(parent)
        parent.children.append(domain)

    def update_tas_usage(self, key: str, amounts: Mapping[str, int], times: int = 1) -> None:
        """Pods of a workload take, or with -1 leave, a leaf; one whose nodes are gone is passed over."""
        if key in self.leaves:
            add_to(self.leaves[key].used, amounts, times)


def _belongs_to_flavor(node: TopologyNode, flavor: Flavor, levels: Iterable[str]) -> bool:
    labeled = all(node.labels.get(key, "") == value for key, value in flavor.labels.items())
    return labeled and all(level in node.labels for level in levels)


def domain_key(values: Sequence[str]) -> str:
    return ",".join(values)


def add_to(total: Amounts, amounts: Mapping[str, int], times: int = 1) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + times * amount


def read_inventory(
    levels: Mapping[str, tuple[str, ...]], nodes: Iterable[Body], pods: Iterable[Body]
) -> TopologyInventory:
    """`pods`: those of all namespaces."""
    busy: dict[str, Amounts] = {}
    daemons: dict[str, Amounts] = {}
    waiting = 0
    for manifest in pods:
        manifest = read_object(manifest, "Pod")
        spec = read_map(manifest.get("spec"), "Pod: spec")
        node = read_text(spec, "nodeName", "Pod: spec")
        if not _counts(manifest):
            continue
        if not node:
            waiting += not spec.get("schedulingGates")
            continue
        amounts = {**amounts_of(decode(PodTemplate, spec, "Pod: spec").requests()), "pods": 1}
        add_to(busy.setdefault(node, {}), amounts)
        if _is_daemon(manifest):
            add_to(daemons.setdefault(node, {}), amounts)
    return TopologyInventory(levels, [each for each in map(_read_node, nodes) if each], busy, daemons, waiting)


def _counts(pod: Body) -> bool:
    metadata = read_map(pod.get("metadata"), "Pod: metadata")
    annotations = read_map(metadata.get("annotations"), "Pod: metadata.annotations")
    phase = read_map(pod.get("status"), "Pod: status").get("phase")
    return phase not in ENDED_PHASES and not any(key in annotations for key in POD_ANNOTATIONS)


def _is_daemon(pod: Body) -> bool:
    metadata = read_map(pod.get("metadata"), "Pod: metadata")
    owners = read_maps(metadata.get("ownerReferences"), "Pod: metadata.ownerReferences")
    return any(owner.get("kind") == "DaemonSet" for owner in owners)


def read_topology(manifest: object) -> tuple[str, tuple[str, ...]]:
    """A Topology, and the labels of its levels."""
    body, name = read_named(manifest, "Topology")
    where = f"Topology {name}: spec"
    levels = read_maps(read_map(body.get("spec"), where).get("levels"), f"{where}.levels")
    labels = [read_text(each, "nodeLabel", f"{where}.levels[{index}]") for index, each in enumerate(levels)]
    if not labels or not all(labels) or len(set(labels)) < len(labels):
        raise BadField(f"{where}.levels", "one level at least is needed, each with a nodeLabel of its own")
    return name, tuple(label for label in labels if label)


def _read_node(manifest: object) -> TopologyNode | None:
    body, name = read_named(manifest, "Node")
    where = f"Node {name}"
    spec, status = read_map(body.get("spec"), where), read_map(body.get("status"), where)
    conditions = read_maps(status.get("conditions"), f"{where}: status.conditions")
    # A node in a file may have no conditions at all; a real one always has.
    is_ready = all(each.get("status") == "True" for each in conditions if each.get("type") == "Ready")
    if spec.get("unschedulable") is True or not is_ready:
        return None
    metadata = read_map(body.get("metadata"), f"{where}: metadata")
    taints = read_maps(spec.get("taints"), f"{where}: spec.taints")
    allocatable = status.get("allocatable", status.get("capacity"))
    return TopologyNode(
        name,
        read_labels(metadata.get("labels"), f"{where}: metadata.labels"),
        tuple(read_taint(each, f"{where}: spec.taints[{index}]") for index, each in enumerate(taints)),
        amounts_of(read_resource_list(allocatable, f"{where}: status.allocatable")),
    )


MAX_INT32 = 2**31 - 1

Places = tuple[tuple[tuple[str, ...], int], ...]
"""The values that name a domain, and the pods that go there. Where a level is the node, its name alone."""


class PlaceRequest(NamedTuple):
    """One pod set that is to be placed on the nodes of a flavor."""

    pod_set: str
    pods: int
    flavor: str
    group: str | None
    """Pod sets of one group go to one domain: a leader and its workers."""
    level: str | None
    """The label of the level; `None`: the lowest, because the queue knows nothing but topologies."""
    is_required: bool
    is_unconstrained: bool
    each: Mapping[str, int]
    """What one pod asks for."""
    constraints: FlavorConstraints


class NotPlaced(NamedTuple):
    """The pod set that has no place, and why, in Kueue's words."""

    pod_set: str
    reason: str


@dataclass(slots=True)
class DomainState:
    """How many pods a domain holds; later, how many it gets."""

    pods: int = 0
    with_leader: int = 0
    leaders: int = 0


def find_topology_assignments(
    trees: Mapping[str, TopologyTree], requests: Sequence[PlaceRequest], *, empty: bool = False
) -> dict[str, Places] | NotPlaced:
    """Places for all pod sets of a workload. `empty`: as if no other workload held a place."""
    found: dict[str, Places] = {}
    failure: NotPlaced | None = None
    shared: dict[str, Amounts] = {}
    for flavor in sorted({each.flavor for each in requests}):
        tree = trees[flavor]
        # Nodes may belong to several flavors; what one pod set takes there, the next one misses.
        taken = shared if tree.is_by_node else {}
        for group in by_group((each for each in requests if each.flavor == flavor), lambda each: each.group):
            answer = _Search(tree, taken, empty).run(group)
            if isinstance(answer, str):
                failure = failure or NotPlaced(group[0].pod_set, answer)
                break
            found |= answer
            for each in group:
                for values, count in answer.get(each.pod_set, ()):
                    add_to(taken.setdefault(",".join(values), {}), {**each.each, "pods": 1}, count)
    return failure or found


def fits(trees: Mapping[str, TopologyTree], requests: Sequence[PlaceRequest], placed: Mapping[str, Places]) -> bool:
    """The last look before anything is done. A pod that asks for nothing fits nowhere."""
    for each in requests:
        for values, count in placed.get(each.pod_set, ()):
            leaf = trees[each.flavor].leaves.get(",".join(values))
            left = {} if leaf is None else get_remaining_capacity(leaf, {}, empty=False)
            if leaf is None or count_in_with_limiting_resource(each.each, left)[0] < count:
                return False
    return True


def by_group(pod_sets: Iterable[T], group_of: Callable[[T], str | None]) -> list[list[T]]:
    """The pod sets that must share flavors and domains, by a common topology group; most stand alone."""
    groups: dict[str, list[T]] = {}
    for index, each in enumerate(pod_sets):
        name = group_of(each)
        groups.setdefault(str(index) if name is None else name, []).append(each)
    return list(groups.values())


def get_remaining_capacity(leaf: Domain, taken: Mapping[str, Amounts], *, empty: bool) -> Amounts:
    left = dict(leaf.free)
    if not empty:
        add_to(left, leaf.used, -1)
    add_to(left, taken.get(leaf.key, {}), -1)
    return left


def count_in_with_limiting_resource(each: Mapping[str, int], left: Mapping[str, int]) -> tuple[int, str]:
    """How many such pods fit, and the resource that allows no more."""

    def count(name: str, amount: int) -> int:
        return MAX_INT32 if amount == 0 else max(0, min(left.get(name, 0) // amount, MAX_INT32))

    return min(((count(name, amount), name) for name, amount in each.items()), default=(0, ""))


def domain_rooms(tree: TopologyTree, request: PlaceRequest, everywhere: Amounts) -> list[int]:
    """How many of its pods each domain of the level holds, when so much is taken of every leaf."""
    level = tree.levels[-1] if request.level is None else request.level
    if level not in tree.levels:
        return []
    search = _Search(tree, dict.fromkeys(tree.leaves, everywhere), empty=False)
    search.run([request])
    return [search.rooms_found[each] for each in tree.by_level[tree.levels.index(level)]]


class _ExclusionStats:
    """Why nodes do not count."""

    def __init__(self) -> None:
        self.nodes = 0
        self.counts: dict[str, int] = {}

    def add(self, reason: str) -> None:
        self.counts[reason] = self.counts.get(reason, 0) + 1

    def sentence(self) -> str:
        if not self.counts:
            return ""
        reasons = ", ".join(sorted(f"{reason}: {count}" for reason, count in self.counts.items()))
        return f". Total nodes: {self.nodes}; excluded: {reasons}"


class _Search:
    """The search for the domains of one pod set, or of a leader and its workers."""

    def __init__(self, tree: TopologyTree, taken: Mapping[str, Amounts], empty: bool) -> None:
        self.tree, self.taken, self.empty = tree, taken, empty
        self.rooms: dict[Domain, DomainState] = {}
        self.rooms_found: dict[Domain, int] = {}
        """How many pods each domain holds, before any gets its own."""
        self.excluded = _ExclusionStats()

    def run(self, group: Sequence[PlaceRequest]) -> dict[str, Places] | str:
        workers, leader = group[0], group[1] if len(group) > 1 else None
        if leader is not None and leader.pods > workers.pods:
            workers, leader = leader, workers
        self.request = workers
        self.leaders = 0 if leader is None else 1
        level = self.tree.levels[-1] if workers.level is None else workers.level
        if level not in self.tree.levels:
            return f"no requested topology level: {level}"
        self._fill_in_counts(workers, leader)
        self.rooms_found = {domain: room.pods for domain, room in self.rooms.items()}
        found = self._find_level_with_fit_domains(self.tree.levels.index(level))
        if isinstance(found, str):
            return found
        index, domains = found
        domains = self._update_counts_to_minimum(domains)
        for _ in range(index, len(self.tree.levels) - 1):
            domains = self._update_counts_to_minimum(
                self._sorted_domains([child for each in domains for child in each.children])
            )
        placed = {workers.pod_set: self._build_assignment([(each, self.rooms[each].pods) for each in domains])}
        if leader is not None:
            placed[leader.pod_set] = self._build_assignment([(each, self.rooms[each].leaders) for each in domains])
        return placed

    def _build_assignment(self, domains: Iterable[tuple[Domain, int]]) -> Places:
        start = len(self.tree.levels) - 1 if self.tree.is_by_node else 0
        ordered = sorted(domains, key=lambda each: each[0].values)
        return tuple((domain.values[start:], pods) for domain, pods in ordered if pods)

    # How many pods each domain holds -------------------------------------------------------------------------

    def _fill_in_counts(self, workers: PlaceRequest, leader: PlaceRequest | None) -> None:
        each = {**workers.each, "pods": workers.each.get("pods", 0) + 1}
        first = None if leader is None else {**leader.each, "pods": leader.each.get("pods", 0) + 1}
        for leaf in self.tree.leaves.values():
            self.rooms[leaf] = DomainState()
            self.excluded.nodes += 1
            if not self._excludes(leaf, workers.constraints):
                self._fill_leaf_counts(leaf, each, first)
        for domains in reversed(self.tree.by_level[:-1]):
            for domain in domains:
                self.rooms[domain] = self._sum_children([self.rooms[child] for child in domain.children])

    def _excludes(self, leaf: Domain, constraints: FlavorConstraints) -> bool:
        node = leaf.node
        if node is None:
            return False
        taint = untolerated_taint(node.taints, (*constraints.tolerations, *self.tree.tolerations))
        if taint is not None:
            text = f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
            self.excluded.add(f'taint "{text}"')
        elif any(node.labels.get(key) != value for key, value in constraints.affinity.selector.items()):
            self.excluded.add("nodeSelector")
        elif not constraints.affinity.matches_node(node.name, node.labels):
            self.excluded.add("affinity")
        else:
            return False
        return True

    def _fill_leaf_counts(self, leaf: Domain, each: Mapping[str, int], leader: Mapping[str, int] | None) -> None:
        left = get_remaining_capacity(leaf, self.taken, empty=self.empty)
        room = self.rooms[leaf]
        room.pods, limiting = count_in_with_limiting_resource(each, left)
        if room.pods == 0:
            self.excluded.add(f'resource "{limiting}"')
        if leader is not None and count_in_with_limiting_resource(leader, left)[0] > 0:
            room.leaders = 1
            add_to(left, leader, -1)
        room.with_leader = count_in_with_limiting_resource(each, left)[0]

    def _sum_children(self, children: Sequence[DomainState]) -> DomainState:
        pods = sum(each.pods for each in children)
        costs = [each.pods - each.with_leader for each in children if not self.leaders or each.leaders]
        leaders = max((each.leaders for each in children), default=0)
        return DomainState(pods, pods - min(costs) if costs else 0, leaders)

    # The level, and the domains of it that are enough --------------------------------------------------------

    def _find_level_with_fit_domains(self, index: int) -> tuple[int, list[Domain]] | str:
        request, rooms = self.request, self.rooms
        domains = self._sorted_domains(self.tree.by_level[index], with_leader=True)
        if not domains:
            return f"no topology domains at level: {self.tree.levels[index]}"
        top = domains[0]
        if not request.is_unconstrained and self._holds_all(top):
            top = self._find_best_fit_domain(domains, request.pods, self.leaders)
        if request.is_unconstrained:
            for each in domains:
                if self._holds_all(each):
                    return index, [each]
        if self._holds_all(top):
            return index, [top]
        if request.is_required:
            return self._not_fit_message(rooms[top].pods)
        if index > 0 and not request.is_unconstrained:
            return self._find_level_with_fit_domains(index - 1)
        chosen = self._collect_domains(domains)
        return chosen if isinstance(chosen, str) else (index, chosen)

    def _holds_all(self, domain: Domain) -> bool:
        room = self.rooms[domain]
        return room.with_leader >= self.request.pods and room.leaders >= self.leaders

    def _collect_domains(self, domains: Sequence[Domain]) -> list[Domain] | str:
        """Domains that hold all pods together: the leader's first."""
        rooms, chosen = self.rooms, list[Domain]()
        pods, leaders = self.request.pods, self.leaders
        domains = self._prioritize_leader_domain(domains)
        seen = 0
        while leaders > 0 and seen < len(domains) and rooms[domains[seen]].leaders > 0:
            domain = domains[seen]
            if not self.request.is_unconstrained and rooms[domain].with_leader >= pods:
                domain = self._find_best_fit_domain(domains[seen:], pods, leaders)
            chosen.append(domain)
            leaders -= rooms[domain].leaders
            pods -= rooms[domain].with_leader
            seen += 1
        if leaders > 0:
            return self._not_fit_message(self.leaders - leaders)
        rest = self._sorted_domains(domains[seen:])
        for number, domain in enumerate(rest):
            if pods <= 0:
                break
            if not self.request.is_unconstrained and rooms[domain].pods >= pods:
                domain = self._find_best_fit_domain(rest[number:], pods, 0)
            chosen.append(domain)
            pods -= rooms[domain].pods
        return self._not_fit_message(self.request.pods - pods) if pods > 0 else chosen

    def _not_fit_message(self, fitting: int) -> str:
        pods, topology = self.request.pods, self.tree.topology
        if fitting == 0:
            return f'topology "{topology}" doesn\'t allow to fit any of {pods} pod(s){self.excluded.sentence()}'
        return f'topology "{topology}" allows to fit only {fitting} out of {pods} pod(s){self.excluded.sentence()}'

    # Order, and as few domains as will do --------------------------------------------------------------------

    def _sorted_domains(self, domains: Iterable[Domain], *, with_leader: bool = False) -> list[Domain]:
        """The fullest first where a domain may be anywhere, else the emptiest."""
        sign = 1 if self.request.is_unconstrained else -1

        def key(domain: Domain) -> tuple[int, int, tuple[str, ...]]:
            room = self.rooms[domain]
            if with_leader:
                return -room.leaders, sign * room.with_leader, domain.values
            return 0, sign * room.pods, domain.values

        return sorted(domains, key=key)

    def _find_best_fit_domain(self, domains: Sequence[Domain], pods: int, leaders: int) -> Domain:
        """The domain that is just large enough."""

        def size(domain: Domain) -> int:
            return self.rooms[domain].with_leader if leaders else self.rooms[domain].pods

        enough = [each for each in domains if self.rooms[each].leaders >= leaders and size(each) >= pods]
        return min(enough, key=size, default=domains[0])

    def _prioritize_leader_domain(self, domains: Sequence[Domain]) -> Sequence[Domain]:
        """The first domain in which the leader takes no more than there is to spare."""
        if not self.leaders or len(domains) < 2:
            return domains
        spare = sum(self.rooms[each].pods for each in domains) - self.request.pods
        for each in domains:
            room = self.rooms[each]
            if room.leaders >= self.leaders and room.pods - room.with_leader <= spare:
                return [each, *(other for other in domains if other is not each)]
        return domains

    def _update_counts_to_minimum(self, domains: Sequence[Domain]) -> list[Domain]:
        """As few of the domains as hold all pods, with the pods that each gets. Empty where they hold too few."""
        domains = self._prioritize_leader_domain(domains)
        chosen: list[Domain] = []
        pods, leaders = self.request.pods, self.leaders
        for number, domain in enumerate(domains):
            room = self.rooms[domain]
            size = room.with_leader if leaders else room.pods
            if not self.request.is_unconstrained and size >= pods and room.leaders >= leaders:
                domain = self._find_best_fit_domain(domains[number:], pods, leaders)
                room = self.rooms[domain]
                size = room.with_leader if leaders else room.pods
            chosen.append(domain)
            is_last = size >= pods and room.leaders >= leaders
            room.pods, room.leaders = min(size, pods), min(room.leaders, leaders)
            if is_last:
                return chosen
            pods -= room.pods
            leaders -= room.leaders
        return []
