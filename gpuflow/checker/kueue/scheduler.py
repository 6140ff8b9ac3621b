"""What Kueue makes of a workload: `assign_flavors`, and `Kueue` for asking about many.

Scheduling cycles are what Kueue's scheduler does with a workload at the head of its queue; an `Assignment` is the
answer to the workload.

Mirrors Scheduler.nominate, Scheduler.getInitialAssignments and fits in sigs.k8s.io/kueue/pkg/scheduler, Kueue v0.19.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Literal, NamedTuple

from gpuflow.checker.kueue.flavor_assigner import (
    FlavorAssigner,
    PodSetAssignment,
    PodSetResources,
    PreemptionMode,
    Progress,
    Proposal,
    is_tas_requested,
)
from gpuflow.checker.kueue.flavors import read_flavor, read_named, topologies_of
from gpuflow.checker.kueue.preemption import Preemptor, get_targets
from gpuflow.checker.kueue.reasons import (
    FlavorReason,
    FlavorResource,
    InadmissibleReason,
    NoPlace,
    QuotaReason,
    Refusal,
    amount_text,
    clamp,
    plus,
)
from gpuflow.checker.kueue.requests import (
    ClusterFacts,
    LimitSummary,
    adjust_resources,
    admissibility_refusal,
    inactive_reason,
    pod_amounts,
    queue_refusal,
    read_configuration,
    summarize,
    workload_refusal,
)
from gpuflow.checker.kueue.snapshot import Snapshot, cyclic_cohorts
from gpuflow.checker.kueue.tas_flavor_snapshot import (
    NotPlaced,
    Places,
    TopologyInventory,
    find_topology_assignments,
    fits,
    read_inventory,
    read_topology,
)
from gpuflow.checker.kueue.workloads import (
    LONG_AGO,
    NOT_YET,
    ClusterQueue,
    Holder,
    Workload,
    by_name,
    read_cluster_queue,
    read_cohort,
    read_holder,
    read_local_queue,
    read_workload,
)
from gpuflow.kubernetes.admission.classes import RuntimeClass, read_runtime_class
from gpuflow.kubernetes.admission.limit_range import LimitRange, read_limit_range
from gpuflow.kubernetes.admission.pod import Body
from gpuflow.kubernetes.labels import REPLACED_SLICE, read_labels
from gpuflow.kubernetes.resources import read_map, read_maps


class Blocker(NamedTuple):
    """A workload that is ahead of another one and is not admitted."""

    namespace: str
    name: str
    assignment: Assignment

    @property
    def is_forever(self) -> bool:
        """Whether it is never admitted, so that only its removal lets others pass."""
        return self.assignment.verdict in ("never", "blocked")


def blocker_ahead(kueue: Kueue, workload: Mapping[str, Any], pending: Iterable[Mapping[str, Any]]) -> Blocker | None:
    """The pending workload that keeps this one from being looked at, in a StrictFIFO ClusterQueue. Those ahead that fit
    are taken to be admitted first. `None` when nothing holds it up, and always for a BestEffortFIFO queue."""
    queue = kueue.queue_of(read_workload(workload))
    if queue is None or not queue.is_strict:
        return None
    node = kueue.snapshot.nodes[queue.name]
    admitted: list[Mapping[FlavorResource, int]] = []
    try:
        for each in workloads_ahead(kueue, workload, pending):
            head = kueue.enter(each)
            if isinstance(head, Assignment):
                if head.blocked is InadmissibleReason.NAMESPACE:
                    continue  # The one refusal that does not keep a workload at the head.
                return Blocker(each.namespace, each.name, head)
            answer = kueue.decide(each, head, kueue.snapshot)
            if not answer.fits:
                return Blocker(each.namespace, each.name, answer)
            admitted.append(run_cycles(head, kueue.snapshot)[0].proposal.usage)
            node.add_usage(admitted[-1])
    finally:
        for usage in admitted:
            node.remove_usage(usage)
    return None


def workloads_ahead(kueue: Kueue, workload: Mapping[str, Any], pending: Iterable[Mapping[str, Any]]) -> list[Workload]:
    """The pending workloads that stand before this one in its ClusterQueue, in their order. Of one whose age is not
    known, all that is certain is that it was there before."""
    asked = read_workload(workload)
    queue, place = kueue.queue_of(asked), _place(asked, kueue, since=NOT_YET)
    waiting = (each for each in map(read_workload, pending) if each[:2] != asked[:2])
    others = (each for each in waiting if kueue.queue_of(each) is queue and not workload_refusal(each))
    places = {_place(each, kueue, since=LONG_AGO): each for each in others}
    return [each for at, each in sorted(places.items()) if at < place]


def _place(workload: Workload, kueue: Kueue, since: datetime) -> tuple[int, datetime, str, str, str]:
    """Where it stands: priority first, then how long it has waited; `since` when that is not known."""
    since = workload.queued_at(by_eviction=kueue.configuration.orders_by_eviction) or since
    return -workload.priority, since, workload.uid, workload.namespace, workload.name


AssignmentStatus = Literal["fit", "preempt", "wait", "never", "blocked"]


@dataclass(frozen=True)
class Assignment:
    """What Kueue would make of a workload in its next scheduling cycle.

    `fit`: quota is reserved. `preempt`: others are evicted for it. `wait`: it would fit if nothing else held quota.
    `never`: it would not fit even then. `blocked`: a queue is stopped, missing or inactive, or the workload itself is
    refused. `message` is the text of Kueue's QuotaReserved condition.

    What gpuflow does not model and Kueue would look at is listed in `unmodeled`; then the verdict is never `fit` or
    `preempt`, since quota alone does not decide.
    """

    verdict: AssignmentStatus
    message: str
    pod_sets: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """For each pod set the flavor of each resource, none where flavors could not be assigned. Pod sets after one
    that failed are not looked at, and not listed."""
    usage: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """What all pods of a pod set together are charged of those resources."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """How many pods of each pod set that is for: fewer than asked where a workload is admitted in part."""
    places: Mapping[str, Places] = field(default_factory=dict)
    """Of pod sets that are placed by topology: the domains, and how many pods go to each."""
    cluster_queue: str | None = None
    targets: tuple[str, ...] = ()
    """The workloads to be preempted, as `namespace/name`."""
    final_verdict: AssignmentStatus | None = None
    """The verdict once the scans that go on in later cycles have ended; they can differ from the first."""
    because: str | None = None
    """For `never`, what Kueue would say if nothing else held quota; for an inactive ClusterQueue, why it is."""
    unmodeled: tuple[str, ...] = ()
    reasons: tuple[FlavorReason, ...] = ()
    """What stands against the flavors, as `message` lists it; for `never`, on an empty cluster, as `because` does."""
    blocked: InadmissibleReason | None = None

    def names(self, resource: str) -> bool:
        """Whether a resource is among the reasons."""
        return any(isinstance(each, QuotaReason) and each.resource == resource for each in self.reasons)

    @property
    def fits(self) -> bool:
        return self.verdict == "fit"


MOST_CYCLES = 1000
"""Groups whose scans go round at different paces can take very long to come back to where they were."""
NO_LONGER_FITS = "Workload no longer fits after processing another workload"


class Head(NamedTuple):
    """A workload with what it asks for, and the queue it stands in."""

    asking: Preemptor
    queue: ClusterQueue
    demands: Sequence[PodSetResources]
    ignores_undeclared: bool


class Cycle(NamedTuple):
    """One attempt: what came of it, the text it left, and where the next one goes on."""

    outcome: Literal["fit", "preempt", "pending"]
    message: str
    proposal: Proposal
    targets: tuple[Holder, ...]
    progress: Progress
    lacked_quota: bool
    reasons: tuple[FlavorReason, ...] = ()
    """What the message lists."""

    @property
    def goes_on(self) -> bool:
        """Whether flavors are left for the next attempt."""
        return any(index != -1 for indices in self.progress for index in indices.values())


def run_cycles(head: Head, snapshot: Snapshot) -> list[Cycle]:
    """Attempts until nothing is left to try, or until they repeat themselves."""
    cycles: list[Cycle] = []
    seen: set[tuple[frozenset[tuple[str, int]], ...]] = set()
    progress: Progress = ()
    while len(cycles) < MOST_CYCLES:
        cycles.append(_attempt(head, snapshot, progress))
        progress = cycles[-1].progress
        state = tuple(frozenset(indices.items()) for indices in progress)
        if not cycles[-1].goes_on or state in seen:
            break
        seen.add(state)
    return cycles


def _attempt(head: Head, snapshot: Snapshot, progress: Progress) -> Cycle:
    search = FlavorAssigner(head.asking, snapshot, head.queue, progress, head.ignores_undeclared)
    proposal, targets = _get_initial_assignments(head, snapshot, search)
    message, reasons = proposal.message(), proposal.reasons
    outcome: Literal["fit", "preempt", "pending"] = "pending"
    progress = proposal.progress
    if proposal.mode is PreemptionMode.FIT or targets:
        if not _fits(proposal, targets, snapshot, head):
            message, reasons = NO_LONGER_FITS, ()
        elif targets:
            outcome, progress = "preempt", ()
            message += f". Pending the preemption of {len(targets)} workload(s)"
        else:
            outcome, progress = "fit", ()
            message = f"Quota reserved in ClusterQueue {head.queue.name}"
    return Cycle(outcome, message, proposal, tuple(targets), progress, search.lacked_quota, reasons)


def _get_initial_assignments(head: Head, snapshot: Snapshot, search: FlavorAssigner) -> tuple[Proposal, list[Holder]]:
    """Flavors for all pods; if that cannot be now, for as many as the workload can do with."""
    full, targets = _try(head.demands, head, snapshot, search)
    if full.mode is PreemptionMode.FIT or targets:
        return full, targets
    partial = _search_partial(head, snapshot, search)
    return partial or (full, [])


def _try(
    demands: Sequence[PodSetResources], head: Head, snapshot: Snapshot, search: FlavorAssigner
) -> tuple[Proposal, list[Holder]]:
    proposal = search.run(demands)
    if proposal.mode in (PreemptionMode.FIT, PreemptionMode.NO_FIT):
        return proposal, []
    wanted, needed = _total_requests_for(proposal, demands), proposal.flavor_resources_need_preemption
    return proposal, get_targets(head.asking, snapshot, needed, wanted, proposal.asked)


def _total_requests_for(proposal: Proposal, demands: Sequence[PodSetResources]) -> dict[FlavorResource, int]:
    """What victims are sought for: the pods' own requests. The resource `pods` is not among them."""
    wanted: dict[FlavorResource, int] = {}
    for found, demand in zip(proposal.found, demands, strict=True):
        for resource, amount in demand.amounts.items():
            choice = found.choices.get(resource)
            if amount and choice:
                key = choice.flavor, resource
                wanted[key] = plus(wanted.get(key, 0), amount)
    return wanted


def _search_partial(head: Head, snapshot: Snapshot, search: FlavorAssigner) -> tuple[Proposal, list[Holder]] | None:
    """The most pods that fit or can be made to fit, between the least counts and all, by bisection."""
    spare = [demand.pod_set.pods - demand.pod_set.fewest for demand in head.demands]
    total = sum(spare)
    if total <= 0:
        return None
    good: tuple[Proposal, list[Holder]] | None = None
    good_at = 0
    low, high = 0, total + 1
    while low < high:
        middle = (low + high) // 2
        demands = [
            demand.scaled_to(demand.pod_set.pods - less * middle // total)
            for demand, less in zip(head.demands, spare, strict=True)
        ]
        proposal, targets = _try(demands, head, snapshot, search)
        if proposal.mode is PreemptionMode.FIT or targets:
            good, good_at, high = (proposal, targets), middle, middle
        else:
            low = middle + 1
    return good if good_at == low else None


def _fits(proposal: Proposal, targets: Sequence[Holder], snapshot: Snapshot, head: Head) -> bool:
    """The last look before anything is done: all flavors together, with the victims gone."""
    node = snapshot.nodes[head.queue.name]
    for target in targets:
        snapshot.remove_workload(target)
    fits = all(max(0, node.available(key)) >= amount for key, amount in proposal.usage.items())
    fits = fits and _topology_fits(proposal, snapshot)
    for target in targets:
        snapshot.add_workload(target)
    return fits


def _topology_fits(proposal: Proposal, snapshot: Snapshot) -> bool:
    trees = snapshot.trees
    if trees is None or not proposal.asked:
        return True
    places = find_topology_assignments(trees, proposal.asked) if proposal.places is None else proposal.places
    return isinstance(places, NotPlaced) or fits(trees, proposal.asked, places)


MOST_BYTES = 32 * 1024
"""Kueue cuts condition messages here."""
FAIR_SHARING = "fair sharing decides who is preempted"


def check_decides(name: str) -> str:
    """What is not modeled of an AdmissionCheck."""
    return f"AdmissionCheck {name} decides after quota is reserved"


def assign_flavors(
    workload: Mapping[str, Any],
    *,
    flavors: Iterable[Body],
    cluster_queues: Iterable[Body],
    local_queues: Iterable[Body],
    cohorts: Iterable[Body] = (),
    admitted: Iterable[Body] = (),
    namespaces: Iterable[Body] = (),
    limit_ranges: Iterable[Body | LimitRange] = (),
    runtime_classes: Iterable[Body | RuntimeClass] | None = None,
    admission_checks: Iterable[Body] | None = None,
    topologies: Iterable[Body] | None = None,
    nodes: Iterable[Body] | None = None,
    pods: Iterable[Body] | None = None,
    configuration: Body | None = None,
) -> Assignment:
    """What Kueue 0.19 would do with this Workload in its next scheduling cycle, alone at the head of its queue.

    Arguments are manifests as plain maps, of v1beta1 or v1beta2. `admitted` are the workloads of the cluster: those
    that hold no quota are passed over. A namespace that is not given is known by its name alone. `None` for a kind
    means unknown; what depends on it is then listed in the answer's `unmodeled`. A workload without
    `creationTimestamp` does not exist yet: it is newer than every other. `ValueError` names what cannot be read.
    """
    kueue = Kueue(
        flavors=flavors,
        cluster_queues=cluster_queues,
        local_queues=local_queues,
        cohorts=cohorts,
        admitted=admitted,
        namespaces=namespaces,
        limit_ranges=limit_ranges,
        runtime_classes=runtime_classes,
        admission_checks=admission_checks,
        topologies=topologies,
        nodes=nodes,
        pods=pods,
        configuration=configuration,
    )
    return kueue.assign(workload)


class Kueue:
    """The queues of a cluster, read once to ask about many workloads. Asking changes nothing."""

    def __init__(
        self,
        *,
        flavors: Iterable[Body],
        cluster_queues: Iterable[Body],
        local_queues: Iterable[Body],
        cohorts: Iterable[Body] = (),
        admitted: Iterable[Body] = (),
        namespaces: Iterable[Body] = (),
        limit_ranges: Iterable[Body | LimitRange] = (),
        runtime_classes: Iterable[Body | RuntimeClass] | None = None,
        admission_checks: Iterable[Body] | None = None,
        topologies: Iterable[Body] | None = None,
        nodes: Iterable[Body] | None = None,
        pods: Iterable[Body] | None = None,
        nodes_may_come: bool = False,
        configuration: Body | None = None,
        reserved: Mapping[str, Mapping[FlavorResource, int]] | None = None,
    ) -> None:
        """`nodes_may_come`: something may add nodes, so that what has no place now may have one later."""
        self.reserved = reserved
        self.configuration = read_configuration(configuration)
        self.flavors = {flavor.name: flavor for flavor in map(read_flavor, flavors)}
        self.queues = by_name(map(read_cluster_queue, cluster_queues), "ClusterQueue")
        self.cohorts = by_name(map(read_cohort, cohorts), "Cohort")
        self.local_queues = {(each.namespace, each.name): each for each in map(read_local_queue, local_queues)}
        self.levels = None if topologies is None else dict(map(read_topology, topologies))
        self.known = ClusterFacts(
            self.flavors,
            cyclic_cohorts(self.cohorts),
            None if admission_checks is None else dict(map(_read_check, admission_checks)),
            None if self.levels is None else frozenset(self.levels),
        )
        self.knows_pods, self.nodes_may_come = pods is not None, nodes_may_come
        self.inventory: TopologyInventory | None = None
        if self.levels is not None and nodes is not None and any(flavor.topology for flavor in self.flavors.values()):
            self.inventory = read_inventory(self.levels, nodes, pods or ())
        self.namespaces = dict(map(_read_namespace, namespaces))
        self.limit_ranges = tuple(map(read_limit_range, limit_ranges))
        self.runtime_classes = (
            None if runtime_classes is None else {each.name: each for each in map(read_runtime_class, runtime_classes)}
        )
        by_eviction = self.configuration.orders_by_eviction
        holders = (read_holder(each, by_eviction=by_eviction) for each in admitted)
        self.holders = {holder.key: holder for holder in holders if holder}
        self._limits: dict[str, LimitSummary] = {}

    def assign(self, manifest: Mapping[str, Any]) -> Assignment:
        """What Kueue would make of this workload, as `assign_flavors` says."""
        workload = read_workload(manifest)
        head = self.enter(workload)
        if isinstance(head, Assignment):
            return head
        own = (workload.namespace, workload.name)
        if own not in self.holders:
            return self.decide(workload, head, self.snapshot)
        # One that already holds quota is asked about as if it did not.
        others = (holder for key, holder in self.holders.items() if key != own)
        return self.decide(workload, head, self._snapshot(others, None, self.inventory))

    def queue_of(self, workload: Workload) -> ClusterQueue | None:
        """The ClusterQueue in which the workload stands, if its way there is open."""
        local_queue = self.local_queues.get((workload.namespace, workload.queue))
        if local_queue is None or local_queue.is_stopped or local_queue.cluster_queue not in self._active_queues:
            return None
        return self.queues[local_queue.cluster_queue]

    def enter(self, workload: Workload) -> Head | Assignment:
        """The workload at the head of its queue, or why it is not queued."""
        local_queue = self.local_queues.get((workload.namespace, workload.queue))
        queue = self.queues.get(local_queue.cluster_queue) if local_queue else None
        refusal = workload_refusal(workload) or queue_refusal(workload.queue, local_queue, queue)
        if refusal:
            return _blocked_assignment(refusal, queue)
        assert queue is not None  # else there is a refusal
        inactive = inactive_reason(queue, self.known)
        if inactive:
            message = f"ClusterQueue {queue.name} is inactive"
            return _blocked_assignment(Refusal(InadmissibleReason.CLUSTER_QUEUE_INACTIVE, message), queue, inactive)
        limits = self._limit_summary(workload.namespace)
        classes = self.runtime_classes or {}
        templates = tuple(adjust_resources(pod_set.template, limits, classes) for pod_set in workload.pod_sets)
        refusal = admissibility_refusal(workload, queue, self._labels(workload.namespace), templates, limits)
        if refusal:
            return _blocked_assignment(refusal, queue)
        demands = []
        for pod_set, template in zip(workload.pod_sets, templates, strict=True):
            pods = workload.count_after_reclaim(pod_set.name, pod_set.pods)
            amounts = {name: clamp(each * pods) for name, each in pod_amounts(template, self.configuration).items()}
            demands.append(PodSetResources(pod_set._replace(template=template), pods, amounts))
        queued_at = workload.queued_at(by_eviction=self.configuration.orders_by_eviction) or NOT_YET
        asking = Preemptor(queue.name, workload.priority, queued_at, queue.preemption)
        return Head(asking, queue, demands, self.configuration.ignores_undeclared)

    def decide(self, workload: Workload, head: Head, snapshot: Snapshot) -> Assignment:
        """What the scheduler does with it, and whether it ever could when it does nothing."""
        cycles = run_cycles(head, snapshot)
        first, last = cycles[0], cycles[-1]
        alone = run_cycles(head, self.empty_snapshot) if "pending" in (first.outcome, last.outcome) else []
        is_open = len(alone) == MOST_CYCLES
        lacks_nodes = bool(alone) and any(isinstance(each, NoPlace) for each in alone[-1].reasons)
        is_open_later = lacks_nodes and self.nodes_may_come
        is_possible = is_open or is_open_later or (bool(alone) and alone[-1].outcome == "fit")
        verdict, final = _verdict(first, is_possible), _verdict(last, is_possible)
        unmodeled = tuple(self._unmodeled_notes(workload, head.queue, first))
        if is_open:
            unmodeled += (f"after {MOST_CYCLES} cycles the scans of flavors still go on",)
        if is_open_later:
            unmodeled += ("there are too few nodes for its topology now, and nodes may be added",)
        if unmodeled:
            verdict, final = _downgrade_verdict(verdict), _downgrade_verdict(final)
        found = {each.demand.pod_set.name: each for each in first.proposal.found}
        flavors = {
            name: {key: each.choices[key].flavor for key in sorted(each.choices)} for name, each in found.items()
        }
        return Assignment(
            verdict,
            _truncate_condition_message(first.message),
            flavors,
            {name: _usage(each) for name, each in found.items()},
            {name: each.demand.pods for name, each in found.items()},
            first.proposal.places or {},
            head.queue.name,
            tuple(sorted("/".join(target.key) for target in first.targets)),
            final,
            _truncate_condition_message(alone[0].message) if verdict == "never" else None,
            unmodeled,
            alone[0].reasons if verdict == "never" else first.reasons,
        )

    @cached_property
    def snapshot(self) -> Snapshot:
        return self._snapshot(self.holders.values(), self.reserved, self.inventory)

    @cached_property
    def empty_snapshot(self) -> Snapshot:
        """The same queues with nothing admitted."""
        inventory = self.inventory
        return self._snapshot((), None, inventory and inventory._replace(busy=inventory.daemons))

    def _snapshot(
        self,
        holders: Iterable[Holder],
        reserved: Mapping[str, Mapping[FlavorResource, int]] | None,
        inventory: TopologyInventory | None,
    ) -> Snapshot:
        return Snapshot(
            self.flavors, self.queues, self.cohorts, self._active_queues, holders, reserved, self.levels, inventory
        )

    @cached_property
    def _active_queues(self) -> frozenset[str]:
        return frozenset(name for name, queue in self.queues.items() if not inactive_reason(queue, self.known))

    def _labels(self, namespace: str) -> Mapping[str, str]:
        # The API server labels every namespace with its name.
        return {**self.namespaces.get(namespace, {}), "kubernetes.io/metadata.name": namespace}

    def _limit_summary(self, namespace: str) -> LimitSummary:
        if namespace not in self._limits:
            own = (each for each in self.limit_ranges if each.namespace in (None, namespace))
            self._limits[namespace] = summarize(own)
        return self._limits[namespace]

    def _unmodeled_notes(self, workload: Workload, queue: ClusterQueue, cycle: Cycle) -> Iterable[str]:
        """What Kueue would look at besides, and gpuflow does not."""
        yield from self.configuration.unmodeled
        if self.configuration.fair_sharing and cycle.lacked_quota:
            yield FAIR_SHARING
        if REPLACED_SLICE in workload.annotations:
            yield "a workload slice that replaces another is charged for the difference only"
        for pod_set in workload.pod_sets:
            if pod_set.claims:
                yield f"pod set {pod_set.name}: devices of resource claim templates are charged too"
            runtime = pod_set.template.runtime_class_name
            if runtime and not pod_set.template.overhead and self.runtime_classes is None:
                yield f"pod set {pod_set.name}: the overhead of RuntimeClass {runtime} is not known"
        yield from self._topology_notes(workload, queue)
        assigned = {choice.flavor for found in cycle.proposal.found for choice in found.choices.values()}
        for check in queue.checks:
            if self.known.admission_checks is None or not check.on_flavors or check.on_flavors & assigned:
                yield check_decides(check.name)

    def _topology_notes(self, workload: Workload, queue: ClusterQueue) -> Iterable[str]:
        topologies = topologies_of(self.flavors, queue.flavors)
        placed = [each.name for each in workload.pod_sets if topologies and is_tas_requested(each, queue, topologies)]
        if placed:
            yield from self._place_notes(workload, placed)
        elif topologies and self.known.topologies is None:
            yield f"ClusterQueue {queue.name} is active only if {', '.join(sorted(set(topologies.values())))} exists"

    def _place_notes(self, workload: Workload, placed: list[str]) -> Iterable[str]:
        if self.inventory is None:
            yield f"topology-aware scheduling places the pods of {', '.join(placed)} on nodes"
            return
        yield from self.configuration.unmodeled_places
        for each in workload.pod_sets:
            if each.topology.has_slices:
                yield f"pod set {each.name}: topology-aware scheduling places slices of its pods"
        if not self.knows_pods:
            yield "topology-aware scheduling looks at the pods that run on the nodes, and they are not known"


def _blocked_assignment(refusal: Refusal, queue: ClusterQueue | None, because: str | None = None) -> Assignment:
    name = queue and queue.name
    return Assignment("blocked", refusal.sentence(), cluster_queue=name, because=because, blocked=refusal.reason)


def _verdict(cycle: Cycle, is_possible: bool) -> AssignmentStatus:
    if cycle.outcome != "pending":
        return cycle.outcome
    return "wait" if is_possible else "never"


def _downgrade_verdict(verdict: AssignmentStatus) -> AssignmentStatus:
    return "wait" if verdict in ("fit", "preempt") else verdict


def _usage(found: PodSetAssignment) -> dict[str, str]:
    amounts = found.demand.amounts
    return {name: amount_text(name, amounts.get(name, 0), is_quota=False) for name in sorted(found.choices)}


def _truncate_condition_message(message: str) -> str:
    encoded = message.encode()
    return message if len(encoded) <= MOST_BYTES else f"{encoded[: MOST_BYTES - 4].decode(errors='ignore')} ..."


def _read_namespace(manifest: object) -> tuple[str, dict[str, str]]:
    body, name = read_named(manifest, "Namespace")
    metadata = read_map(body.get("metadata"), "Namespace metadata")
    return name, read_labels(metadata.get("labels"), f"Namespace {name}: metadata.labels")


def _read_check(manifest: object) -> tuple[str, bool]:
    """An AdmissionCheck and whether it is active; one without status, as in a repository, is taken to be."""
    body, name = read_named(manifest, "AdmissionCheck")
    status = read_map(body.get("status"), f"AdmissionCheck {name}: status")
    conditions = read_maps(status.get("conditions"), f"AdmissionCheck {name}: status.conditions")
    states = [each.get("status") == "True" for each in conditions if each.get("type") == "Active"]
    return name, all(states)
