"""The pods of a pipeline on the nodes: for each pod group and each flavor assignment, whether there is always room.

Room is what bound pods leave, and what pending pods of others may take is taken off. Nodes that are
cordoned or unwell count for *never* only. Pods that cannot be on one node (host ports, disks, anti-affinity) take the
whole of an amount of it; what they ask of domains that have several nodes is in `domains`. A pod group that asks for
what is not certain there is *unknown* unless it is *never*. Of volumes only those count here that tie a pod to nodes
from the start; see `claims`.

The devices that pod groups of a pipeline claim, as amounts on the nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple

from gpuflow.checker.contention.bins import Bin
from gpuflow.checker.contention.concurrency import Competitor, Competitors, Concurrency, PeakLoad, largest_cap
from gpuflow.checker.contention.proof import Contention, Decision, decide_with_pending
from gpuflow.checker.dra.inventory import Inventory
from gpuflow.checker.dra.plan import CLAIMS, DevicePlan, Group
from gpuflow.checker.nodes.capacity import (
    NodePool,
    NodePools,
    can_share,
    gang_has_no_domain,
    hosts_not_closed,
    is_kept_out_for_good,
    most_per_node,
    offer,
    room,
    scarce_first,
)
from gpuflow.checker.nodes.filters import read_pending
from gpuflow.checker.nodes.node_info import Node, UnboundPod
from gpuflow.checker.nodes.pod_affinity import SpreadBalance, SpreadConstraint
from gpuflow.checker.pipeline.nodes import domains
from gpuflow.checker.pipeline.nodes.mounted_claims import MountedClaims
from gpuflow.checker.pipeline.nodes.pending import PendingPod, PendingPods
from gpuflow.checker.pipeline.pod_groups import PodGroup
from gpuflow.checker.pipeline.queues.requests import FlavorAssignment, sent_spec
from gpuflow.checker.report import Verdict
from gpuflow.cluster import Cluster
from gpuflow.cluster.model import once
from gpuflow.demands.gang_scheduling import DEFAULT_SCHEDULER
from gpuflow.kubernetes.labels import QUEUE_LABEL
from gpuflow.kubernetes.resources import read_map, read_maps, read_texts

PODS: Final = "pods"
APART: Final = f"{CLAIMS}apart"
"""The amount of a node that tells whether a pod is there with which another one cannot be."""
WHOLE: Final = 1000
"""All of that amount: what such a pod takes of it."""

Share = Callable[[PodGroup, FlavorAssignment, Mapping[str, int]], Mapping[str, tuple[str, str, int]]]
"""The most that a queue gives to a pod group with one flavor assignment: by resource, with queue and flavor."""


@dataclass(frozen=True, eq=False, slots=True)
class PoolRequest:
    """A pod group with what its flavors add to the pods, and the nodes that are eligible."""

    pod_group: PodGroup
    assignment: FlavorAssignment
    pod: UnboundPod
    pool: NodePool

    @property
    def competitor(self) -> Competitor:
        return Competitor(self.pod_group.steps, {**self.pod.requests, PODS: 1}, self.pod_group.pods)


class Apart(NamedTuple):
    """The pods that cannot be near one."""

    on_node: frozenset[PodGroup]
    in_domain: Mapping[str, Collection[PodGroup]]
    """By the label that tells the domains apart, which have several nodes."""


NOBODY: Final = Apart(frozenset(), {})
NO_LOAD: Final = PeakLoad(0, None, ())


@dataclass(frozen=True, eq=False, slots=True)
class NodeVerdict:
    """The verdict on one pool request, and what it rests on."""

    request: PoolRequest
    verdict: Verdict
    decision: Decision | None = None
    unknown: tuple[str, ...] = ()
    """What the scheduler also considers and is not modeled."""
    devices: tuple[str, ...] = ()
    """What is not known of the devices that it claims."""


class NodeVerdicts:
    """The verdicts on all pod groups on the nodes of a cluster, against each other and what runs there."""

    def __init__(
        self,
        node_pools: NodePools,
        pod_groups: Iterable[tuple[PodGroup, tuple[FlavorAssignment, ...]]],
        concurrency: Concurrency,
        runs: int,
        claims: MountedClaims | None = None,
        share: Share | None = None,
        pending_pods: Sequence[PendingPod] = (),
        avoided: Mapping[str, int] | None = None,
        most_sent: Mapping[tuple[str, str], Mapping[str, int]] | None = None,
        devices: Mapping[PodGroup, Group] | None = None,
    ) -> None:
        """`devices`: what pod groups claim, which is judged here as amounts of the nodes."""
        self.devices = devices or {}
        self.node_pools, self.concurrency, self.runs = node_pools, concurrency, runs
        self._share = share
        self._avoided = avoided or {}
        self._claims = claims
        self.pending = PendingPods(node_pools, pending_pods, PODS, most_sent)
        self.requests = [
            self._request(pod_group, assignment)
            for pod_group, assignments in pod_groups
            for assignment in assignments
            if assignment.labels is not None
        ]
        self._repelling = [request for request in self.requests if request.pod.affinity.apart]
        self._competitors: dict[tuple[NodePool, PodGroup | None], Competitors] = {}
        self._apart: dict[tuple[NodePool, PodGroup], Apart] = {}
        self._counted: dict[frozenset[PodGroup], Competitors] = {}
        self._enough: dict[PoolRequest, domains.Hosts] = {}
        self._open: dict[PoolRequest, domains.Openings | None] = {}
        self._ceilings: dict[NodePool, dict[str, int]] = {}
        self._tables: dict[tuple[NodePool, tuple[str, ...]], list[Bin]] = {}
        self.verdicts = [self._decide(request) for request in self.requests]

    def _request(self, pod_group: PodGroup, assignment: FlavorAssignment) -> PoolRequest:
        body = pod_group.pod
        if assignment.flavors:
            body = {**body, "spec": sent_spec(body["spec"], assignment)}
        claimed = self.devices.get(pod_group)
        if claimed is not None:
            spec = {key: value for key, value in body["spec"].items() if key != "resourceClaims"}
            body = {**body, "spec": spec}
        pod = read_pending(body) if self._claims is None else self._claims.read(body)
        if claimed is not None:
            pod = pod._replace(requests={**pod.requests, **claimed.adds})
        return PoolRequest(pod_group, assignment, pod, self.node_pools.pool(pod))

    def _decide(self, request: PoolRequest) -> NodeVerdict:
        claimed = self.devices.get(request.pod_group)
        if claimed is not None and claimed.ask.never is not None:
            return NodeVerdict(request, "never")
        if room(self.node_pools, request.pod, request.pod_group.pods).verdict == "never" or self._is_kept_out(request):
            return NodeVerdict(request, "never")
        unknown = tuple(dict.fromkeys(self._unknown(request)))
        open_devices = () if claimed is None else tuple(dict.fromkeys(claimed.unknown))
        if unknown or open_devices:
            return NodeVerdict(request, "unknown", unknown=unknown, devices=open_devices)
        decision = self.decide_among(request, self.concurrency)
        unmet = () if decision.verdict in ("always", "unknown") else tuple(self._unmet(request))
        if unmet:
            return NodeVerdict(request, "unknown", unknown=unmet)
        return NodeVerdict(request, decision.verdict, decision)

    def _unmet(self, request: PoolRequest) -> Iterator[str]:
        """What may not only make the pod wait: balance may be lost for good, a gang be divided, a node be too small."""
        pod, found = request.pod, self._openings(request)
        if found is not None and found.balance is not None:
            yield "its topology spread constraints"
        is_gang = request.pod_group.pods > 1
        if (
            found is not None
            and pod.affinity.together
            and (is_gang or any(map(self._large(request).isdisjoint, found.sets)))
        ):
            yield "its affinity to other pods"

    def decide_among(
        self, request: PoolRequest, concurrency: Concurrency, hosts: domains.Hosts | None = None
    ) -> Decision:
        """Decide when all pods that may run at the same time are on the nodes in the worst way.

        `hosts`: the only nodes that are left to the pod.
        """
        if not (request.pod.affinity.together or request.pod.constraints):
            return self._decide_on(request, concurrency, hosts)
        affinity = request.pod.affinity._replace(together=())
        plain = replace(request, pod=request.pod._replace(affinity=affinity, constraints=()))
        found, last = (
            self._openings(request),
            Decision("unknown", because="it is not certain which nodes are open to it"),
        )
        balanced = {} if found is None or found.balance is None else self._balanced_loads(request, found.balance)
        for place in () if found is None else found.sets:
            last = self._decide_on(plain, concurrency, place if hosts is None else place & hosts, balanced)
            if last.verdict != "always":
                break
        return last

    def _decide_on(
        self,
        request: PoolRequest,
        concurrency: Concurrency,
        hosts: domains.Hosts | None,
        balanced: Mapping[str, int] | None = None,
    ) -> Decision:
        """The same for a pod that asks nothing of others but to be apart. `balanced`: the most that is there."""
        asked = {**request.pod.requests, PODS: 1}
        competitors, ceilings = self.competitors(request), self.ceilings(request)
        for key, most in (balanced or {}).items():
            ceilings = {**ceilings, key: min(most, ceilings.get(key, most))}
        bins, apart = self._bins(request, hosts), self._kept_apart(request)
        if apart.on_node:
            asked[APART] = WHOLE if request.pod_group in apart.on_node else 1
            competitors = self.competitors(request, apart.on_node)
            bins = [replace(each, free={**each.free, APART: WHOLE}) for each in bins]
        avoided = (
            0 if request.pod_group.is_driver else max(self._avoided.get(step, 0) for step in request.pod_group.steps)
        )
        contention = Contention(request.pod_group.steps, asked, bins, competitors, PODS, ceilings, avoided=avoided)
        near = request.pool.hosts if hosts is None else request.pool.hosts & hosts
        pending = self.pending.on(near)
        decision = decide_with_pending(pending, contention, concurrency, self.runs)
        if decision.verdict == "always" and apart.in_domain:
            alive = {key: self._alive_beside(request, groups, concurrency) for key, groups in apart.in_domain.items()}
            limits = {key: each.value for key, each in alive.items()}
            open_hosts = frozenset(self.node_pools.open_hosts(request.pod)) & near
            closed = domains.closed_nodes(self.node_pools, request.pod, open_hosts, limits)
            decision = decide_with_pending(pending, replace(contention, closed=closed), concurrency, self.runs)
            if decision.verdict != "always" and not decision.pending:
                because = "; ".join(dict.fromkeys(each.because for each in alive.values() if each.because)) or None
                decision = Decision("unknown" if because else "may-queue", (APART,), because, apart=tuple(limits))
        repelling = self.pending.repelling_requests(request.pod) if decision.verdict == "always" else ()
        return Decision("may-queue", tuple(request.pod.requests), pending=repelling) if repelling else decision

    def _alive_beside(self, request: PoolRequest, groups: Iterable[PodGroup], concurrency: Concurrency) -> PeakLoad:
        """The most pods of these groups that are alive at once beside the pod, over all runs."""
        key = frozenset(groups)
        if key not in self._counted:
            self._counted[key] = Competitors(Competitor(each.steps, {PODS: 1}, each.pods) for each in key)
        members = self._counted[key]
        near = concurrency.concurrent_with(frozenset(request.pod_group.steps))
        here = members.concurrent_with(near).peak_load(PODS, concurrency)
        there = members.peak_load(PODS, concurrency) if self.runs > 1 else NO_LOAD
        if here.value is None or there.value is None:
            return here if here.value is None else there
        own = int(request.pod_group in key)
        return here._replace(value=max(here.value - own, 0) + (self.runs - 1) * there.value)

    def _openings(self, request: PoolRequest) -> domains.Openings | None:
        """The nodes that affinity and spread leave open in every order; `None` where that is not certain."""
        if request not in self._open:
            pod, node_pools = request.pod, self.node_pools
            found: domains.Openings | None = domains.Openings((request.pool.hosts,))
            if pod.affinity.together:
                neighbors = [domains.Neighbor(each.pod, partial(self._reach, each)) for each in self.requests]
                found = domains.open_to_follower(node_pools, pod, (*neighbors, *self._waiting_pods()))
            if pod.constraints and found is not None:
                spread = domains.open_to_spread(node_pools, pod, lambda each: self._most_counted(each, pod))
                found = found.meet(spread)
            self._open[request] = found
        return self._open[request]

    def _large(self, request: PoolRequest) -> domains.Hosts:
        """The nodes that take the pod when nothing else runs there than the pods that belong to them."""
        if request not in self._enough:
            pod, spaces = request.pod, self.node_pools.empty
            hosts = hosts_not_closed(self.node_pools, pod)
            self._enough[request] = frozenset(index for index in hosts if spaces[index].holds(pod.requests))
        return self._enough[request]

    def _reach(self, request: PoolRequest) -> domains.Hosts:
        return request.pool.hosts & self._large(request)

    def _ever(self, pod: UnboundPod) -> Sequence[int]:
        return self.node_pools.pool(pod).ever

    def _waiting_pods(self) -> Iterator[domains.Neighbor]:
        for each in self.pending.all_pods:
            yield domains.Neighbor(each.pod, partial(self._ever, each.pod), is_hidden=not each.pod.labels)

    def _most_counted(self, constraint: SpreadConstraint, pod: UnboundPod) -> int | None:
        """The most pods that a constraint may count and that are not there yet, the pod itself among them."""
        term = domains.term_of(constraint, pod)
        groups = {each.pod_group for each in self.requests if domains.may_mean(term, domains.Neighbor(each.pod))}
        members = Competitors(Competitor(each.steps, {PODS: 1}, each.pods) for each in groups)
        own = members.total(PODS, self.concurrency)
        waiting = sum(domains.may_mean(term, each) for each in self._waiting_pods())
        return None if own is None else own * self.runs + waiting

    def _balanced_loads(self, request: PoolRequest, balance: SpreadBalance) -> dict[str, int]:
        """The most of each resource in the domain with the fewest pods, with the pod: an even share of the pods that
        the constraint counts, and all others."""
        pod, term = request.pod, domains.term_of(balance.constraint, request.pod)
        most = self._most_counted(balance.constraint, pod)
        if most is None or term.selector is None or not term.selector.requirements:
            return {}
        share = (sum(balance.tallies.values()) + most - balance.own) // len(balance.tallies)
        counted: list[Competitor] = []
        others: list[Competitor] = []
        for each in self._neighbors(request):
            is_counted = term.matches(each.pod.namespace, each.pod.labels, {}) and term.is_certain_of(each.pod.labels)
            (counted if is_counted else others).append(each.competitor)
        largest, rest, found = Competitors(counted), Competitors(others), {}
        for key, amount in {**pod.requests, PODS: 1}.items():
            value, _ = self.worst_load(rest, key)
            if value is not None:
                found[key] = value + share * largest.largest_amounts((key,))[key] + amount
        return found

    def _repels(self, pod: UnboundPod, other: UnboundPod) -> bool:
        labels = self.node_pools.node_list.namespaces.get(other.namespace, {})
        return any(term.matches(other.namespace, other.labels, labels) for term in pod.affinity.apart)

    def _may_repel(self, pod: UnboundPod, other: UnboundPod) -> bool:
        """Whether it repels the other with labels that are not known, and not with those that are."""
        labels = self.node_pools.node_list.namespaces.get(other.namespace, {})
        return not self._repels(pod, other) and any(
            term.may_match(other.namespace, other.labels, labels) for term in pod.affinity.apart
        )

    def _kept_apart(self, request: PoolRequest) -> Apart:
        """The pods that cannot be on a node, or in a domain, with it."""
        pod = request.pod
        if not (pod.ports or pod.disks or pod.affinity.apart or self._repelling):
            return NOBODY
        if (key := (request.pool, request.pod_group)) not in self._apart:
            one_node, common = self.node_pools.one_node_keys, self.node_pools.common_keys
            on_node: set[PodGroup] = set()
            in_domain: dict[str, set[PodGroup]] = {}
            near = set(self._neighbors(request))
            for each in self.requests:
                keys = domains.keys_apart(pod, each.pod, self.node_pools.node_list)
                for shared in keys - one_node:
                    if each.pool.templates or not self._values(each, shared).isdisjoint(self._values(request, shared)):
                        in_domain.setdefault(shared, set()).add(each.pod_group)
                by_node = keys & one_node and common.isdisjoint(keys - one_node)  # else its domain has the node
                if each in near and (by_node or not can_share(pod, each.pod)):
                    on_node.add(each.pod_group)
            self._apart[key] = Apart(frozenset(on_node), in_domain)
        return self._apart[key]

    def _values(self, request: PoolRequest, key: str) -> set[str | None]:
        hosts = self.node_pools.node_list.hosts
        return {hosts[index].node.labels.get(key) for index in request.pool.hosts} - {None}

    def safe_parallelism(self, verdicts: Sequence[NodeVerdict]) -> int | None:
        """The largest cap on live pods with which all of these always find room at once."""
        requests = [each.request for each in verdicts if each.decision is not None]
        if self.runs != 1 or len(requests) < len(verdicts):
            return None
        return largest_cap(
            self.concurrency,
            lambda concurrency: all(self.decide_among(each, concurrency).verdict == "always" for each in requests),
        )

    def competitors(self, request: PoolRequest, apart: frozenset[PodGroup] = frozenset()) -> Competitors:
        """All pods that may be on a node of the request's pool, itself included. `apart`: those that take all of it."""
        key = request.pool, request.pod_group if apart else None
        if key not in self._competitors:
            by_group = {other.pod_group: other.competitor for other in self._neighbors(request)}
            takes = {request.pod_group: 1, **dict.fromkeys(apart, WHOLE)} if apart else {}
            self._competitors[key] = Competitors(
                replace(each, amounts={**each.amounts, APART: takes[group]}) if group in takes else each
                for group, each in by_group.items()
            )
        return self._competitors[key]

    def _neighbors(self, request: PoolRequest) -> list[PoolRequest]:
        """The requests, this one included, that may put pods on a node of its pool."""
        pool, own = request.pool, request.pool.hosts
        return [other for other in self.requests if other.pool is pool or not other.pool.hosts.isdisjoint(own)]

    def ceilings(self, request: PoolRequest) -> dict[str, int]:
        """The most of each resource that queues ever let onto the request's nodes; none where pods come past them."""
        key = request.pool
        if self._share is not None and key not in self._ceilings:
            near = [
                (other.pod.requests, self._share(other.pod_group, other.assignment, other.pod.requests))
                for other in self._neighbors(request)
            ]
            given: dict[str, dict[tuple[str, str], int]] = {}
            for _, shares in near:
                for resource, (queue, flavor, left) in shares.items():
                    given.setdefault(resource, {})[queue, flavor] = left
            for requests, shares in near:
                for resource in requests.keys() - shares.keys():
                    given.pop(resource, None)
            self._ceilings[key] = {resource: sum(parts.values()) for resource, parts in given.items()}
        return self._ceilings.get(key, {})

    def peak(self, request: PoolRequest, resource: str, *, beside: bool = False) -> tuple[int | None, tuple[str, ...]]:
        """The most of a resource that is alive at once on the request's nodes, and the steps that reach it.

        `beside`: of the steps that may be alive together with the request's own; the others are never in its way.
        """
        competitors = self.competitors(request)
        if beside and self.runs == 1:
            near = self.concurrency.concurrent_with(frozenset(request.pod_group.steps))
            competitors = competitors.concurrent_with(near)
        value, witness = self.worst_load(competitors, resource)
        most = self.ceilings(request).get(resource)
        return (value if most is None else most if value is None else min(value, most)), witness

    def short_resources(self, request: PoolRequest) -> tuple[str, ...]:
        """The resources of which no node of the pool has enough free now; all when it is not one of them alone."""
        hosts = request.pool.hosts
        if not hosts:
            return tuple(scarce_first(request.pod.requests)[:1])
        free = self.node_pools.free
        found = [
            name
            for name, amount in request.pod.requests.items()
            if all(free[index].free.get(name, 0) < amount for index in hosts)
        ]
        return tuple(found or request.pod.requests)

    def worst_load(self, competitors: Competitors, resource: str) -> tuple[int | None, tuple[str, ...]]:
        """The most of a resource that is alive at once, over all runs, and the steps that reach it."""
        value, _, witness = competitors.peak_load(resource, self.concurrency)
        return None if value is None else value * self.runs, witness

    def _bins(self, request: PoolRequest, only: frozenset[int] | None = None) -> list[Bin]:
        names = tuple(scarce_first(request.pod.requests))
        hosts = self.node_pools.open_hosts(request.pod)
        if only is not None:
            hosts = [index for index in hosts if index in only]
        if hosts is request.pool.now and (request.pool, names) in self._tables:
            return self._tables[request.pool, names]
        if hosts is request.pool.now:
            rows = ((row.free, row.slots, row.nodes) for row in request.pool.table("now", names).rows)
        else:
            free = self.node_pools.free
            alike = Counter(
                (tuple(free[index].free.get(name, 0) for name in names), free[index].slots) for index in hosts
            )
            rows = ((amounts, slots, nodes) for (amounts, slots), nodes in alike.items())
        bins = [Bin({**dict(zip(names, amounts, strict=True)), PODS: slots}, nodes) for amounts, slots, nodes in rows]
        if hosts is request.pool.now:
            self._tables[request.pool, names] = bins
        return bins

    def _unknown(self, request: PoolRequest) -> Iterator[str]:
        pod, node_list = request.pod, self.node_pools.node_list
        yield from node_list.unknown(pod)
        if (pod.affinity.together or pod.constraints) and self._openings(request) is None:
            yield "its affinity to other pods" if pod.affinity.together else "its topology spread constraints"
        yield from self._unknown_neighbors(pod)
        scheduler = request.pod_group.pod["spec"].get("schedulerName") or DEFAULT_SCHEDULER
        if scheduler != DEFAULT_SCHEDULER:
            yield f"how scheduler {scheduler} decides"

    def _unknown_neighbors(self, pod: UnboundPod) -> Iterator[str]:
        """What is not modeled of pods with which it cannot share a node."""
        near = self.requests if pod.affinity.apart else self._repelling
        if any(self._may_repel(pod, each.pod) or self._may_repel(each.pod, pod) for each in near):
            yield "which pods keep apart by labels that a controller writes"
        claims_node = (pod.ports or pod.disks or pod.affinity.apart) and self.node_pools.open_hosts(pod)
        for name, other, _ in self.pending.all_pods if claims_node else ():
            means = (term.namespace_selector or other.namespace in term.namespaces for term in pod.affinity.apart)
            is_hidden = not other.labels and any(means)  # queues do not say which labels their pods will have
            if is_hidden or not can_share(pod, other) or self._repels(pod, other):
                yield f"that {name} waits too, and may not share a node with it"
                return

    def _is_kept_out(self, request: PoolRequest) -> bool:
        """Whether no node ever takes it for a reason other than room."""
        if request.pool.templates:
            return False  # what new nodes carry is not known
        pod, pods = request.pod, request.pod_group.pods
        if is_kept_out_for_good(self.node_pools, pod):
            return True
        # Pods with the same terms follow as well, and a launcher is there before; any other that they mean may lead.
        others = (
            each
            for each in self.requests
            if each.pod.affinity.together != pod.affinity.together and not each.pod_group.is_launcher
        )
        near = (*(domains.Neighbor(each.pod, partial(self._ever, each.pod)) for each in others), *self._waiting_pods())
        led = domains.led_hosts(self.node_pools.node_list, pod, near if pods > 1 else ())
        return gang_has_no_domain(self.node_pools, pod, pods, tuple(led))

    def new_nodes(self, request: PoolRequest) -> tuple[Node, int] | None:
        """The node group that can hold more of these pods, and how many of its nodes the worst moment may need."""
        for node in sorted(request.pool.templates, key=lambda each: each.name):
            each = offer(node).holds(request.pod.requests, most_per_node(request.pod))
            if each and node.group_max:
                alive, _ = self.worst_load(
                    Competitors([Competitor(request.pod_group.steps, {PODS: 1}, request.pod_group.pods)]), PODS
                )
                alone = len(self.competitors(request).members) == 1
                here = self.node_pools.count_now(request.pod) if alone else 0
                missing = max((alive if alive is not None else node.group_max * each) - here, 1)
                return node, min(-(-missing // each), node.group_max)
        return None


ALIVE: Final = "pods"


def is_reported(resource: str) -> bool:
    """Whether an amount is one of a report: some only say that a claim can be allocated."""
    return not resource.startswith(CLAIMS)


def read_devices(
    cluster: Cluster,
    namespace: str,
    node_pools: NodePools,
    pod_groups: Sequence[PodGroup],
    pending_pods: Sequence[PendingPod],
    concurrency: Concurrency,
    runs: int,
) -> tuple[NodePools, dict[PodGroup, Group]]:
    """The nodes with what claims find there, and the devices that the pods of each group claim, as amounts."""

    def is_alone(numbers: Sequence[int]) -> bool:
        members = (pod_groups[number] for number in numbers)
        alive = Competitors(Competitor(each.steps, {ALIVE: 1}, each.pods) for each in members)
        value, _, _ = alive.peak_load(ALIVE, concurrency)
        return value == 1 and runs == 1

    claiming = _claiming_pods(cluster)
    waiting = [f"pod {each.name}" for each in pending_pods if each.name in claiming]
    waiting += _queued_workloads(cluster)
    pods = {number: (group.pod, read_pending(group.pod)) for number, group in enumerate(pod_groups)}
    plan = DevicePlan(Inventory(cluster, namespace), node_pools, pods, is_alone, waiting)
    for number, group in plan.groups.items():
        if pod_groups[number].labels.get(QUEUE_LABEL):
            group.unknown += _renamed_resources(cluster, group)
    return plan.node_pools, {pod_groups[number]: group for number, group in plan.groups.items()}


def _renamed_resources(cluster: Cluster, group: Group) -> list[str]:
    """The resources that Kueue charges under another name, because its configuration maps their classes."""
    mapped: set[str] = set()
    for item in cluster.of("Configuration"):
        resources = read_map(item.body.get("resources"), "resources")
        for index, each in enumerate(read_maps(resources.get("deviceClassMappings"), "resources.deviceClassMappings")):
            where = f"resources.deviceClassMappings[{index}].deviceClassNames"
            mapped.update(read_texts(each.get("deviceClassNames"), where))
    return [
        f"how Kueue charges {resource}: deviceClassMappings gives class {each.name} another name"
        for resource, each in group.ask.extended.items()
        if each.name in mapped
    ]


@once
def _claiming_pods(cluster: Cluster) -> set[str]:
    specs = ((item, read_map(item.body.get("spec"), "spec")) for item in cluster.of("Pod"))
    return {f"{item.namespace}/{item.name}" for item, spec in specs if spec.get("resourceClaims")}


def _queued_workloads(cluster: Cluster) -> list[str]:
    """Workloads that wait in a queue and whose pods will claim devices."""
    found = []
    for item in cluster.of("Workload"):
        status = read_map(item.body.get("status"), "status")
        pod_sets = read_maps(read_map(item.body.get("spec"), "spec").get("podSets"), "spec.podSets")
        specs = (read_map(read_map(each.get("template"), "template").get("spec"), "spec") for each in pod_sets)
        if status.get("admission") is None and any(each.get("resourceClaims") for each in specs):
            found.append(f"workload {item.namespace}/{item.name}")
    return found
