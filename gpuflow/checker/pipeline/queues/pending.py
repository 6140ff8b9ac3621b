"""Workloads of others that wait for quota: they may get what the pipeline counts on.

Whatever the order in the queue, a workload that exists already can be admitted before one that is created later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from gpuflow.checker.contention.competitors import PendingRequest, PendingRequests
from gpuflow.checker.kueue import Assignment, Kueue
from gpuflow.checker.kueue.flavor_assigner import PodSetResources
from gpuflow.checker.kueue.queues import ClusterQueue
from gpuflow.checker.kueue.snapshot import QuotaNode
from gpuflow.checker.kueue.workloads import read_workload
from gpuflow.checker.pipeline.queues.requests import COUNT


class Charge(NamedTuple):
    """What the pods of one set ask of one resource group, and the flavors that may give it to them."""

    flavors: frozenset[str]
    amounts: Mapping[str, int]


class PendingPodSet(NamedTuple):
    """Pods of one set of a workload, and the flavors to whose nodes they may be sent."""

    namespace: str
    spec: Mapping[str, Any]
    pods: int
    flavors: frozenset[str]


class PendingWorkload(NamedTuple):
    """A workload that its queue may admit some day, what it will be charged, and its pods."""

    name: str
    queue: ClusterQueue
    charges: tuple[Charge, ...]
    pods: tuple[PendingPodSet, ...]


class PendingWorkloads:
    """All workloads that wait, by the ClusterQueue they wait in."""

    def __init__(self, kueue: Kueue, waiting: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        self.kueue = kueue
        self.workloads = list(_pending_workloads(kueue, waiting))
        self._pending: dict[tuple[QuotaNode, tuple[str, ...]], PendingRequests | None] = {}

    def requests_below(self, top: QuotaNode, flavors: tuple[str, ...]) -> PendingRequests | None:
        """The workloads that may be charged for these flavors in the queues below a node; `None` when there is none."""
        key = top, flavors
        if key not in self._pending:
            members = [
                PendingRequest(each.name, {**amounts, COUNT: 1})
                for each in self.workloads
                if top in self.kueue.snapshot.nodes[each.queue.name].path()
                and (amounts := _charged_amounts(each, frozenset(flavors)))
            ]
            self._pending[key] = PendingRequests(members) if members else None
        return self._pending[key]


def _pending_workloads(kueue: Kueue, waiting: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[PendingWorkload]:
    for name in sorted(waiting):
        for workload in waiting[name]:
            read = read_workload(workload)
            head = kueue.enter(read)
            if isinstance(head, Assignment) or kueue.assign(workload).verdict in ("never", "blocked"):
                continue
            charges: list[Charge] = []
            pods = []
            specs = {each.get("name") or "main": each["template"]["spec"] for each in workload["spec"]["podSets"]}
            for demand in head.demands:
                own = list(_charges(kueue, head.queue, demand))
                charges += own
                flavors = frozenset[str]().union(*(charge.flavors for charge in own if charge.amounts))
                pods.append(PendingPodSet(read.namespace, specs[demand.pod_set.name], demand.pods, flavors))
            yield PendingWorkload(f"{read.namespace}/{read.name}", head.queue, tuple(charges), tuple(pods))


def _charges(kueue: Kueue, queue: ClusterQueue, demand: PodSetResources) -> Iterator[Charge]:
    node = kueue.snapshot.nodes[queue.name]
    amounts = {**demand.amounts, "pods": demand.pods}
    for group in queue.groups:
        asked = {name: amounts[name] for name in group.covered if amounts.get(name, 0) > 0}
        flavors = frozenset(
            name
            for name in group.flavors
            if not kueue.flavors[name].mismatch(demand.pod_set.constraints)
            and (
                demand.pod_set.fewest < demand.pod_set.pods  # fewer of them may find room there
                or all(node.potential_available((name, resource)) >= amount for resource, amount in asked.items())
            )
        )
        yield Charge(flavors, asked)


def _charged_amounts(pending_workload: PendingWorkload, flavors: frozenset[str]) -> dict[str, int]:
    """The most that it takes of these flavors."""
    amounts: Counter[str] = Counter()
    for charge in pending_workload.charges:
        if not flavors.isdisjoint(charge.flavors):
            amounts.update(charge.amounts)
    return dict(amounts)
