"""Scheduling cycles: what Kueue's scheduler does with a workload at the head of its queue.

Mirrors sigs.k8s.io/kueue/pkg/scheduler.Scheduler.getInitialAssignments and fits, Kueue v0.19.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from gpuflow.checker.kueue.amounts import FlavorResource, plus
from gpuflow.checker.kueue.preemption import Preemptor, find_targets
from gpuflow.checker.kueue.proposal import PodSetResources, PreemptionMode, Progress, Proposal
from gpuflow.checker.kueue.queues import ClusterQueue
from gpuflow.checker.kueue.reasons import FlavorReason
from gpuflow.checker.kueue.search import Search
from gpuflow.checker.kueue.snapshot import Snapshot
from gpuflow.checker.kueue.topology_placement import NotPlaced, place, still_fits
from gpuflow.checker.kueue.workloads import Holder

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
    search = Search(head.asking, snapshot, head.queue, progress, head.ignores_undeclared)
    proposal, targets = _propose(head, snapshot, search)
    message, reasons = proposal.message(), proposal.reasons
    outcome: Literal["fit", "preempt", "pending"] = "pending"
    progress = proposal.progress
    if proposal.mode is PreemptionMode.FIT or targets:
        if not _still_fits(proposal, targets, snapshot, head):
            message, reasons = NO_LONGER_FITS, ()
        elif targets:
            outcome, progress = "preempt", ()
            message += f". Pending the preemption of {len(targets)} workload(s)"
        else:
            outcome, progress = "fit", ()
            message = f"Quota reserved in ClusterQueue {head.queue.name}"
    return Cycle(outcome, message, proposal, tuple(targets), progress, search.lacked_quota, reasons)


def _propose(head: Head, snapshot: Snapshot, search: Search) -> tuple[Proposal, list[Holder]]:
    """Flavors for all pods; if that cannot be now, for as many as the workload can do with."""
    full, targets = _try(head.demands, head, snapshot, search)
    if full.mode is PreemptionMode.FIT or targets:
        return full, targets
    partial = _partial(head, snapshot, search)
    return partial or (full, [])


def _try(
    demands: Sequence[PodSetResources], head: Head, snapshot: Snapshot, search: Search
) -> tuple[Proposal, list[Holder]]:
    proposal = search.run(demands)
    if proposal.mode in (PreemptionMode.FIT, PreemptionMode.NO_FIT):
        return proposal, []
    wanted = _requested(proposal, demands)
    return proposal, find_targets(head.asking, snapshot, proposal.needed, wanted, proposal.asked)


def _requested(proposal: Proposal, demands: Sequence[PodSetResources]) -> dict[FlavorResource, int]:
    """What victims are sought for: the pods' own requests. The resource `pods` is not among them."""
    wanted: dict[FlavorResource, int] = {}
    for found, demand in zip(proposal.found, demands, strict=True):
        for resource, amount in demand.amounts.items():
            choice = found.choices.get(resource)
            if amount and choice:
                key = choice.flavor, resource
                wanted[key] = plus(wanted.get(key, 0), amount)
    return wanted


def _partial(head: Head, snapshot: Snapshot, search: Search) -> tuple[Proposal, list[Holder]] | None:
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


def _still_fits(proposal: Proposal, targets: Sequence[Holder], snapshot: Snapshot, head: Head) -> bool:
    """The last look before anything is done: all flavors together, with the victims gone."""
    node = snapshot.nodes[head.queue.name]
    for target in targets:
        snapshot.remove(target)
    fits = all(max(0, node.available(key)) >= amount for key, amount in proposal.usage.items())
    fits = fits and _still_placed(proposal, snapshot)
    for target in targets:
        snapshot.add(target)
    return fits


def _still_placed(proposal: Proposal, snapshot: Snapshot) -> bool:
    trees = snapshot.trees
    if trees is None or not proposal.asked:
        return True
    places = place(trees, proposal.asked) if proposal.places is None else proposal.places
    return isinstance(places, NotPlaced) or still_fits(trees, proposal.asked, places)
