"""The pods of a pipeline in their Kueue queues: admitted always, after waiting, or never, in Kueue's own words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpuflow.checker.contention.competitors import Gathering
from gpuflow.checker.contention.concurrency import Crowd, largest_cap
from gpuflow.checker.contention.proof import Contest, Settled, lost_to, settle
from gpuflow.checker.kueue import Ahead, blocker_ahead
from gpuflow.checker.kueue.tree import Node
from gpuflow.checker.pipeline.pod_groups import Kind
from gpuflow.checker.pipeline.queues.cohort_limits import shelters
from gpuflow.checker.pipeline.queues.pending import WaitingLine
from gpuflow.checker.pipeline.queues.requests import (
    DIRECT,
    Group,
    Lane,
    Route,
    Waiting,
    contest_of,
    gathering_of,
    lane_of,
    nobody,
    root_of,
    routes_of,
)
from gpuflow.checker.pipeline.queues.setup import Setup
from gpuflow.checker.report import Verdict, worst


@dataclass(frozen=True, slots=True)
class Standing:
    """A lane with its verdict and what it rests on."""

    lane: Lane
    verdict: Verdict
    settled: Settled | None = None
    """How it fares among the pipeline's other pods, where only they can be in its way."""
    unknown: tuple[str, ...] = ()
    """What Kueue also looks at and could not be weighed."""
    ahead: Ahead | None = None
    """Who keeps it from being looked at."""
    routes: tuple[Route, ...] = ()
    """Where it may be sent when it is admitted."""


class Standings:
    """All kinds of pods that go through queues, judged against each other and what the queues hold."""

    def __init__(self, setup: Setup, kinds: list[Kind], crowd: Crowd, runs: int) -> None:
        self.setup, self.crowd, self.runs = setup, crowd, runs
        self.kueue = setup.kueue
        self.lanes: list[Lane] = []
        for kind in kinds:
            queue = setup.queue_of(kind)
            if queue is not None:
                self.lanes.append(lane_of(self.kueue, kind, queue, setup.workload(kind, queue)))
        self._lane_of = {id(lane.kind): lane for lane in self.lanes}
        self._gatherings: dict[tuple[int, tuple[str, ...]], Gathering] = {}
        self._waiting = self._pending_by_queue()
        self.line = WaitingLine(self.kueue, self._waiting)
        self.all = [self._standing(lane) for lane in self.lanes]

    def routes(self, kind: Kind) -> tuple[Route, ...]:
        """Where pods of this kind may be sent; nowhere when their queue never lets them go."""
        return next((each.routes for each in self.all if each.lane.kind is kind), (DIRECT,))

    def safe_parallelism(self, name: str) -> int | None:
        """The largest cap on live pods with which everything in a ClusterQueue is always admitted at once."""
        own = [each for each in self.all if each.lane.cluster_queue and each.lane.cluster_queue.name == name]
        if self.runs != 1 or any(each.settled is None or each.ahead for each in own):
            return None
        lanes = [each.lane for each in own if each.verdict != "always"]
        return largest_cap(self.crowd, lambda crowd: all(self._is_always(lane, crowd) for lane in lanes))

    def gather(self, lane: Lane, flavors: tuple[str, ...]) -> Gathering:
        """All that may be charged for these flavors in the tree of the lane's queue."""
        return self.below(root_of(self.kueue, lane), flavors)

    def own(self, lane: Lane, flavors: tuple[str, ...]) -> Gathering:
        """All that may be charged for these flavors in the lane's queue itself."""
        return self.below(self._node(lane), flavors)

    def below(self, top: Node, flavors: tuple[str, ...]) -> Gathering:
        """All that may be charged for these flavors in the queues below a node."""
        key = id(top), flavors
        if key not in self._gatherings:
            self._gatherings[key] = gathering_of(self.kueue, top, flavors, self.lanes)
        return self._gatherings[key]

    def share(self, kind: Kind, route: Route, asked: Mapping[str, int]) -> dict[str, tuple[str, str, int]]:
        """Of each resource that a pod is charged for exactly as it asks: queue, flavor and the most they give now.

        What the pods of a pipeline hold of a flavor is never more than its queue lets through.
        """
        lane = self._lane_of.get(id(kind))
        if lane is None or lane.cluster_queue is None:
            return {}
        found = {}
        for group in lane.groups:
            flavors = [name for name in route.flavors if name in group.flavors]
            for resource in group.asked if len(flavors) == 1 else ():
                left = self.left(lane, flavors[0], resource)
                if group.asked[resource] == asked.get(resource, 0) * kind.pods:
                    found[resource] = lane.cluster_queue.name, flavors[0], left
        return found

    def left(self, lane: Lane, flavor: str, resource: str) -> int:
        """What the lane's queue can still have of a flavor, borrowing included."""
        return max(0, self._node(lane).available((flavor, resource)))

    def used(self, lane: Lane, flavor: str, resource: str) -> int:
        """What its queue holds of a flavor now."""
        return self._node(lane).usage.get((flavor, resource), 0)

    def _node(self, lane: Lane) -> Node:
        assert lane.cluster_queue is not None
        return self.kueue.snapshot.nodes[lane.cluster_queue.name]

    def _standing(self, lane: Lane) -> Standing:
        if lane.is_hopeless:
            return Standing(lane, "never")
        unknown = tuple(self._unknown(lane))
        fares = [self._fares(lane, group, self.crowd) for group in lane.groups]
        routes = routes_of(self.kueue, [flavors for _, flavors in fares])
        if routes is None:
            unknown += (f"{len(lane.groups)} resource groups have too many combinations of flavors to follow",)
        ahead = self._ahead(lane)
        settled = _summed([answer for answer, _ in fares]) if lane.found.verdict == "fit" else None
        verdict: Verdict = "may-queue" if settled is None or ahead else settled.verdict
        if unknown:
            verdict = "unknown"
        return Standing(lane, verdict, settled, unknown, ahead, tuple(routes or ()))

    def _fares(self, lane: Lane, group: Group, crowd: Crowd) -> tuple[Settled, tuple[str, ...]]:
        """How the lane fares in one group, first among the pipeline's own pods, then beside workloads that wait too."""
        answer, flavors = self._fare(lane, group, crowd, nobody)
        rivals = self.line.rivals(root_of(self.kueue, lane), group.flavors)
        if answer.verdict != "always" or rivals is None:
            return answer, flavors
        beaten, flavors = self._fare(lane, group, crowd, self.line.rivals)
        return (answer if beaten.verdict == "always" else lost_to(rivals, beaten, group.asked)), flavors

    def _fare(self, lane: Lane, group: Group, crowd: Crowd, waiting: Waiting) -> tuple[Settled, tuple[str, ...]]:
        """How it fares when everything beside it holds quota as badly as it can, and the flavors that it may get.
        Where the first always has room, no other is looked at."""
        if len(group.flavors) > 1:
            first = settle(contest_of(self.kueue, lane, group, self.gather, waiting, first=True), crowd, self.runs)
            if first.verdict == "always":
                return first, group.flavors[:1]
        answer = settle(contest_of(self.kueue, lane, group, self.gather, waiting), crowd, self.runs)
        if answer.verdict != "always" and self._is_sheltered(lane, group, crowd, waiting):
            answer = Settled("always")
        return answer, group.flavors

    def _is_sheltered(self, lane: Lane, group: Group, crowd: Crowd, waiting: Waiting) -> bool:
        """Whether some flavor always has room because limits keep the steps of other queues away from it."""

        def holds(contest: Contest) -> bool:
            return settle(contest, crowd, self.runs).verdict == "always"

        return any(
            all(holds(each.own) or all(map(holds, each.levels)) for each in resources)
            for resources in shelters(self.kueue, lane, group, self.below, waiting)
        )

    def _is_always(self, lane: Lane, crowd: Crowd) -> bool:
        return all(self._fares(lane, group, crowd)[0].verdict == "always" for group in lane.groups)

    def _unknown(self, lane: Lane) -> Iterator[str]:
        yield from lane.found.unmodelled
        queue = lane.cluster_queue
        assert queue is not None
        for kind, name in (("LocalQueue", lane.queue), ("ClusterQueue", queue.name)):
            if (kind, name) in self.setup.inactive:
                yield f"why {kind} {name} says that it is not active: {self.setup.inactive[kind, name]}"
        possible = {name for group in lane.groups for name in group.flavors}
        for check in queue.checks:
            words = f"AdmissionCheck {check.name} decides after quota is reserved"
            if check.flavors & possible and words not in lane.found.unmodelled:
                yield words
        named = self.setup.workload_class(lane.kind)
        if named is not None and self.setup.priorities is not None and named not in self.setup.priorities:
            yield f"WorkloadPriorityClass {named} is not in the snapshot"

    def _pending_by_queue(self) -> dict[str, list[Mapping[str, Any]]]:
        found: dict[str, list[Mapping[str, Any]]] = {}
        for workload in self.setup.pending:
            metadata, spec = workload.get("metadata") or {}, workload.get("spec") or {}
            home = metadata.get("namespace") or "default", spec.get("queueName") or ""
            local_queue = self.kueue.local_queues.get(home)
            if local_queue is not None and local_queue.cluster_queue in self.kueue.queues:
                found.setdefault(local_queue.cluster_queue, []).append(workload)
        return found

    def _ahead(self, lane: Lane) -> Ahead | None:
        """Who stands before it: in its own StrictFIFO queue, or at the head of one that shares its quota."""
        own = lane.cluster_queue
        assert own is not None
        workload = self.setup.workload(lane.kind, lane.queue)
        found = blocker_ahead(self.kueue, workload, self._waiting.get(own.name, ()))
        if found is not None:
            return found
        flavors = {name for group in lane.groups for name in group.flavors}
        for name, waiting in sorted(self._waiting.items()):
            queue = self.kueue.queues[name]
            if name == own.name or not queue.is_strict or flavors.isdisjoint(queue.flavors):
                continue
            if self.kueue.snapshot.nodes[name].path()[-1] is root_of(self.kueue, lane):
                # A head that waits for quota of the cohort sets aside what there is, in every cycle.
                stuck = [(each, self.kueue.assign(each)) for each in waiting]
                for each, answer in stuck:
                    if answer.verdict in ("wait", "preempt"):
                        return Ahead(each["metadata"].get("namespace") or "default", each["metadata"]["name"], answer)
        return None


def _summed(answers: list[Settled]) -> Settled:
    """What several resource groups come to together."""
    because = [each.because for each in answers if each.because]
    return Settled(
        worst(each.verdict for each in answers),
        tuple(name for each in answers for name in each.resources),
        "; ".join(dict.fromkeys(because)) or None,
        tuple({rival.name: rival for each in answers for rival in each.rivals}.values()),
    )
