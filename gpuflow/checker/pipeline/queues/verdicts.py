"""The pods of a pipeline in their Kueue queues: admitted always, after waiting, or never, in Kueue's own words.

What a queue can still have is the least of what each level lets through: its own borrowing limit, that of every cohort
above it, and what the root has left. Steps of another queue count only on the levels that both queues share, and never
on quota that a lending limit keeps from all others. A workload may take a part of what it asks from such quota and
the rest from what is lent, so that one which is too large for a level can still use it up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from gpuflow.checker.contention.bins import Bin
from gpuflow.checker.contention.concurrency import Competitor, Competitors, Concurrency, largest_cap
from gpuflow.checker.contention.proof import Contention, Decision, decide, decision_with_pending
from gpuflow.checker.kueue import Blocker, blocker_ahead
from gpuflow.checker.kueue.reasons import UNLIMITED, FlavorResource, minus, plus
from gpuflow.checker.kueue.scheduler import FAIR_SHARING, check_decides
from gpuflow.checker.kueue.snapshot import NO_QUOTA, QuotaNode
from gpuflow.checker.pipeline.pod_groups import PodGroup
from gpuflow.checker.pipeline.queues.requests import (
    COUNT,
    UNQUEUED_ASSIGNMENT,
    FlavorAssignment,
    GroupRequest,
    PendingWorkloads,
    QueueRequest,
    flavor_assignments,
    queue_request,
)
from gpuflow.checker.pipeline.queues.setup import InactiveStatus, OtherPods, Setup, is_always_placed, placed_flavors
from gpuflow.checker.report import Verdict, worst_verdict
from gpuflow.core.errors import did_you_mean

SEEN_IN_QUEUES: Final = (
    "Stopped",
    "FlavorNotFound",
    "Terminating",
    "ClusterQueueDoesNotExist",
    "ClusterQueueIsInactive",
)
"""Reasons for being inactive that the queues and flavors of a snapshot would show as well."""
SEEN_IN_CHECKS: Final = ("AdmissionCheckNotFound", "AdmissionCheckInactive")


class QueueRefusal(NamedTuple):
    """Why Kueue takes no pod of a request: in our words, in its own, and what to do."""

    text: str
    kueue: str
    hint: str


@dataclass(frozen=True, slots=True)
class QueueVerdict:
    """The verdict on one queue request, and what it rests on."""

    request: QueueRequest
    verdict: Verdict
    decision: Decision | None = None
    """Whether the pipeline's own pods leave quota for it; `None` where other workloads already decide."""
    unknown: tuple[str, ...] = ()
    """What Kueue also considers and is not modeled."""
    ahead: Blocker | None = None
    """Who keeps it from being looked at."""
    assignments: tuple[FlavorAssignment, ...] = ()
    """Where it may be sent when it is admitted."""
    shut: QueueRefusal | None = None
    """Why it is never admitted, for another reason than quota."""
    lags: str | None = None
    """What a queue says against itself that its objects no longer confirm."""
    lacks_place: bool = False
    """Whether other pods can take the nodes that its topology leaves it, though quota is there."""


class QueueVerdicts:
    """The verdicts on all pod groups that go through queues, against each other and what the queues hold."""

    def __init__(self, setup: Setup, pod_groups: list[PodGroup], concurrency: Concurrency, runs: int) -> None:
        self.setup, self.concurrency, self.runs = setup, concurrency, runs
        self.kueue = setup.kueue
        self.requests: list[QueueRequest] = []
        for pod_group in pod_groups:
            queue = setup.queue_of(pod_group)
            if queue is not None:
                self.requests.append(queue_request(self.kueue, pod_group, queue, setup.workload(pod_group, queue)))
        self._request_of = {request.pod_group: request for request in self.requests}
        self._competitors: dict[tuple[QuotaNode, tuple[str, ...]], Competitors] = {}
        self._same_competitors: dict[object, Competitors] = {}
        """Most flavors and cohorts have the same ones, and what is found about them is kept with them."""
        self._limits: dict[tuple[QuotaNode, tuple[str, ...]], bool] = {}
        self._charged: dict[tuple[QuotaNode, FlavorResource, QuotaNode, int | None], int | None] = {}
        self._pending_workloads = self._pending_by_queue()
        self.pending = PendingWorkloads(self.kueue, self._pending_workloads)
        self._others = OtherPods([each for each in pod_groups if not each.is_driver], concurrency, runs)
        self.all = [self._decide(request) for request in self.requests]

    def assignments(self, pod_group: PodGroup) -> tuple[FlavorAssignment, ...]:
        """Where pods of this kind may be sent; nowhere when their queue never lets them go."""
        return next(
            (each.assignments for each in self.all if each.request.pod_group is pod_group), (UNQUEUED_ASSIGNMENT,)
        )

    def safe_parallelism(self, name: str) -> int | None:
        """The largest cap on live pods with which everything in a ClusterQueue is always admitted at once."""
        own = [each for each in self.all if each.request.cluster_queue and each.request.cluster_queue.name == name]
        if self.runs != 1 or any(each.decision is None or each.ahead for each in own):
            return None
        groups = [(each.request, group) for each in own if each.verdict != "always" for group in each.request.groups]
        return largest_cap(
            self.concurrency,
            lambda concurrency: all(
                self._decide_with_pending(*each, concurrency)[0].verdict == "always" for each in groups
            ),
        )

    def competitors_below(self, top: QuotaNode, flavors: tuple[str, ...]) -> Competitors:
        """All that may be charged for these flavors in the queues below a node."""
        key = top, flavors
        if key not in self._competitors:
            found = Competitors(self._competitors_below(top, flavors))
            same = tuple((each.steps, tuple(each.amounts.items())) for each in found.members)
            self._competitors[key] = self._same_competitors.setdefault(same, found)
        return self._competitors[key]

    def _competitors_below(self, top: QuotaNode, flavors: tuple[str, ...]) -> Iterator[Competitor]:
        for request in self.requests:
            if not request.is_hopeless and top in self.node_of(request).path():
                amounts = {
                    name: amount
                    for group in request.groups
                    if not set(flavors).isdisjoint(group.flavors)
                    for name, amount in group.asked.items()
                }
                if amounts:
                    yield Competitor(request.pod_group.steps, {**amounts, COUNT: 1})

    def _has_limits(self, root: QuotaNode, flavors: tuple[str, ...]) -> bool:
        """Whether limits on borrowing or lending make some quota of these flavors one that not all queues can have."""
        key = root, flavors
        if key not in self._limits:
            paths = (node.path() for node in self.kueue.snapshot.nodes.values())
            below = {each for path in paths if path[-1] is root for each in path}
            self._limits[key] = any(
                quota.borrowing is not None or quota.lending is not None
                for node in below
                for (flavor, _), quota in node.quotas.items()
                if flavor in flavors
            )
        return self._limits[key]

    def _most_charged(
        self, top: QuotaNode, key: FlavorResource, own: QuotaNode, concurrency: Concurrency
    ) -> int | None:
        """The most that the pipeline's steps are charged at a node above their queues; `None` when it is not known.

        What a lending limit keeps for another queue is used up first, and that is never charged to the cohort.
        """
        known = top, key, own, concurrency.cap
        if known not in self._charged:
            total: int | None = 0
            for name in {each.cluster_queue.name for each in self.requests if each.cluster_queue}:
                node = self.kueue.snapshot.nodes.get(name)
                if node is None or top not in node.path():
                    continue
                peak = self.competitors_below(node, key[:1]).peak_load(key[1], concurrency).value
                kept = 0 if node is own else node.local_available(key)
                total = None if total is None or peak is None else total + max(peak * self.runs - kept, 0)
            self._charged[known] = total
        return self._charged[known]

    def share(
        self, pod_group: PodGroup, assignment: FlavorAssignment, asked: Mapping[str, int]
    ) -> dict[str, tuple[str, str, int]]:
        """Of each resource that a pod is charged for exactly as it asks: queue, flavor and the most they give now.

        What the pods of a pipeline hold of a flavor is never more than its queue lets through.
        """
        request = self._request_of.get(pod_group)
        if request is None or request.cluster_queue is None:
            return {}
        found = {}
        for group in request.groups:
            flavors = [name for name in assignment.flavors if name in group.flavors]
            for resource in group.asked if len(flavors) == 1 else ():
                left = self.available(request, flavors[0], resource)
                if group.asked[resource] == asked.get(resource, 0) * pod_group.pods:
                    found[resource] = request.cluster_queue.name, flavors[0], left
        return found

    def available(self, request: QueueRequest, flavor: str, resource: str) -> int:
        """What the request's ClusterQueue can still have of a flavor, borrowing included."""
        return max(0, self.node_of(request).available((flavor, resource)))

    def usage(self, request: QueueRequest, flavor: str, resource: str) -> int:
        """What its queue holds of a flavor now."""
        return self.node_of(request).usage.get((flavor, resource), 0)

    def root_of(self, request: QueueRequest) -> QuotaNode:
        """The root cohort in which the request's ClusterQueue borrows and lends."""
        return self.node_of(request).path()[-1]

    def node_of(self, request: QueueRequest) -> QuotaNode:
        """The request's ClusterQueue."""
        assert request.cluster_queue is not None
        return self.kueue.snapshot.nodes[request.cluster_queue.name]

    def _decide(self, request: QueueRequest) -> QueueVerdict:
        if request.is_hopeless:
            return QueueVerdict(request, "never")
        shut = self._find_refusal(request)
        if shut is not None:
            return QueueVerdict(request, "never", shut=shut)
        unknown = tuple(self._unknown(request))
        decisions = [self._decide_with_pending(request, group, self.concurrency) for group in request.groups]
        assignments = flavor_assignments(self.kueue, [flavors for _, flavors in decisions])
        if assignments is None:
            unknown += (f"{len(request.groups)} resource groups have too many combinations of flavors to follow",)
        ahead = self._blocker_ahead(request)
        decision = _combine_decisions([answer for answer, _ in decisions]) if request.found.verdict == "fit" else None
        lags = next((own.words for _, own in self._own_statuses(request)), None)
        verdict: Verdict = "may-queue" if decision is None or ahead or lags else decision.verdict
        lacks_place = verdict == "always" and not self._is_always_placed(request)
        verdict = "may-queue" if lacks_place else verdict
        if unknown:
            verdict = "unknown"
        if ahead is not None and ahead.is_forever:
            verdict = "never"  # whatever else is to be said of it: nobody looks at it
        return QueueVerdict(
            request, verdict, decision, unknown, ahead, tuple(assignments or ()), lags=lags, lacks_place=lacks_place
        )

    def _is_always_placed(self, request: QueueRequest) -> bool:
        """Whether it always finds a place, if a topology places it: also when those who wait now come first."""
        flavors = list(dict.fromkeys(name for group in request.groups for name in group.flavors))
        asked = placed_flavors(self.kueue, self.setup.workload(request.pod_group, request.queue), flavors)
        if not asked:
            return True
        placed = {name for name, flavor in self.kueue.flavors.items() if flavor.topology is not None}
        waiting = any(not placed.isdisjoint(self.kueue.queues[name].flavors) for name in self._pending_workloads)
        return not waiting and is_always_placed(self.kueue, request.pod_group, asked, self._others)

    def _decide_with_pending(
        self, request: QueueRequest, group: GroupRequest, concurrency: Concurrency
    ) -> tuple[Decision, tuple[str, ...]]:
        """Decide one resource group: first among the pipeline's own pods, then with pending workloads as well."""
        answer, flavors = self._decide_group(request, group, concurrency, pending=False)
        pending = self.pending.requests_below(self.root_of(request), group.flavors)
        if answer.verdict != "always" or pending is None:
            return answer, flavors
        with_pending, flavors = self._decide_group(request, group, concurrency, pending=True)
        return (
            answer if with_pending.verdict == "always" else decision_with_pending(pending, with_pending, group.asked)
        ), flavors

    def _decide_group(
        self, request: QueueRequest, group: GroupRequest, concurrency: Concurrency, *, pending: bool
    ) -> tuple[Decision, tuple[str, ...]]:
        """Decide when all other pods hold quota in the worst way, and name the flavors that it may get.
        Where the first always has room, no other is looked at. `pending`: workloads that wait may hold some too."""
        if len(group.flavors) > 1:
            first = decide(self._contention(request, group, first=True, pending=pending), concurrency, self.runs)
            if first.verdict == "always":
                return first, group.flavors[:1]
            alone = replace(group, flavors=group.flavors[:1])
            if group.stops_when_borrowing and self._has_headroom(request, alone, concurrency, pending=pending):
                return Decision("always"), group.flavors[:1]
        answer = decide(self._contention(request, group, first=False, pending=pending), concurrency, self.runs)
        if answer.verdict != "always" and self._has_headroom(request, group, concurrency, pending=pending):
            answer = Decision("always")
        return answer, group.flavors

    def _contention(self, request: QueueRequest, group: GroupRequest, *, first: bool, pending: bool) -> Contention:
        """The request and the flavors of one group, with all requests that take quota from the same cohort tree.

        `first`: before the first flavor alone, in which only room that ends the search counts.
        """
        root, node = self.root_of(request), self.node_of(request)
        flavors = group.flavors[:1] if first or group.first_flavor_only else group.flavors
        own_quota_only = group.own_quota_only or (first and not group.stops_when_borrowing)
        return Contention(
            request.pod_group.steps,
            group.asked,
            [Bin({name: _room(node, (flavor, name), own_quota_only) for name in group.asked}) for flavor in flavors],
            self.competitors_below(root, flavors),
            COUNT,
            pending=self.pending.requests_below(root, flavors) if pending else None,
            reaches_outside=own_quota_only or self._has_limits(root, flavors),
        )

    def _has_headroom(
        self, request: QueueRequest, group: GroupRequest, concurrency: Concurrency, *, pending: bool
    ) -> bool:
        """Whether some flavor always has room because limits keep the steps of other queues away from it: of each
        resource no level refuses, or the queue's own quota does not."""
        leaf = self.node_of(request)
        if leaf.parent is None or group.own_quota_only:
            return False

        def holds(node: QuotaNode, key: FlavorResource, amount: int, room: int) -> bool:
            """One limit on the way up: all that can ever be charged there is within it, or what is leaves enough."""
            resource, most = key[1], self._most_charged(node, key, leaf, concurrency)
            waiting = self.pending.requests_below(node, key[:1]) if pending else None
            if most is not None and most + (0 if waiting is None else waiting.total(resource)) <= room:
                return True
            others, bins = self.competitors_below(node, key[:1]), [Bin({resource: room})]
            steps, asked = request.pod_group.steps, {resource: amount}
            contention = Contention(steps, asked, bins, others, COUNT, pending=waiting, reaches_outside=True)
            return decide(contention, concurrency, self.runs).verdict == "always"

        def has_room(key: FlavorResource, amount: int) -> bool:
            # Where the cohort has given out more than it has, Kueue takes the difference from what the queue keeps.
            kept = max(0, min(leaf.local_available(key), leaf.available(key)))
            levels = enumerate(leaf.path())
            return holds(leaf, key, amount, kept) or all(
                holds(node, key, amount, _most_from_level(leaf, height, key)) for height, node in levels
            )

        return any(
            all(has_room((flavor, resource), amount) for resource, amount in group.asked.items())
            for flavor in (group.flavors[:1] if group.first_flavor_only else group.flavors)
        )

    def _unknown(self, request: QueueRequest) -> Iterator[str]:
        # Whoever is preempted for it: it has no quota now, and would have some if others gave theirs back.
        is_short = request.found.verdict in ("wait", "preempt")
        yield from (words for words in request.found.unmodeled if words != FAIR_SHARING or not is_short)
        queue = request.cluster_queue
        assert queue is not None
        possible = {name for group in request.groups for name in group.flavors}
        for check in queue.checks:
            words = check_decides(check.name)
            if check.on_flavors & possible and words not in request.found.unmodeled:
                yield words

    def _find_refusal(self, request: QueueRequest) -> QueueRefusal | None:
        """Why Kueue takes none of these pods, though its quota could hold them."""
        named, known = self.setup.workload_class(request.pod_group), self.setup.priorities
        if named is not None and known is not None and named not in known:
            # Kueue makes no Workload then, and says so in its log only.
            missing = f'workloadpriorityclasses.kueue.x-k8s.io "{named}" not found'
            hint = did_you_mean(named, known) or "name a WorkloadPriorityClass that exists"
            return QueueRefusal(f"WorkloadPriorityClass {named} does not exist", missing, hint)
        for (kind, _, name), own in self._own_statuses(request):
            if not self._is_refuted(own.reason):
                text = f"{kind} {name} says that it is not active"
                return QueueRefusal(
                    text, own.words, "ask the owner of the queue; take a new snapshot when it is active again"
                )
        return None

    def _own_statuses(self, request: QueueRequest) -> Iterator[tuple[tuple[str, str | None, str], InactiveStatus]]:
        assert request.cluster_queue is not None
        own = "LocalQueue", request.pod_group.namespace, request.queue
        for key in (own, ("ClusterQueue", None, request.cluster_queue.name)):
            if key in self.setup.inactive:
                yield key, self.setup.inactive[key]

    def _is_refuted(self, reason: str) -> bool:
        """Whether the objects themselves contradict a queue that says why it is not active: it will see that soon."""
        known = self.kueue.known
        return reason in SEEN_IN_QUEUES or (
            (reason in SEEN_IN_CHECKS and known.admission_checks is not None)
            or (reason == "TopologyNotFound" and known.topologies is not None)
        )

    def _pending_by_queue(self) -> dict[str, list[Mapping[str, Any]]]:
        found: dict[str, list[Mapping[str, Any]]] = {}
        for workload in self.setup.pending:
            metadata, spec = workload.get("metadata") or {}, workload.get("spec") or {}
            home = metadata.get("namespace") or "default", spec.get("queueName") or ""
            local_queue = self.kueue.local_queues.get(home)
            if local_queue is not None and local_queue.cluster_queue in self.kueue.queues:
                found.setdefault(local_queue.cluster_queue, []).append(workload)
        return found

    def _blocker_ahead(self, request: QueueRequest) -> Blocker | None:
        """The workload ahead of it: in its own StrictFIFO queue, or at the head of one that shares its quota."""
        own = request.cluster_queue
        assert own is not None
        workload = self.setup.workload(request.pod_group, request.queue)
        found = blocker_ahead(self.kueue, workload, self._pending_workloads.get(own.name, ()))
        if found is not None:
            return found
        flavors = {name for group in request.groups for name in group.flavors}
        for name, waiting in sorted(self._pending_workloads.items()):
            queue = self.kueue.queues[name]
            if name == own.name or not queue.is_strict or flavors.isdisjoint(queue.flavors):
                continue
            if self.kueue.snapshot.nodes[name].path()[-1] is self.root_of(request):
                # A head that waits for quota of the cohort sets aside what there is, in every cycle.
                stuck = [(each, self.kueue.assign(each)) for each in waiting]
                for each, answer in stuck:
                    if answer.verdict in ("wait", "preempt"):
                        return Blocker(each["metadata"].get("namespace") or "default", each["metadata"]["name"], answer)
        return None


def _room(node: QuotaNode, key: FlavorResource, own_quota_only: bool) -> int:
    left = max(0, node.available(key))
    return min(left, node.subtree.get(key, 0) - node.usage.get(key, 0)) if own_quota_only else left


def _most_from_level(leaf: QuotaNode, height: int, key: FlavorResource) -> int:
    """What the level so far above a queue lets it have, with what the levels below keep for it."""
    path = leaf.path()
    node = path[height]
    kept = sum(each.local_available(key) for each in path[:height])
    if node.parent is None:
        return max(0, plus(kept, minus(node.subtree.get(key, 0), node.usage.get(key, 0))))
    limit = node.quotas.get(key, NO_QUOTA).borrowing
    if limit is None:
        return UNLIMITED
    local = node.local_quota(key)
    lent = minus(minus(node.subtree.get(key, 0), local), max(0, minus(node.usage.get(key, 0), local)))
    return max(0, plus(plus(kept, node.local_available(key)), plus(lent, limit)))


def _combine_decisions(answers: list[Decision]) -> Decision:
    """What several resource groups come to together."""
    because = [each.because for each in answers if each.because]
    return Decision(
        worst_verdict(each.verdict for each in answers),
        tuple(name for each in answers for name in each.resources),
        "; ".join(dict.fromkeys(because)) or None,
        tuple({one.name: one for each in answers for one in each.pending}.values()),
    )
